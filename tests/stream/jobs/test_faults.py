"""Jobs that fail at an inconvenient moment: while they stop, commit, restore, or take a savepoint."""

import errno
import threading
from functools import wraps

import pytest
from tests.kit import stream_jobs

from headgate import errors
from headgate.control.cause import Cause
from headgate.sink import FileSink
from headgate.stream import JobState, Snapshot, read_savepoint
from headgate.stream.job.commits import SinkCommits
from headgate.stream.job.deployment import Deployment
from headgate.stream.job.master import JobMaster
from headgate.stream.job.store import CheckpointStore
from headgate.stream.runtime.task import StreamTask


def start(stream, tmp_path, **options):
    sink = FileSink(str(tmp_path / "out"))
    settings = {"parallelism": 2, "checkpoint": str(tmp_path / "checkpoints"), "interval": 0.05}
    return stream.sink(sink, name="files").start(**{**settings, **options})


def test_a_second_failure_before_the_restart_does_not_restore_under_the_next_attempt(
    tmp_path, monkeypatch
):
    """A restore removes staged rows that no checkpoint names, so none may run beside an attempt."""
    running = []
    commits = []
    restore = SinkCommits.restore

    def watched(self, restored, attempt):
        commits.append([attempt for attempt in running if not attempt.is_over])
        if len(commits) == 1:
            return restore(self, restored, attempt)
        master = query._master
        if len(commits) == 2:
            # Another failure arrives while the restore is at work.
            master.call(lambda: master.fail(Cause.of(ValueError("one more"))))
            done = threading.Event()
            master.call(done.set)
            assert done.wait(30)
        return restore(self, restored, attempt)

    monkeypatch.setattr(SinkCommits, "restore", watched)
    deployed = JobMaster._deploy

    def deploy(self, restored):
        deployed(self, restored)
        running.append(self.attempt)

    monkeypatch.setattr(JobMaster, "_deploy", deploy)
    stream = stream_jobs.numbers(4000, rate=4000).map(
        stream_jobs.FailOnce(tmp_path / "failed", 500), name="fails"
    )
    query = start(stream, tmp_path, restart_delay=0.0)
    assert query.await_termination(60)
    assert commits == [[]] * len(commits)
    assert len(commits) == 2
    assert sorted(stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()) == list(range(4000))


def running(tmp_path, rows=1_000_000, **options):
    """Return a job that runs until it is stopped, with a complete checkpoint."""
    keyed = (
        stream_jobs.numbers(rows, rate=4000)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED)
    )
    query = start(keyed, tmp_path, restart_delay=0.0, **options)
    wait_for(query, lambda: any(one.status == "complete" for one in query.status.checkpoints))
    return query


def wait_for(query, found):
    while not found():
        assert not query.await_termination(0.005)


def once(monkeypatch, owner, name, fault, *, after=False, which=lambda *_: True):
    """Let a method raise what ``fault`` makes at its next call of some arguments, before or after its work."""
    call = getattr(owner, name)
    left = [1]

    @wraps(call)
    def failing(*args, **kwargs):
        if not (left and which(*args)):
            return call(*args, **kwargs)
        left.pop()
        if after:
            call(*args, **kwargs)
        # A new one: its traceback keeps what the frames hold.
        raise fault()

    kind = staticmethod if isinstance(owner.__dict__[name], staticmethod) else lambda f: f
    monkeypatch.setattr(owner, name, kind(failing))


def check_ids(tmp_path):
    """Check that the committed rows are a range, each there once; return their number."""
    ids = stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()
    assert len(set(ids)) == len(ids) > 0
    return len(ids)


def full():
    return OSError(errno.ENOSPC, "planned")


def test_a_savepoint_to_stop_with_that_fails_is_told_and_the_job_goes_on(tmp_path, monkeypatch):
    query = running(tmp_path)
    once(monkeypatch, Snapshot, "write", full, which=lambda _, folder: "/savepoint/" in folder.path)
    with pytest.raises(errors.CheckpointError, match="was given up: the snapshot of"):
        query.stop(savepoint=str(tmp_path / "savepoint"), timeout=30)
    assert query.state is JobState.RUNNING
    complete = len(query.status.checkpoints)
    wait_for(query, lambda: len(query.status.checkpoints) > complete + 1)
    query.stop(savepoint=str(tmp_path / "savepoint-2"), timeout=30)
    assert query.state is JobState.STOPPED
    check_ids(tmp_path)


