"""Every batch of a Spark stream becomes visible exactly once, after crashes and repeated runs."""

import pytest
from tests.kit import sinks

from headgate.errors import SinkError
from headgate.sink import CommitterContext, FileSink, WriterContext
from headgate.sink.batch import stage as stage_rows

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
BATCHES = 4


def task(batch, index):
    return WriterContext(QUERY, index, restored_checkpoint=batch - 1 if batch else None)


def stage(sink, batch, tasks=2):
    """Run the tasks of a batch and return the committables."""
    starts = [batch * 10 + index * 5 for index in range(tasks)]
    return [
        stage_rows(sink, task(batch, index), sinks.numbers(start, start + 5)).committable
        for index, start in enumerate(starts)
    ]


def committer_of(sink):
    return sink.create_committer(CommitterContext(QUERY))


def run(sink, first=0):
    """Run batches until the end or a crash; return the number of the next batch."""
    batch = first
    try:
        for batch in range(first, BATCHES):
            committer_of(sink).commit(batch, stage(sink, batch))
    except sinks.Crash:
        return batch
    return BATCHES


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_crash_at_every_step(tmp_path, mode):
    whole = list(range(BATCHES * 10)) if mode == "append" else list(range(30, 40))
    faults = sinks.Faults()
    options = {"mode": mode, "max_rows_per_file": 3}
    assert run(sinks.faulty(tmp_path / "counted", faults, **options)) == BATCHES
    assert sinks.rows(tmp_path / "counted") == whole
    again = 0
    for number in range(1, len(faults.seen) + 1, 1 if mode == "append" else 3):
        path = tmp_path / f"crash-{number}"
        batch = run(sinks.faulty(path, sinks.Faults(number), **options))
        assert batch < BATCHES
        # The engine runs the batch again under the same number.
        sink = FileSink(path, **options)
        again += committer_of(sink).latest() == batch
        assert run(sink, batch) == BATCHES
        assert sinks.rows(path) == whole, faults.seen[number - 1]
        assert sinks.left(path) == [], faults.seen[number - 1]
    assert again > 0, "batches that were committed and ran again"


def test_two_drivers_commit_the_same_batch(tmp_path):
    def race(path, at):
        """Commit a batch while another driver commits its own attempt at one of the steps."""
        sink = sinks.faulty(path, sinks.Faults(), mode="append", max_rows_per_file=3)
        quick = FileSink(path, mode="append")
        mine, theirs = stage(sink, 0), stage(quick, 0)
        seen, results = [], []

        def step(name, where):
            seen.append(name)
            if len(seen) == at:
                results.append(committer_of(quick).commit(0, theirs))

        sink.faults.step = step
        try:
            results.append(committer_of(sink).commit(0, mine))
        except SinkError as error:
            results.append(str(error))
        return seen, results

    steps, _ = race(tmp_path / "counted", None)
    winners = set()
    for number in range(1, len(steps) + 1):
        path = tmp_path / f"race-{number}"
        _, (theirs, mine) = race(path, number)
        assert sinks.rows(path) == list(range(10)), (steps[number - 1], theirs, mine)
        assert sinks.left(path) == [], steps[number - 1]
        assert theirs is None or mine is None or isinstance(mine, str), steps[number - 1]
        winners.add("theirs" if theirs is not None else "mine")
    assert winners == {"theirs", "mine"}


def test_another_driver_dies_while_the_batch_is_decided(tmp_path):
    def run_both(path, at):
        """Commit a batch; before its journal, another driver commits it and dies at a step."""
        sink = sinks.faulty(path, sinks.Faults(), mode="append", max_rows_per_file=3)
        dying = sinks.faulty(path, sinks.Faults(), mode="append")
        mine, theirs = stage(sink, 0), stage(dying, 0)
        dying.faults.at = None if at is None else len(dying.faults.seen) + at
        first = len(dying.faults.seen)
        turns = []

        def step(name, where):
            if name == "move_new" and not turns:
                turns.append(where)
                try:
                    committer_of(dying).commit(0, theirs)
                except sinks.Crash:
                    turns.append("died")

        sink.faults.step = step
        try:
            committer_of(sink).commit(0, mine)
        except SinkError:
            turns.append("lost")
        assert turns
        return len(dying.faults.seen) - first

    for number in range(1, run_both(tmp_path / "counted", None) + 1):
        path = tmp_path / f"died-{number}"
        run_both(path, number)
        sink = FileSink(path, mode="append")
        committer_of(sink).commit(0, stage(sink, 0))
        assert sinks.rows(path) == list(range(10)), number
        assert sinks.left(path) == [], number


