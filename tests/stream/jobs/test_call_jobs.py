"""Jobs with map_async(): calls through checkpoints, lost workers, rescales and event time."""

import asyncio
import os
import random
import signal
from collections import Counter
from datetime import timedelta
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.waiting import wait_until

from headgate.sink import FileSink, FunctionSink
from headgate.source import FileSource, NumberSequenceSource
from headgate.stream import Aggregate, JobState, TumblingWindow, stream
from headgate.testing import Service

ROWS = 1500
IN_FLIGHT = 8
KEYED = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("at", pa.timestamp("ms"))])


class Ledger:
    """A service that says what it was asked for, in a file of all processes; it answers once ``open`` is there."""

    def __init__(self, folder, longest=0.01):
        self.file, self.open, self.longest = folder / "ledger", folder / "open", longest

    async def __call__(self, row, context):
        with self.file.open("a") as file:
            file.write(f"{row['id']} {context.call_id}\n")
        await asyncio.sleep(random.uniform(0, self.longest))
        while not self.open.exists():  # noqa: ASYNC110 - by another process
            await asyncio.sleep(0.01)
        return row

    def calls(self):
        """Return the row and the name of each call."""
        if not self.file.exists():
            return []
        lines = self.file.read_text().splitlines()
        return [(int(row), call) for row, call in map(str.split, lines)]


def counts(folder, called):
    """Return a job that counts the rows behind the calls."""
    counted = called.key_by("key").process(
        stream_jobs.Count, schema=stream_jobs.COUNTED, name="counts"
    )
    return counted.sink(FileSink(str(folder / "out"), mode="append"), name="files")


def job(folder, ledger, **options):
    """Return a job with an exchange before the calls and one behind them."""
    rows = stream_jobs.numbers(ROWS, rate=1500).key_by("id")
    options = {"in_flight": IN_FLIGHT, "ordered": False, "name": "calls", **options}
    return counts(folder, rows.map_async(ledger, schema=KEYED, **options))


def check(folder, ledger, losses, parallelism):
    stream_jobs.check_counts(stream_jobs.rows_of(folder / "out"), ROWS)
    calls = Counter(ledger.calls())
    assert {row for row, _ in calls} == set(range(ROWS))
    assert len({call for _, call in calls}) == len(calls), "a name has one row"
    repeated = sum(number - 1 for number in calls.values())
    assert repeated <= losses * parallelism * IN_FLIGHT, "only what was under way"


def complete(query):
    return sum(checkpoint.status == "complete" for checkpoint in query.status.checkpoints)


@pytest.mark.parametrize("ordered", [True, False, "by_key"])
def test_a_killed_worker_repeats_calls_under_their_names(tmp_path, ordered):
    ledger = Ledger(tmp_path)
    ledger.open.touch()
    query = job(tmp_path, ledger, ordered=ordered).start(
        checkpoint=str(tmp_path / "checkpoints"), interval=0.1, parallelism=2, workers=2
    )
    with query:
        wait_for_a_checkpoint(query)
        os.kill(query._master._pool.processes[1].pid, signal.SIGKILL)
        assert query.await_termination(60)
    check(tmp_path, ledger, 1, 2)
    assert query.status.restarts == 1


def test_a_job_goes_on_with_more_and_fewer_tasks(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.open.touch()
    with job(tmp_path, ledger).start(
        checkpoint=str(tmp_path / "checkpoints"), interval=0.1, parallelism=2
    ) as query:
        for parallelism in (3, 1):
            wait_for_a_checkpoint(query)
            query.rescale(parallelism)
        assert query.await_termination(60)
        assert query.state is JobState.FINISHED
    check(tmp_path, ledger, 2, 3)


def in_flight(query):
    """Return the calls under way in the last report of the only task."""
    metrics = query.status.metrics.get("calls", {})
    return metrics.get("calls_in_flight", {"values": {"0": 0}})["values"]["0"]


@pytest.mark.parametrize("is_chained", [True, False])
@pytest.mark.parametrize("after", [1, 2])
def test_checkpoints_do_not_wait_for_calls(tmp_path, is_chained, after):
    ledger = Ledger(tmp_path)

    def start(parallelism):
        rows = stream_jobs.numbers(ROWS, parallelism=None if is_chained else 1)
        if not is_chained:
            rows = rows.rebalance()
        called = rows.map_async(ledger, schema=KEYED, in_flight=IN_FLIGHT, name="calls")
        return counts(tmp_path, called).start(
            checkpoint=str(tmp_path / "checkpoints"),
            interval=0.1,
            parallelism=parallelism,
            alignment="unaligned",
        )

    with start(1) as query:
        wait_until(lambda: len(ledger.calls()) == IN_FLIGHT)
        wait_for_a_checkpoint(query, complete(query) + 2)
        wait_until(lambda: in_flight(query) == IN_FLIGHT)
        query.cancel()
    before = dict(ledger.calls())
    assert len(before) == IN_FLIGHT, "no other call began"
    ledger.open.touch()
    with start(after) as query:
        assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)
    calls = ledger.calls()
    assert {row: call for row, call in calls[IN_FLIGHT:] if row in before} == before
    assert len(calls) == ROWS + IN_FLIGHT


def test_no_row_is_late_behind_calls(tmp_path):
    ledger = Ledger(tmp_path, longest=0.02)
    ledger.open.touch()
    windows = []
    called = (
        stream(NumberSequenceSource(0, 400, batch_size=7), watermarks=stream_jobs.watermarks())
        .map(stream_jobs.with_key)
        .map_async(ledger, schema=KEYED, ordered=False, in_flight=50)
    )
    with (
        called.key_by("key")
        .window(TumblingWindow("3s"), time="at", aggregates=[Aggregate("count", name="rows")])
        .sink(FunctionSink(windows.append))
        .start(parallelism=2)
    ) as query:
        assert query.await_termination(60)
    assert query.status.dropped == {}
    counted = Counter()
    for batch in windows:
        for row in batch.to_pylist():
            assert (row["key"], row["window_start"]) not in counted, "a window is emitted once"
            counted[row["key"], row["window_start"]] = row["rows"]
    assert sum(counted.values()) == 400


