"""Rows in flight at the checkpoint that a job continues from, if the job has changed: handled once, or refused."""

import time

import pyarrow as pa
import pytest
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until
from tests.stream.jobs.test_unaligned import in_flight, start

from headgate import errors
from headgate.sink import FunctionSink
from headgate.stream.job.restoring import in_flight as parts_of
from headgate.stream.job.store import CheckpointStore

ROWS = 10_000


class Slow:
    """Passes batches on, so slowly that those behind it wait, however many rows a batch has, until ``finish`` is near.

    A job takes several seconds at this pace: a busy machine completes checkpoints before its end too.
    """

    def __init__(self, folder):
        self.enough = folder / "enough"

    def __call__(self, batch):
        if not self.enough.exists():
            time.sleep(min(batch.num_rows * 1e-3, 0.3))
        return batch


def counts(made=None):
    made = stream_jobs.numbers(ROWS) if made is None else made
    return made.key_by("key").process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="count")


def two(name="others"):
    """Return counts, and a second stream of the same rows without counts."""
    made = stream_jobs.numbers(ROWS)
    return counts(made), made.map(with_count, name=name)


def stop_with_rows_on_their_way(make, tmp_path, to, **options):
    """Run a job until its last checkpoint has rows on their way to an operator, and cancel it."""
    for _ in range(10):
        query = start(make(), tmp_path, alignment="unaligned", **options)
        wait_until(lambda query=query: any(in_flight(query)[-1:]) or query.state.is_over)
        assert not query.state.is_over, "all rows were handled before they were in flight"
        query.cancel()
        fields = CheckpointStore(str(tmp_path / "checkpoints")).claim().fields
        stage = fields["stages"][to]
        senders = [fields["stages"][sender]["tasks"] for _, _, sender, _ in stage["inputs"]]
        sides = [(stage["tasks"], "inputs"), *((tasks, "outputs") for tasks in senders)]
        if any(task and task[side] for tasks, side in sides for task in tasks):
            return
    raise AssertionError(f"no checkpoint had rows on their way to {to}")


def finish(stream, tmp_path, **options):
    (tmp_path / "enough").touch()
    query = start(stream, tmp_path, alignment="unaligned", **options)
    assert query.await_termination(60)


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 5), (5, 2), (3, 1), (1, 4)])
def test_rows_by_key(tmp_path, before, after):
    def make():
        return counts().key_by("id").map(Slow(tmp_path), name="slow")

    stop_with_rows_on_their_way(make, tmp_path, "slow", parallelism=before)
    finish(make(), tmp_path, parallelism=after)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


@pytest.mark.parametrize(
    ("by", "before", "after"),
    [("turn", 2, 2), ("turn", 3, 5), ("turn", 5, 2), ("load", 2, 3), ("load", 5, 2)],
)
def test_rows_in_turn_or_by_load(tmp_path, by, before, after):
    def make():
        return counts().rebalance(by=by).map(Slow(tmp_path), name="slow")

    stop_with_rows_on_their_way(make, tmp_path, "slow", parallelism=before)
    finish(make(), tmp_path, parallelism=after)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


@pytest.mark.soak
@pytest.mark.parametrize("workers", [0, 2])
def test_rows_to_an_operator_that_needs_no_exchange_any_more(tmp_path, workers):
    def make():
        counted = counts().map(stream_jobs.same, name="before")
        return counted.map(Slow(tmp_path), name="slow", parallelism=2).map(
            stream_jobs.same, name="behind"
        )

    stop_with_rows_on_their_way(make, tmp_path, "slow", parallelism=3, workers=workers)
    finish(make(), tmp_path, parallelism=2, workers=workers)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_rows_to_an_operator_that_is_now_in_the_task_of_the_source(tmp_path):
    def make():
        return stream_jobs.numbers(ROWS).map(Slow(tmp_path), name="slow", parallelism=2)

    stop_with_rows_on_their_way(make, tmp_path, "slow", parallelism=3)
    finish(make(), tmp_path, parallelism=2)
    assert sorted(stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()) == list(range(ROWS))


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
def test_rows_by_key_beside_rows_in_turn(tmp_path, before, after):
    def make():
        counted, whole = two()
        return counted.key_by("id").union(whole.rebalance()).map(Slow(tmp_path), name="slow")

    stop_with_rows_on_their_way(make, tmp_path, "slow", parallelism=before)
    finish(make(), tmp_path, parallelism=after)
    table = stream_jobs.rows_of(tmp_path / "out")
    others = [count == -1 for count in table["count"].to_pylist()]
    assert sorted(table.filter(others)["id"].to_pylist()) == list(range(ROWS))
    stream_jobs.check_counts(table.filter([not other for other in others]), ROWS)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
