"""Jobs that fail and go on from their checkpoints: every row is committed once."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyarrow import dataset as ds
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.waiting import wait_until

from headgate import errors
from headgate.sink import (
    FileSink,
    Sink,
    SinkCommitter,
    SinkWriter,
)
from headgate.source import NumberSequenceSource
from headgate.stream import JobState, read_savepoint, stream
from headgate.stream.job.store import CheckpointStore, FencedError

#: Of Linux's renameat2().
AT_FDCWD, EXCHANGE = -100, 2
ROWS = 4000
RATE = 2500


def counted(rows, *, rate=RATE, **failure):
    """Return a job's stream: counts over two exchanges, slow enough for checkpoints in between."""
    made = stream_jobs.numbers(rows, rate=rate)
    keyed = made.key_by("key").process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="count")
    if failure:
        keyed = keyed.map(stream_jobs.FailOnce(**failure), name="fails")
    return keyed.key_by("id").map(lambda batch: batch, name="again")


def start(stream, tmp_path, sink=None, **options):
    sink = sink or FileSink(str(tmp_path / "out"))
    settings = {"parallelism": 2, "checkpoint": str(tmp_path / "checkpoints"), "interval": 0.05}
    return stream.sink(sink, name="files").start(**{**settings, **options})


@pytest.mark.parametrize("workers", [0, 2])
def test_a_function_that_fails_costs_time_and_no_rows(tmp_path, workers):
    query = start(
        counted(ROWS, file=tmp_path / "failed", after=ROWS // 4), tmp_path, workers=workers
    )
    assert query.await_termination(60)
    assert query.status.restarts == 1
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


@pytest.mark.soak
@pytest.mark.parametrize("alignment", ["aligned", "unaligned", "at_least_once"])
def test_checkpoints_go_on_when_one_of_two_sources_has_ended(tmp_path, alignment):
    few = NumberSequenceSource(ROWS, ROWS + 100, batch_size=10)
    ended = stream(few, name="few").map(stream_jobs.with_key, name="keys of few")
    made = stream_jobs.numbers(ROWS, rate=RATE).union(ended).key_by("key")
    made = made.process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="count")
    failing = made.map(stream_jobs.FailOnce(tmp_path / "failed", ROWS // 4), name="fails")
    query = start(
        failing.key_by("id").map(stream_jobs.same, name="again"), tmp_path, alignment=alignment
    )
    assert query.await_termination(60)
    assert query.status.restarts == 1
    complete = [one for one in query.status.checkpoints if one.status == "complete"]
    assert len(complete) > 3
    assert any(one.bytes for one in complete)
    ids = stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()
    assert set(ids) == set(range(ROWS + 100))
    if alignment != "at_least_once":
        stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS + 100)


def test_a_killed_worker_costs_time_and_no_rows(tmp_path):
    stream = counted(ROWS, file=tmp_path / "failed", after=ROWS // 4, how="exit")
    query = start(stream, tmp_path, workers=3)
    assert query.await_termination(60)
    assert query.status.restarts >= 1
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_reader_sees_each_row_once_while_small_files_are_joined_and_a_worker_is_killed(tmp_path):
    out = tmp_path / "out"
    sink = FileSink(out, partition_by="key", sort_within="id", compact_below="1m")
    stream = counted(ROWS, file=tmp_path / "failed", after=ROWS // 4, how="exit")
    query = start(stream, tmp_path, sink, workers=3)
    polls = 0
    while not query.await_termination(0.05):
        files = [str(file) for file in out.glob("key=*/part-*")]
        ids = stream_jobs.rows_of(files)["id"].to_pylist() if files else []
        assert len(ids) == len(set(ids))
        polls += 0 < len(ids) < ROWS
    assert polls
    assert query.status.restarts >= 1
    stream_jobs.check_counts(ds.dataset(out, partitioning="hive").to_table(), ROWS)
    # A file for each checkpoint and key, though two tasks have rows of it.
    files = [(file.parent, file.name.rsplit("-", 2)[0]) for file in out.glob("key=*/part-*")]
    assert len(files) == len(set(files))


def test_a_stopped_job_goes_on_where_it_was(tmp_path):
    stream = counted(ROWS)
    query = start(stream, tmp_path)
    wait_for_a_checkpoint(query)
    assert query.stop() is None
    assert query.state is JobState.STOPPED
    first = stream_jobs.rows_of(tmp_path / "out").num_rows
    assert 0 < first < ROWS
    again = start(counted(ROWS), tmp_path)
    assert again.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_cancelled_job_goes_on_from_its_last_checkpoint(tmp_path):
    query = start(counted(ROWS), tmp_path)
    wait_for_a_checkpoint(query)
    query.cancel()
    again = start(counted(ROWS), tmp_path)
    assert again.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


@pytest.mark.soak
@pytest.mark.parametrize(("before", "after"), [(3, 5), (5, 2), (1, 4)])
def test_a_savepoint_is_restored_with_another_parallelism(tmp_path, before, after):
    rows = ROWS * before
    query = start(counted(rows), tmp_path, parallelism=before)
    wait_for_a_checkpoint(query)
    folder = query.stop(savepoint=str(tmp_path / "savepoint"))
    query = start(
        counted(rows),
        tmp_path,
        parallelism=after,
        checkpoint=str(tmp_path / "others"),
        savepoint=folder,
        name="second",
    )
    assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), rows)


def test_a_savepoint_is_found_from_another_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    query = start(counted(ROWS), tmp_path)
    wait_for_a_checkpoint(query)
    folder = query.stop(savepoint="savepoint")
    assert folder == str(tmp_path / "savepoint")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    # The log of checkpoints names the savepoint.
    query = start(counted(ROWS), tmp_path)
    assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_savepoint_of_a_job_that_goes_on_has_its_state(tmp_path):
    query = start(counted(1_000_000), tmp_path)
    wait_for_a_checkpoint(query)
    folder = query.savepoint(str(tmp_path / "savepoint"))
    state = read_savepoint(folder)["count"]
    assert set(state.column_names) == {"key", "value"}
    assert state.num_rows == stream_jobs.KEYS
    with pytest.raises(errors.CheckpointError, match="has a savepoint already"):
        query.savepoint(folder)
    query.stop(drain=True)
    ids = stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()
    assert len(set(ids)) == len(ids) > 0


def test_draining_commits_all(tmp_path):
    query = start(counted(1_000_000), tmp_path)
    wait_for_a_checkpoint(query)
    query.stop(drain=True)
    assert query.state is JobState.FINISHED
    table = stream_jobs.rows_of(tmp_path / "out")
    ids = sorted(table["id"].to_pylist())
    assert len(set(ids)) == len(ids) > 0


def test_a_finished_job_that_is_started_again_repeats_nothing(tmp_path):
    for _ in range(2):
        query = start(counted(500, rate=None), tmp_path)
        assert query.await_termination(60)
        stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), 500)