def test_a_savepoint_that_is_there_is_told_and_the_job_goes_on(tmp_path):
    query = running(tmp_path)
    folder = query.savepoint(str(tmp_path / "savepoint"))
    with pytest.raises(errors.CheckpointError, match="has a savepoint already"):
        query.stop(savepoint=folder, timeout=30)
    query.stop(timeout=30)
    check_ids(tmp_path)


def test_a_job_that_is_drained_ends_without_the_savepoint_that_failed(tmp_path, monkeypatch):
    query = running(tmp_path)
    once(monkeypatch, CheckpointStore, "write_savepoint", lambda: errors.CheckpointError("planned"))
    with pytest.raises(errors.CheckpointError, match="planned"):
        query.stop(savepoint=str(tmp_path / "savepoint"), drain=True, timeout=30)
    assert query.await_termination(60)
    assert query.state is JobState.FINISHED
    check_ids(tmp_path)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (CheckpointStore, "complete"),
        (SinkCommits, "commit"),
        (StreamTask, "_finish"),
    ],
)
def test_a_failure_while_a_job_stops_with_a_savepoint_stops_it_once(
    tmp_path, monkeypatch, owner, name, after
):
    # Without other checkpoints, whose failure would come first.
    query = running(tmp_path)
    begin = query._master._begin_stop

    def begin_stop(attempt):
        once(monkeypatch, owner, name, lambda: ValueError("planned"), after=after)
        query._master._begin_stop = begin
        return begin(attempt)

    query._master._begin_stop = begin_stop
    folder = query.stop(savepoint=str(tmp_path / "savepoint"), timeout=30)
    assert query.state is JobState.STOPPED
    before = check_ids(tmp_path)
    again = running(tmp_path)
    again.stop(timeout=30)
    assert check_ids(tmp_path) > before
    state = read_savepoint(folder)["count"]
    assert sum(state["value"].to_pylist()) == before


def test_a_savepoint_that_waits_for_a_checkpoint_is_given_up_with_the_attempt(
    tmp_path, monkeypatch
):
    """Nobody waits for an answer that never comes."""
    query = running(tmp_path)
    held = threading.Event()
    write = Snapshot.write

    def slow(self, folder):
        assert held.wait(60)
        return write(self, folder)

    monkeypatch.setattr(Snapshot, "write", slow)
    wait_for(query, lambda: query.status.checkpoints[-1].status == "pending")
    master, path = query._master, str(tmp_path / "savepoint")
    answer = master.request(JobState.RUNNING, path)
    again = master.request(JobState.RUNNING, path)
    with pytest.raises(errors.CheckpointError, match="is being taken"):
        again.result(30)
    master.call(lambda: master.fail(Cause.of(ValueError("planned"))))
    with pytest.raises(errors.CheckpointError, match=r"was given up: .*planned"):
        answer.result(30)
    held.set()
    query.stop(timeout=30)
    check_ids(tmp_path)


def test_a_snapshot_that_cannot_be_acknowledged_is_declined(tmp_path, monkeypatch):
    query = running(tmp_path, tolerable_failures=3)
    told = Deployment._tell

    def too_large(self, kind, **fields):
        if kind == "ACKNOWLEDGED" and not failed:
            failed.append(fields["checkpoint"])
            raise errors.ProtocolError("planned: too large")
        return told(self, kind, **fields)

    failed = []
    monkeypatch.setattr(Deployment, "_tell", too_large)
    wait_for(query, lambda: any(one.status == "failed" for one in query.status.checkpoints))
    wrong = next(one for one in query.status.checkpoints if one.status == "failed")
    assert "planned: too large" in wrong.reason
    query.stop(timeout=30)
    check_ids(tmp_path)