def test_rows_by_two_keys(tmp_path, before, after):
    def make():
        counted, whole = two()
        return counted.key_by("id").union(whole.key_by("key")).map(Slow(tmp_path), name="slow")

    stop_with_rows_on_their_way(make, tmp_path, "slow", parallelism=before)
    finish(make(), tmp_path, parallelism=after)
    ids = sorted(stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist())
    assert ids == [number for number in range(ROWS) for _ in range(2)]


def test_rows_of_a_stream_that_is_joined_with_itself(tmp_path):
    def make():
        counted = counts()
        return counted.key_by("id").union(counted.key_by("id")).map(Slow(tmp_path), name="slow")

    stop_with_rows_on_their_way(make, tmp_path, "slow")
    finish(make(), tmp_path, parallelism=3)
    ids = sorted(stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist())
    assert ids == [number for number in range(ROWS) for _ in range(2)]


def with_count(batch):
    """Return rows as those of ``counts``, with a count that none of them has."""
    count = pa.repeat(pa.scalar(-1, pa.int64()), batch.num_rows)
    return pa.RecordBatch.from_arrays(
        [batch["key"], batch["id"], count], schema=stream_jobs.COUNTED
    )


def renamed(tmp_path, sender="again", receiver="slow"):
    return (
        counts().map(stream_jobs.same, name=sender).key_by("id").map(Slow(tmp_path), name=receiver)
    )


def test_an_operator_that_rows_are_on_their_way_to_must_be_there(tmp_path):
    stop_with_rows_on_their_way(lambda: renamed(tmp_path), tmp_path, "slow")
    with pytest.raises(errors.CheckpointError, match="rows on their way to slow, which the job"):
        start(renamed(tmp_path, receiver="late"), tmp_path)
    finish(renamed(tmp_path), tmp_path)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_rows_to_an_operator_that_is_gone_may_be_dropped(tmp_path):
    stop_with_rows_on_their_way(lambda: renamed(tmp_path), tmp_path, "slow")
    finish(renamed(tmp_path, receiver="late"), tmp_path, allow_dropped_state=True)
    ids = stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()
    assert len(ids) == len(set(ids)) < ROWS


def test_the_sender_of_rows_may_have_another_name(tmp_path):
    stop_with_rows_on_their_way(lambda: renamed(tmp_path), tmp_path, "slow")
    finish(renamed(tmp_path, sender="other"), tmp_path, parallelism=3)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_new_name_of_a_sender_is_refused_where_rows_come_in_two_ways(tmp_path):
    def make(name="other"):
        counted, whole = two(name)
        return counted.key_by("id").union(whole.rebalance()).map(Slow(tmp_path), name="slow")

    stop_with_rows_on_their_way(make, tmp_path, "slow")
    with pytest.raises(errors.CheckpointError, match="from other to slow"):
        start(make("renamed"), tmp_path, parallelism=3)
    finish(make("renamed"), tmp_path, parallelism=2)


def test_a_job_of_other_operators_has_no_rows_in_flight(tmp_path):
    stop_with_rows_on_their_way(lambda: renamed(tmp_path), tmp_path, "slow")
    found = CheckpointStore(str(tmp_path / "checkpoints")).claim()
    graph = (
        counts()
        .key_by("id")
        .map(stream_jobs.same, name="another")
        .sink(FunctionSink(print))
        .plan(2)
    )
    parts = [
        part
        for stage in graph.stages
        for at in range(stage.parallelism)
        for part in parts_of(graph, stage, at, found.fields, found.base)
    ]
    assert {part["operator"] for part in parts} <= {"count"}
