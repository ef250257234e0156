"""Every batch of a stream becomes visible exactly once, after crashes and repeated runs."""

import pytest
import sink_kit as kit

from headgate.errors import OptionError, SinkError
from headgate.sink import FileSink, WriterContext

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
BATCHES = 4


def stage(sink, committer, batch, tasks=2):
    """Run the tasks of a batch and return the committables."""
    found = []
    for index in range(tasks):
        start = batch * 10 + index * 5
        context = WriterContext(committer.job(batch), index)
        with sink.create_writer(context, make_job=True) as writer:
            for part in kit.numbers(start, start + 5):
                writer.write(part)
            found.append(writer.prepare_commit())
    return found


def run(sink, first=0, query=QUERY):
    """Run batches until the end or a crash; return the number of the next batch."""
    committer = sink.create_query_committer(query)
    batch = first
    try:
        for batch in range(first, BATCHES):
            committer.commit(batch, stage(sink, committer, batch))
    except kit.Crash:
        return batch
    return BATCHES


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_crash_at_every_step(tmp_path, mode):
    whole = list(range(BATCHES * 10)) if mode == "append" else list(range(30, 40))
    faults = kit.Faults()
    options = {"mode": mode, "max_rows_per_file": 3}
    assert run(kit.faulty(tmp_path / "counted", faults, **options)) == BATCHES
    assert kit.rows(tmp_path / "counted") == whole
    again = 0
    for number in range(1, len(faults.seen) + 1, 1 if mode == "append" else 3):
        path = tmp_path / f"crash-{number}"
        batch = run(kit.faulty(path, kit.Faults(number), **options))
        assert batch < BATCHES
        # The engine runs the batch again under the same number.
        sink = FileSink(path, **options)
        again += sink.create_query_committer(QUERY).latest() == batch
        assert run(sink, batch) == BATCHES
        assert kit.rows(path) == whole, faults.seen[number - 1]
        assert kit.left(path) == [], faults.seen[number - 1]
    assert again > 0, "batches that were committed and ran again"


def test_two_drivers_commit_the_same_batch(tmp_path):
    def race(path, at):
        """Commit a batch while another driver commits its own attempt at one of the steps."""
        sink = kit.faulty(path, kit.Faults(), mode="append", max_rows_per_file=3)
        slow, quick = sink.create_query_committer(QUERY), FileSink(path, mode="append")
        other = quick.create_query_committer(QUERY)
        mine, theirs = stage(sink, slow, 0), stage(quick, other, 0)
        seen, results = [], []

        def step(name, where):
            seen.append(name)
            if len(seen) == at:
                results.append(other.commit(0, theirs))

        sink.faults.step = step
        try:
            results.append(slow.commit(0, mine))
        except SinkError as error:
            results.append(str(error))
        return seen, results

    steps, _ = race(tmp_path / "counted", None)
    winners = set()
    for number in range(1, len(steps) + 1):
        path = tmp_path / f"race-{number}"
        _, (theirs, mine) = race(path, number)
        assert kit.rows(path) == list(range(10)), (steps[number - 1], theirs, mine)
        assert kit.left(path) == [], steps[number - 1]
        assert theirs is None or mine is None or isinstance(mine, str), steps[number - 1]
        winners.add("theirs" if theirs is not None else "mine")
    assert winners == {"theirs", "mine"}


def test_another_driver_dies_while_the_batch_is_decided(tmp_path):
    def run_both(path, at):
        """Commit a batch; before its journal, another driver commits it and dies at a step."""
        sink = kit.faulty(path, kit.Faults(), mode="append", max_rows_per_file=3)
        dying = kit.faulty(path, kit.Faults(), mode="append")
        slow = sink.create_query_committer(QUERY)
        other = dying.create_query_committer(QUERY)
        mine, theirs = stage(sink, slow, 0), stage(dying, other, 0)
        dying.faults.at = None if at is None else len(dying.faults.seen) + at
        first = len(dying.faults.seen)
        turns = []

        def step(name, where):
            if name == "move_new" and not turns:
                turns.append(where)
                try:
                    other.commit(0, theirs)
                except kit.Crash:
                    turns.append("died")

        sink.faults.step = step
        try:
            slow.commit(0, mine)
        except SinkError:
            turns.append("lost")
        assert turns
        return len(dying.faults.seen) - first

    for number in range(1, run_both(tmp_path / "counted", None) + 1):
        path = tmp_path / f"died-{number}"
        run_both(path, number)
        sink = FileSink(path, mode="append")
        last = sink.create_query_committer(QUERY)
        last.commit(0, stage(sink, last, 0))
        assert kit.rows(path) == list(range(10)), number
        assert kit.left(path) == [], number