def test_errors_are_a_stream_of_their_own(tmp_path):
    async def call(row):
        if row["id"] % 3 == 0:
            raise ValueError(f"no {row['id']}")
        return row

    rows = stream_jobs.numbers(30)
    called = rows.map_async(call, schema=KEYED, on_error="side_output", retries=1, backoff=0)
    results, errors = [], []
    called.side_output("errors").sink(FunctionSink(errors.append))
    with called.sink(FunctionSink(results.append)).start(parallelism=2) as query:
        assert query.await_termination(60)
    assert sorted(i for batch in results for i in batch["id"].to_pylist()) == [
        at for at in range(30) if at % 3
    ]
    by_row = {row["id"]: row for batch in errors for row in batch.to_pylist()}
    assert sorted(by_row) == list(range(0, 30, 3))
    assert all(
        (row["_error"], row["_attempts"]) == (f"ValueError: no {at}", 2)
        for at, row in by_row.items()
    )


def test_calls_behind_calls_in_one_task(tmp_path):
    """The first ones wait while the second operator is full."""
    ledgers = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        ledgers.append(Ledger(tmp_path / name, longest=0.002))
    ledgers[0].open.touch()
    called = stream_jobs.numbers(100).map_async(ledgers[0], schema=KEYED, in_flight=4)
    called = called.map_async(ledgers[1], schema=KEYED, in_flight=4, ordered=False)
    rows = []
    with called.sink(FunctionSink(rows.append)).start(parallelism=1) as query:
        wait_until(lambda: len(ledgers[1].calls()) == 4)
        assert len(ledgers[0].calls()) < 20
        ledgers[1].open.touch()
        assert query.await_termination(60)
    assert sorted(at for batch in rows for at in batch["id"].to_pylist()) == list(range(100))


def test_an_ended_job_goes_on_with_more_rows(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.open.touch()
    (tmp_path / "in").mkdir()
    for first in (0, 10):
        rows = pa.table({"id": range(first, first + 10)})
        pq.write_table(rows, tmp_path / "in" / f"{first}.parquet")
        called = stream(FileSource(tmp_path / "in")).map_async(ledger, schema=rows.schema)
        called.sink(FileSink(str(tmp_path / "out"), mode="append")).run(
            checkpoint=str(tmp_path / "checkpoints"), until="now"
        )
    assert sorted(stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()) == list(range(20))
    assert len(ledger.calls()) == 20


class Fails:
    """A map that fails once for each of some rows; the files say for which it has."""

    def __init__(self, folder, rows):
        self.folder, self.rows = folder, rows

    def __call__(self, batch):
        for row in self.rows.intersection(batch["id"].to_pylist()):
            file = self.folder / f"failed at {row}"
            if not file.exists():
                file.touch()
                raise ValueError("planned")
        return batch


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 6))]
)
def test_random_failures_repeat_calls_and_lose_no_row(tmp_path, seed):
    draw = random.Random(seed)
    ledger = Ledger(tmp_path, longest=draw.choice([0.002, 0.02]))
    ledger.open.touch()
    rows = stream_jobs.numbers(ROWS, rate=3000).map(Fails(tmp_path, {draw.randrange(ROWS)}))
    if draw.random() < 0.7:
        rows = rows.key_by("id") if draw.random() < 0.5 else rows.rebalance()
    called = rows.map_async(
        ledger,
        schema=KEYED,
        in_flight=draw.choice([1, IN_FLIGHT, 100]) if ledger.longest < 0.01 else 100,
        ordered=draw.choice([True, False]),
        call_id=draw.choice([None, "id"]),
        name="calls",
    )
    called = called.map(Fails(tmp_path, {draw.randrange(ROWS) for _ in range(2)}), name="fails")
    with counts(tmp_path, called).start(
        checkpoint=str(tmp_path / "checkpoints"),
        interval=0.05,
        parallelism=draw.randint(1, 3),
        alignment=draw.choice(["aligned", "unaligned", "timeoutable"]),
        restart_delay=0.01,
        restarts=5,
    ) as query:
        assert query.await_termination(60)
    assert query.status.restarts >= 1
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)
    names = {}
    for row, call in ledger.calls():
        assert names.setdefault(call, row) == row, "a name has one row"


def test_an_exception_of_a_client_says_how_long_the_service_asks_to_wait():
    """Nothing but the header makes attempts wait: backoff= is 0."""
    with Service(refusals=0.5, retry_after=0.3, seed=3) as service:
        url = service.url

        def ask(row):
            name = {"Idempotency-Key": str(row["id"])}
            with urlopen(Request(url, b"%d" % row["id"], name)) as answer:
                answer.read()
            return row

        rows = stream(NumberSequenceSource(0, 12), parallelism=1)
        called = rows.map_async(ask, schema=rows.schema, retries=30, backoff=0)
        called.sink(FunctionSink(len)).run()
        calls = service.calls().sort_by("at").to_pylist()
    refused = {}
    for call in calls:
        before = refused.pop(call["call_id"], None)
        assert before is None or call["at"] - before >= timedelta(seconds=0.3)
        if call["outcome"] == "refused":
            refused[call["call_id"]] = call["at"]
    assert len(calls) > 12
    assert not refused
