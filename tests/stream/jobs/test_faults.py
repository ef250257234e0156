"""Jobs that fail at an inconvenient moment: while they stop, commit, restore, or take a savepoint."""

import threading

import kit

from headgate.control.cause import Cause
from headgate.sink import FileSink
from headgate.stream.job.commits import SinkCommits
from headgate.stream.job.master import JobMaster


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

    def watched(self, restored):
        commits.append([attempt for attempt in running if not attempt.is_over])
        if len(commits) == 1:
            return restore(self, restored)
        master = query._master
        if len(commits) == 2:
            # Another failure arrives while the restore is at work.
            master.call(lambda: master._fail(Cause.of(ValueError("one more"))))
            done = threading.Event()
            master.call(done.set)
            assert done.wait(30)
        return restore(self, restored)

    monkeypatch.setattr(SinkCommits, "restore", watched)
    deployed = JobMaster._deploy

    def deploy(self, restored):
        deployed(self, restored)
        running.append(self._attempt)

    monkeypatch.setattr(JobMaster, "_deploy", deploy)
    stream = kit.numbers(4000, rate=4000).map(kit.FailOnce(tmp_path / "failed", 500), name="fails")
    query = start(stream, tmp_path, restart_delay=0.0)
    assert query.await_termination(60)
    assert commits == [[]] * len(commits)
    assert len(commits) == 2
    assert sorted(kit.rows_of(tmp_path / "out")["id"].to_pylist()) == list(range(4000))