def test_a_batch_that_was_committed_is_not_committed_again(path):
    sink = FileSink(path, mode="append")
    committer = sink.create_query_committer(QUERY)
    assert committer.latest() is None
    result = committer.commit(0, stage(sink, committer, 0))
    assert result.rows == 10
    assert committer.latest() == 0
    for batch, is_new in ((0, False), (1, True), (2, True), (0, False), (1, False), (2, False)):
        result = committer.commit(batch, stage(sink, committer, batch))
        assert (result is not None) == is_new
    assert committer.latest() == 2
    assert kit.rows(path) == list(range(30))
    assert kit.left(path) == []
    assert not (path / "_SUCCESS").exists()


def test_queries_do_not_know_each_other(path):
    sink = FileSink(path, mode="append")
    for query in ("a", "b"):
        assert run(sink, query=query) == BATCHES
    assert kit.rows(path) == sorted([*range(40), *range(40)])


def test_the_tries_of_a_batch_that_did_not_win_are_removed(path):
    sink = FileSink(path, mode="append")
    committer = sink.create_query_committer(QUERY)
    stage(sink, committer, 0)
    lost = sink.create_writer(WriterContext(committer.job(0), 7), make_job=True)
    lost.write(kit.numbers(70, 75)[0])
    committer.commit(0, stage(sink, committer, 0))
    lost.close()
    assert kit.rows(path) == list(range(10))
    assert kit.left(path) == []
    # The next batch removes the files of a task that outlives its batch.
    late = sink.create_writer(WriterContext(committer.job(0), 8), make_job=True)
    late.write(kit.numbers(70, 75)[0])
    late.prepare_commit()
    assert kit.left(path) != []
    committer.commit(1, stage(sink, committer, 1))
    assert kit.rows(path) == list(range(20))
    assert kit.left(path) == []


def test_an_aborted_batch_leaves_nothing(path):
    sink = FileSink(path, mode="append")
    committer = sink.create_query_committer(QUERY)
    stage(sink, committer, 0)
    committer.abort(0)
    committer.abort(0)
    assert list(path.iterdir()) == []
    committer.commit(0, stage(sink, committer, 0))
    assert kit.rows(path) == list(range(10))


def test_a_decided_batch_is_not_aborted(path):
    sink = kit.faulty(path, kit.Faults(), mode="append")
    committer = sink.create_query_committer(QUERY)
    staged = stage(sink, committer, 0)

    def crash_at_rename(name, path):
        if name == "move" and path.endswith(".parquet"):
            raise kit.Crash

    sink.faults.step = crash_at_rename
    with pytest.raises(kit.Crash):
        committer.commit(0, staged)
    clean = FileSink(path, mode="append").create_query_committer(QUERY)
    clean.abort(0)
    assert clean.commit(0, stage(FileSink(path, mode="append"), clean, 0)) is None
    assert kit.rows(path) == list(range(10))
    assert kit.left(path) == []


def test_a_foreign_recovery_completes_a_batch_and_spares_its_next_try(path):
    sink = kit.faulty(path, kit.Faults(), mode="append")
    committer = sink.create_query_committer(QUERY)
    staged = stage(sink, committer, 0)

    def crash_at_rename(name, path):
        if name == "move" and path.endswith(".parquet"):
            raise kit.Crash

    sink.faults.step = crash_at_rename
    with pytest.raises(kit.Crash):
        committer.commit(0, staged)
    plain = FileSink(path, mode="append")
    restarted = plain.create_query_committer(QUERY)
    second_try = stage(plain, restarted, 0)
    assert plain.recover().completed == (restarted.job(0),)
    assert kit.rows(path) == list(range(10))
    assert kit.left(path) != [], "the second try is at work"
    assert restarted.commit(0, second_try) is None
    assert kit.rows(path) == list(range(10))
    assert kit.left(path) == []


def test_empty_batches_make_no_file(path):
    sink = FileSink(path, mode="append")
    committer = sink.create_query_committer(QUERY)
    empty = WriterContext(committer.job(0))
    with sink.create_writer(empty, kit.numbers(0, 1)[0].schema, make_job=True) as writer:
        staged = writer.prepare_commit()
    assert committer.commit(0, [staged]).files == ()
    assert committer.commit(1, []).files == ()
    assert committer.latest() == 1
    assert kit.left(path) == []
    assert list(path.glob("part-*")) == []


def test_few_markers_are_kept(path):
    committer = FileSink(path, mode="append").create_query_committer(QUERY)
    for batch in range(25):
        committer.commit(batch, [])
    markers = sorted(int(m.name) for m in (path / "_headgate/commits" / QUERY).iterdir())
    assert markers == list(range(15, 25))
    assert committer.commit(3, []) is None


def test_mistakes_are_named(path):
    sink = FileSink(path, mode="append")
    with pytest.raises(OptionError, match="is no valid name"):
        sink.create_query_committer("../up")
    committer = sink.create_query_committer(QUERY)
    staged = stage(sink, committer, 0)
    with pytest.raises(SinkError, match="another job"):
        committer.commit(1, staged)