def test_only_the_newest_driver_of_a_folder_commits(tmp_path):
    first = start(counted(ROWS), tmp_path)
    wait_for_a_checkpoint(first)
    second = start(counted(ROWS), tmp_path)
    with pytest.raises(errors.CheckpointError, match="another driver runs this job"):
        first.await_termination(60)
    assert second.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_job_that_fails_each_time_is_over_after_its_restarts(tmp_path):
    def fails(batch):
        if batch.num_rows:
            raise ValueError("always")
        return batch

    query = start(stream_jobs.numbers(100).map(fails), tmp_path, restarts=2, restart_delay=0.01)
    with pytest.raises(errors.UserFunctionError, match="always"):
        query.await_termination(60)
    assert query.state is JobState.FAILED
    assert query.status.restarts == 2


def test_without_a_checkpoint_a_failure_ends_the_job_and_commits_nothing(tmp_path):
    stream = counted(ROWS, file=tmp_path / "failed", after=ROWS // 4)
    query = stream.sink(FileSink(str(tmp_path / "out"))).start(parallelism=2)
    with pytest.raises(errors.UserFunctionError, match="planned"):
        query.await_termination(60)
    assert not list((tmp_path / "out").glob("*.parquet"))


def exchange(first, second):
    """Give each of two files or folders the name of the other at once: a job makes a folder that is missing."""
    names = [os.fsencode(path) for path in (first, second)]
    assert ctypes.CDLL(None).renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], EXCHANGE) == 0