def test_a_batch_that_was_committed_is_not_committed_again(path):
    sink = FileSink(path, mode="append")
    committer = committer_of(sink)
    assert committer.latest() is None
    for batch, rows in ((0, 10), (0, None), (1, 10), (2, 10), (0, None), (1, None), (2, None)):
        result = committer.commit(batch, stage(sink, batch))
        assert (result and result.rows) == rows
    assert committer.latest() == 2
    assert sinks.rows(path) == list(range(30))
    assert sinks.left(path) == []
    assert not (path / "_SUCCESS").exists()


def test_the_tries_of_a_batch_that_did_not_win_are_removed(path):
    sink = FileSink(path, mode="append")
    stage(sink, 0)
    lost = sink.create_writer(task(0, 7))
    lost.write(sinks.numbers(70, 75)[0])
    committer_of(sink).commit(0, stage(sink, 0))
    lost.close()
    assert sinks.rows(path) == list(range(10))
    assert sinks.left(path) == []
    # The next batch removes the files of a task that outlives its batch.
    stage_rows(sink, task(0, 8), sinks.numbers(70, 75))
    assert sinks.left(path) != []
    committer_of(sink).commit(1, stage(sink, 1))
    assert sinks.rows(path) == list(range(20))
    assert sinks.left(path) == []


def test_an_aborted_batch_leaves_nothing(path):
    sink = FileSink(path, mode="append")
    committer = committer_of(sink)
    stage(sink, 0)
    committer.abort_unknown([])
    committer.abort_unknown([])
    assert list(path.iterdir()) == []
    committer.commit(0, stage(sink, 0))
    assert sinks.rows(path) == list(range(10))


@pytest.mark.parametrize("completed_by", ["an abort", "a recovery"])
def test_a_decided_batch_is_completed_and_its_next_try_comes_to_nothing(path, completed_by):
    sink = sinks.faulty(path, sinks.Faults(), mode="append")
    staged = stage(sink, 0)
    sink.faults.step = sinks.crash_at_rename
    with pytest.raises(sinks.Crash):
        committer_of(sink).commit(0, staged)
    plain = FileSink(path, mode="append")
    restarted = committer_of(plain)
    if completed_by == "an abort":
        restarted.abort_unknown([])
        second_try = stage(plain, 0)
    else:
        second_try = stage(plain, 0)
        assert plain.recover().completed == (f"{QUERY}-0",)
    assert sinks.rows(path) == list(range(10))
    assert sinks.left(path) != [], "the second try is at work"
    assert restarted.commit(0, second_try) is None
    assert sinks.rows(path) == list(range(10))
    assert sinks.left(path) == []


def test_a_batch_without_rows_makes_no_file_and_replaces_all_in_complete_mode(path):
    sink = FileSink(path, mode="append")
    assert stage_rows(sink, task(0, 0), [], sinks.numbers(0, 1)[0].schema).committable is None
    assert committer_of(sink).commit(0, []) is None
    assert not path.exists()
    committer_of(sink).commit(1, stage(sink, 1))
    overwriting = committer_of(FileSink(path, mode="overwrite"))
    assert overwriting.commit(2, []).files == ()
    assert overwriting.latest() == 2
    assert sinks.rows(path) == sinks.left(path) == []


def test_few_markers_are_kept(path):
    committer = committer_of(FileSink(path, mode="overwrite"))
    for batch in range(25):
        committer.commit(batch, [])
    markers = sorted(int(m.name) for m in (path / "_headgate/commits" / QUERY).iterdir())
    assert markers == list(range(15, 25))
    assert committer.commit(3, []) is None
