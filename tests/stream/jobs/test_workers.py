"""Workers of streaming jobs that stop, are busy, or never say HELLO."""

import ctypes
import os
import signal
import socket

import pytest
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until

from headgate import errors
from headgate.control.address import CoordinatorAddress
from headgate.sink import FileSink, FunctionSink
from headgate.stream.job.local import ProcessWorkers


class Unloadable:
    """A function that no worker can unpickle."""

    def __call__(self, batch):
        return batch

    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise ImportError("planned")


def counted(count, **source):
    return (
        stream_jobs.numbers(count, **source)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED)
    )


def test_a_worker_that_ends_before_its_first_word_fails_the_job(tmp_path):
    job = stream_jobs.numbers(100).map(Unloadable()).sink(FileSink(str(tmp_path / "out")))
    query = job.start(workers=2)
    with pytest.raises(errors.PeerLostError, match="is lost: its process ended with exit code 1"):
        query.await_termination(60)
    assert query.state.is_over


@pytest.mark.soak
def test_a_stopped_worker_is_lost_after_the_timeout(tmp_path):
    job = counted(4000, rate=1000).sink(FileSink(str(tmp_path / "out")))
    query = job.start(
        workers=2,
        parallelism=2,
        checkpoint=str(tmp_path / "checkpoints"),
        interval=0.2,
        heartbeat_timeout=2,
    )
    with query:
        done = lambda: any(one.status == "complete" for one in query.status.checkpoints)  # noqa: E731
        wait_until(done, "a checkpoint is complete", 30)
        os.kill(query._master._pool.processes[1].pid, signal.SIGSTOP)
        wait_until(lambda: query.status.restarts, "the job has started anew", 30)
        assert query.await_termination(60)
        assert query.status.restarts == 1
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), 4000)


def holds_the_lock(batch):
    """Hold the GIL for longer than the timeout of heartbeats, which a library may do."""
    if batch.num_rows and batch["id"][0].as_py() == 0:
        ctypes.PyDLL(None).sleep(8)
    return batch


@pytest.mark.soak
def test_a_function_that_holds_the_lock_is_not_lost(tmp_path):
    job = stream_jobs.numbers(400).map(holds_the_lock).sink(FileSink(str(tmp_path / "out")))
    query = job.start(workers=1, checkpoint=str(tmp_path / "checkpoints"), heartbeat_timeout=4)
    with query:
        assert query.await_termination(120)
        assert query.status.restarts == 0
    assert stream_jobs.rows_of(tmp_path / "out").num_rows == 400


def test_a_job_that_is_refused_leaves_nothing(tmp_path):
    (tmp_path / "file").touch()
    job = counted(10).sink(FileSink(str(tmp_path / "out")))
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - without pathlib's garbage
    with pytest.raises(errors.CheckpointError):
        job.start(checkpoint=str(tmp_path / "file" / "checkpoints"))
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_process_that_never_reached_the_coordinator_ends_with_the_job():
    job = stream_jobs.numbers(10).sink(FunctionSink(print))
    pool = ProcessWorkers(job.plan(), "job", {}, 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    pool.start(0, CoordinatorAddress("127.0.0.1", port, bytes(16), bytes(32), timeout=10_000))
    pool.stop()
    # Not killed: it has seen the end of its standard input.
    assert pool.processes[0].returncode == 1


def test_the_coordinator_of_an_idle_job_sleeps(tmp_path, monkeypatch):
    """It wakes for the figures that workers send each second, and to look whether they live."""
    job = stream_jobs.numbers(10, rate=0.001).sink(FileSink(str(tmp_path / "out")))
    with job.start(checkpoint=str(tmp_path / "checkpoints"), interval="1h") as query:
        loop, wakes = query._master._loop, []
        run_once = loop._run_once

        def elapsed():
            attempt = query._master.attempt
            tasks = [] if attempt is None else attempt.figures.values()
            return max((figures["elapsed_ms"] for figures in tasks), default=0)

        wait_until(elapsed, "the tasks run", 30)
        begin = elapsed()
        monkeypatch.setattr(loop, "_run_once", lambda: (wakes.append(1), run_once()))
        wait_until(lambda: elapsed() >= begin + 2000, "two reports have come", 30)
        assert 2 <= len(wakes) <= 12