@pytest.mark.parametrize("part", ["tasks", "log"])
def test_a_checkpoint_that_cannot_be_written_fails_the_job_unless_tolerated(tmp_path, part):
    folder = tmp_path / "checkpoints"
    query = start(counted(2 * ROWS), tmp_path, tolerable_failures=1000)
    wait_for_a_checkpoint(query)
    other = folder / "other"
    other.touch()
    exchange(folder / part, other)
    wait_until(lambda: any(one.status == "failed" for one in query.status.checkpoints))
    failed = next(one for one in query.status.checkpoints if one.status == "failed")
    assert "cannot be written" in failed.reason
    exchange(folder / part, other)
    assert query.await_termination(60)
    assert query.status.restarts == 0
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), 2 * ROWS)


def test_an_entry_of_a_newer_driver_ends_the_job_however_much_is_tolerated(tmp_path):
    query = start(counted(ROWS), tmp_path, tolerable_failures=1000)
    wait_for_a_checkpoint(query)
    CheckpointStore(str(tmp_path / "checkpoints")).claim()
    with pytest.raises(errors.CheckpointError, match="another driver"):
        query.await_termination(60)
    assert query.status.restarts == 0


class SlowWriter(SinkWriter):
    def write(self, batch):
        pass

    def flush(self, *, end_of_input):
        pass

    def prepare_commit(self, checkpoint):
        return b"something"

    def abort(self):
        pass

    def close(self):
        pass


class Refusing(SlowWriter):
    """A writer whose table cannot take rows."""

    def write(self, batch):
        raise self.error


class Refused(Sink):
    delivery = "exactly_once"

    def __init__(self, error, committer=None):
        self.error, self.committer = error, committer

    def create_writer(self, context, schema=None):
        writer = Refusing() if self.error else SlowWriter()
        writer.error = self.error
        return writer

    def create_committer(self, context):
        return self.committer or SlowCommitter(SlowlyCommitted())


@pytest.mark.parametrize(
    ("error", "restarts"),
    [
        (errors.SchemaMismatchError("planned"), 0),
        (errors.OptionError("planned"), 0),
        (errors.NotBuiltError("planned"), 0),
        (errors.SinkError("planned"), 2),
        (errors.UserFunctionError("planned"), 2),
    ],
)
def test_what_each_attempt_would_meet_again_is_not_tried_again(tmp_path, error, restarts):
    made = stream_jobs.numbers(100).sink(Refused(error))
    folder = str(tmp_path / "checkpoints")
    query = made.start(checkpoint=folder, restarts=2, restart_delay=0.01)
    with pytest.raises(type(error), match="planned"):
        query.await_termination(60)
    assert query.status.restarts == restarts


class Broken:
    """A committer with a bug."""

    def start(self, restored_checkpoint):
        raise KeyError("planned")

    def close(self):
        pass


def test_an_exception_of_a_committer_is_one_of_the_sink(tmp_path):
    made = stream_jobs.numbers(100).sink(Refused(None, Broken()), name="mine")
    with pytest.raises(errors.SinkError, match="the committer of mine failed: KeyError"):
        made.start(checkpoint=str(tmp_path / "checkpoints"))


class SlowlyCommitted(Sink):
    """A sink whose commits take longer than several intervals; it notes how many checkpoints are pending."""

    def __init__(self):
        self.query, self.pending, self.commits, self.begins = None, [], [], []

    delivery = "exactly_once"

    def create_writer(self, context, schema=None):
        return SlowWriter()

    def create_committer(self, context):
        return SlowCommitter(self)


class SlowCommitter(SinkCommitter):
    def __init__(self, sink):
        self.sink = sink

    def start(self, restored_checkpoint):
        pass

    def abort_unknown(self, known, before=None):
        pass

    def close(self):
        pass

    def commit(self, checkpoint, committables):
        query = self.sink.query
        time.sleep(0.2)
        if query is not None:
            known = [one for one in query.status.checkpoints if one.status == "pending"]
            self.sink.pending.append(len(known))
            self.sink.commits.append(int(time.time() * 1000))


