"""Jobs with stages that have processes of their own, by the process that has handled each row."""

import os
import signal
import threading

import pyarrow as pa
import pytest
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until

from headgate.errors import StreamError
from headgate.sink import FileSink, FunctionSink

KEYED = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("at", pa.timestamp("ms"))])
WHERE = pa.schema([*KEYED, ("before", pa.int64()), ("in", pa.int64())])


def before(batch):
    return batch.append_column("before", pa.array([os.getpid()] * batch.num_rows, pa.int64()))


def called(row):
    return {**row, "in": os.getpid()}


def behind(batch):
    return batch.append_column("behind", pa.array([os.getpid()] * batch.num_rows, pa.int64()))


def job(rows, folder, **options):
    """Return a job whose rows say in which process of three stages they were; the last one counts by key."""
    rows = rows.map(before, name="before")
    rows = rows.map_async(called, schema=WHERE, name="calls", in_flight=8, ordered=False, **options)
    rows = rows.key_by("key").map(behind, name="behind")
    return rows.sink(FileSink(str(folder / "out")), name="files")


def processes(folder):
    table = stream_jobs.rows_of(folder / "out")
    return [set(table[name].to_pylist()) for name in ("before", "in", "behind")]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stage_has_processes_that_run_no_other(tmp_path, workers):
    rows = stream_jobs.numbers(2000)
    started = job(rows, tmp_path, workers=2, resources={"gpu": 1})
    with started.start(parallelism=2, workers=workers) as query:
        assert query.await_termination(60)
        notices = query.status.notices
    first, inside, last = processes(tmp_path)
    assert len(inside) == 2
    assert not inside & (first | last)
    assert first == last if workers else first == last == {os.getpid()}
    assert len(first) == max(1, workers)
    assert sorted(stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()) == [*range(2000)]
    assert any("has 2 workers of its own; gpu=1 of each is a label" in notice for notice in notices)


def test_a_worker_of_a_stage_that_is_killed_costs_time_and_no_rows(tmp_path):
    rows = stream_jobs.numbers(1500, rate=1000)
    options = {"checkpoint": str(tmp_path / "checkpoints"), "interval": 0.2, "parallelism": 2}
    with job(rows, tmp_path, workers=1).start(**options) as query:
        stream_jobs.wait_for_a_checkpoint(query)
        pids = [worker.pid for worker in query.status.workers if worker.pid != os.getpid()]
        assert len(pids) == 1
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: query.status.restarts, "the job has started anew", 30)
        assert query.await_termination(60)
        assert "was killed by signal 9" in query.status.failures[0].summary
    assert sorted(stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()) == [*range(1500)]
    _, processes_of_calls, last = processes(tmp_path)
    assert pids[0] in processes_of_calls
    assert len(processes_of_calls) == 2
    assert last == {os.getpid()}


@pytest.mark.soak
def test_rescale_keeps_the_workers_of_a_stage(tmp_path):
    rows = stream_jobs.numbers(2000, rate=1000)
    options = {"checkpoint": str(tmp_path / "checkpoints"), "interval": 0.2, "parallelism": 1}
    with job(rows, tmp_path, workers=1).start(**options) as query:
        stream_jobs.wait_for_a_checkpoint(query, 1)
        query.rescale(3, workers=2)
        assert query._master._pool.size == 3
        assert query.await_termination(60)
    assert sorted(stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()) == [*range(2000)]


def test_a_function_that_no_process_can_get_is_refused(tmp_path):
    lock = threading.Lock()
    rows = stream_jobs.numbers(10).map(lambda batch: batch.slice(0 if lock else 1))
    started = rows.map_async(called, schema=KEYED, workers=1).sink(FunctionSink(print))
    with pytest.raises(StreamError, match="cannot be sent to other processes") as refused:
        started.start()
    assert "no workers= for threads" in refused.value.remedy