def test_one_checkpoint_is_pending_until_its_output_is_committed(tmp_path):
    sink = SlowlyCommitted()
    checkpoint = str(tmp_path / "checkpoints")
    made = stream_jobs.numbers(ROWS, rate=RATE).sink(sink)
    sink.query = query = made.start(checkpoint=checkpoint, interval=0.02, min_pause=0.05)
    assert query.await_termination(60)
    assert len(sink.pending) > 2
    assert set(sink.pending) == {1}
    begun = [one.triggered for one in query.status.checkpoints][-len(sink.commits) :]
    # The last one is not held back by a pause.
    pauses = zip(sink.commits[:-2], begun[1:-1], strict=True)
    assert all(commit + 49 <= begin for commit, begin in pauses)


def test_old_checkpoints_are_deleted(tmp_path):
    query = start(counted(ROWS, file=tmp_path / "failed", after=ROWS // 2), tmp_path, retained=2)
    assert query.await_termination(60)
    folder = tmp_path / "checkpoints"
    assert len(list((folder / "log").iterdir())) <= 2
    assert not (folder / "owners").exists()
    assert len(list((folder / "tasks").iterdir())) <= 2
    manifests = list((folder / "tasks").rglob("*.manifest"))
    # Two for each of the two tasks with state; one more may be of an aborted checkpoint.
    assert 0 < len(manifests) <= 6


def test_state_of_an_operator_that_is_gone_is_refused_unless_dropped(tmp_path):
    query = start(counted(ROWS), tmp_path)
    wait_for_a_checkpoint(query)
    query.stop()

    def other():
        keyed = stream_jobs.numbers(ROWS, rate=RATE).key_by("key")
        return keyed.process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="other")

    with pytest.raises(errors.CheckpointError, match="operators that the job does not have: count"):
        start(other(), tmp_path)
    query = start(other(), tmp_path, allow_dropped_state=True)
    assert query.await_termination(60)


def test_another_number_of_key_groups_is_refused(tmp_path):
    query = start(counted(100, rate=None), tmp_path)
    assert query.await_termination(60)
    with pytest.raises(errors.CheckpointError, match="another number of key groups"):
        start(counted(100, rate=None), tmp_path, max_parallelism=64)


@pytest.mark.soak
def test_a_process_whose_coordinator_dies_ends(tmp_path):
    """The workers read a pipe from their parent, and end with it."""
    script = tmp_path / "driver.py"
    script.write_text(
        "from tests.kit import stream_jobs\n"
        "from headgate.sink import FunctionSink\n"
        "job = stream_jobs.numbers(10**9, rate=1000).key_by('key').process(stream_jobs.Count, schema=stream_jobs.COUNTED)\n"
        "query = job.sink(FunctionSink(lambda b: None)).start(workers=2)\n"
        "query.await_termination(1)\n"
        "pool = query._master._pool\n"
        "print(*[p.pid for p in pool.processes.values()], flush=True)\n"
        "query.await_termination()\n"
    )
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
        text=True,
    ) as driver:
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(pids) == 2
        driver.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_what_a_driver_left_that_died_while_it_wrote_is_deleted(tmp_path):
    query = start(counted(100, rate=None), tmp_path)
    assert query.await_termination(60)
    log = tmp_path / "checkpoints" / "log"
    (log / "0000000001.json.0badf00d.partial").touch()
    (log / "0999999999.json.0badf00d.partial").touch()
    query = start(counted(100, rate=None), tmp_path)
    assert query.await_termination(60)
    assert [one.name for one in log.glob("*.partial")] == ["0999999999.json.0badf00d.partial"]


def test_a_log_that_is_gone_for_a_moment_is_not_taken_for_another_driver(tmp_path):
    store = CheckpointStore(str(tmp_path))
    store.claim()
    (tmp_path / "log").rename(tmp_path / "moved")
    with pytest.raises(errors.CheckpointError, match="is gone") as failed:
        store.latest()
    assert not isinstance(failed.value, FencedError)
    (tmp_path / "moved").rename(tmp_path / "log")
    assert store.latest() is None
