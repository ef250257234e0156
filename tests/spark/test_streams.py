"""Streaming jobs on Spark: each row is committed once, whatever ends the workers."""

import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from pyspark import cloudpickle
from tests.kit import stream_jobs
from tests.kit.masters import HAS_SHARES, in_executors
from tests.kit.spark_jobs import (
    ROWS,
    check,
    counted,
    signed,
    start,
    wait_for_rows,
)
from tests.kit.waiting import wait_until

from headgate import errors
from headgate.sink import FileSink, FunctionSink
from headgate.stream import JobState

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SLOTS = 4


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"workers": 1}, marks=pytest.mark.soak),
        {"workers": 3, "parallelism": 3},
        pytest.param(
            {"workers": 8, "parallelism": 4},
            marks=pytest.mark.skipif(not HAS_SHARES, reason="needs shares of a core"),
        ),
    ],
)
def test_counts_are_those_of_a_batch(spark, tmp_path, options):
    query = start(counted(), spark, tmp_path, **options)
    assert query.await_termination(120)
    assert query.state is JobState.FINISHED
    check(spark, tmp_path)


@in_executors
def test_workers_are_spread_over_executors(spark, tmp_path):
    query = start(counted(folder=tmp_path), spark, tmp_path, workers=2)
    assert query.await_termination(120)
    assert len({daemon for _, daemon in signed(tmp_path)}) == 2


def test_a_job_goes_on_with_other_workers(spark, tmp_path):
    query = start(counted(folder=tmp_path), spark, tmp_path, workers=2)
    with query:
        wait_for_rows(query, tmp_path)
        query.rescale(3, workers=1)
        assert query.await_termination(120)
        assert (query.state, len(query.status.tasks) % 3) == (JobState.FINISHED, 0)
    check(spark, tmp_path)


def test_a_killed_worker_costs_time_and_no_rows(spark, tmp_path):
    query = start(counted(folder=tmp_path), spark, tmp_path)
    with query:
        wait_for_rows(query, tmp_path)
        worker, _ = max(signed(tmp_path))
        os.kill(worker, signal.SIGKILL)
        assert query.await_termination(120)
        assert query.status.restarts >= 1
    check(spark, tmp_path)


@pytest.mark.soak
def test_a_worker_may_be_killed_more_often_than_spark_tries_a_task(spark, tmp_path):
    query = start(counted(2 * ROWS, folder=tmp_path), spark, tmp_path, workers=2, restarts=10)
    with query:
        for failures in range(1, 4):
            wait_until(lambda: query.state is JobState.RUNNING, "the job runs", 60)
            wait_until(lambda: _alive(tmp_path), "a worker has signed", 60)
            os.kill(max(_alive(tmp_path)), signal.SIGKILL)
            _wait_for_restarts(query, failures)
        assert query.await_termination(120)
    check(spark, tmp_path, 2 * ROWS)


def _wait_for_restarts(query, number):
    wait_until(lambda: query.status.restarts >= number, "the job has started anew", 60)


def _alive(folder):
    return [worker for worker, _ in signed(folder) if os.path.exists(f"/proc/{worker}")]  # noqa: PTH110


@pytest.mark.soak
def test_a_stopped_worker_is_lost_after_the_timeout(spark, tmp_path):
    query = start(counted(folder=tmp_path), spark, tmp_path, heartbeat_timeout=3)
    with query:
        wait_for_rows(query, tmp_path)
        os.kill(max(_alive(tmp_path)), signal.SIGSTOP)
        assert query.await_termination(120)
        assert query.status.restarts >= 1
    check(spark, tmp_path)


def test_a_function_that_fails_costs_time_and_no_rows(spark, tmp_path):
    stream = counted(file=tmp_path / "failed", after=ROWS // 4)
    query = start(stream, spark, tmp_path)
    assert query.await_termination(120)
    assert query.status.restarts == 1
    check(spark, tmp_path)


def test_an_error_of_a_function_is_raised_with_its_traceback(spark, tmp_path):
    job = stream_jobs.numbers(100).map(breaks, name="breaks").sink(FunctionSink(print))
    with pytest.raises(errors.UserFunctionError, match="map of breaks failed") as failed:
        job.start(spark=spark).await_termination(60)
    assert "in breaks" in failed.value.cause_text


def breaks(batch):
    return 1 // 0 if batch.num_rows else batch


class Unloadable:
    """A function that no worker can unpickle."""

    def __call__(self, batch):
        return batch

    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise ImportError("planned")


def test_a_job_that_no_worker_can_load_fails_with_the_cause(spark):
    job = stream_jobs.numbers(100).map(Unloadable()).sink(FunctionSink(print))
    with pytest.raises(errors.InternalError, match="ImportError: planned"):
        job.start(spark=spark).await_termination(60)


def test_a_savepoint_is_restored_with_another_parallelism(spark, tmp_path):
    query = start(counted(), spark, tmp_path, parallelism=2)
    stream_jobs.wait_for_a_checkpoint(query, 1)
    point = query.stop(savepoint=str(tmp_path / "savepoint"))
    assert query.state is JobState.STOPPED
    again = start(
        counted(),
        spark,
        tmp_path,
        parallelism=3,
        workers=2,
        savepoint=point,
        checkpoint=str(tmp_path / "others"),
    )
    assert again.await_termination(120)
    check(spark, tmp_path)


@pytest.mark.soak
def test_of_two_drivers_the_later_one_goes_on(spark, tmp_path):
    first = start(counted(2 * ROWS), spark, tmp_path, workers=1, name="same")
    stream_jobs.wait_for_a_checkpoint(first, 1)
    second = start(counted(2 * ROWS), spark, tmp_path, workers=1, name="same")
    with pytest.raises(errors.CheckpointError, match="another driver runs this job"):
        first.await_termination(60)
    assert second.await_termination(120)
    check(spark, tmp_path, 2 * ROWS)


@pytest.mark.soak
@pytest.mark.skipif(not HAS_SHARES, reason="needs shares of a core")
def test_workers_leave_slots_to_other_jobs(spark, tmp_path):
    # Its rows come for ten times as long as the other job takes.
    with start(counted(10 * ROWS), spark, tmp_path, workers=8, parallelism=4) as query:
        stream_jobs.wait_for_a_checkpoint(query, 1)
        assert spark.range(0, 100, 1, SLOTS).count() == 100
        assert query.state is JobState.RUNNING


@pytest.mark.skipif(not HAS_SHARES, reason="needs shares of a core")
def test_too_many_workers_for_shares_are_refused(spark):
    job = counted().sink(FunctionSink(print))
    with pytest.raises(errors.NotEnoughSlots, match="here 41; the cluster has 4") as refused:
        job.start(spark=spark, workers=41)
    assert "workers=40" in refused.value.remedy
    assert refused.value.details == {"needed": 5, "slots": SLOTS}


def test_more_workers_than_slots_are_refused(spark, whole_slots):
    job = counted().sink(FunctionSink(print))
    with pytest.raises(errors.NotEnoughSlots, match="here 5; the cluster has 4") as refused:
        job.start(spark=spark, workers=5)
    assert "workers=4" in refused.value.remedy
    assert refused.value.details == {"needed": 5, "slots": SLOTS}


def test_the_slots_of_other_streaming_jobs_are_taken(spark, tmp_path, whole_slots):
    with start(counted(10 * ROWS), spark, tmp_path, workers=3) as query:
        stream_jobs.wait_for_a_checkpoint(query, 1)
        assert query._master._pool.size == 3
        job = counted().sink(FunctionSink(print))
        with pytest.raises(errors.NotEnoughSlots, match="here 2") as refused:
            job.start(spark=spark, workers=2)
        assert "3 workers of other streaming jobs" in refused.value.have


def test_a_job_that_waits_for_slots_can_be_cancelled(spark, tmp_path, whole_slots):
    folder = str(tmp_path)

    def holds(numbers):
        from pathlib import Path

        for number in numbers:
            Path(folder, f"holds-{number}").touch()
            while not Path(folder, "end").exists():
                time.sleep(0.05)
            yield number

    def others():
        spark.sparkContext.parallelize(range(SLOTS), SLOTS).mapPartitions(holds).count()

    thread = threading.Thread(target=others)
    thread.start()
    try:
        held = lambda: len(list(tmp_path.glob("holds-*"))) == SLOTS  # noqa: E731
        wait_until(held, "all slots are held", 60)
        query = start(counted(), spark, tmp_path, workers=2)
        assert not query.await_termination(1)
        assert query.state is JobState.STARTING
        query.cancel()
        assert query.state is JobState.CANCELLED
        assert len(list(spark.sparkContext.statusTracker().getActiveJobsIds())) == 1
    finally:
        (tmp_path / "end").touch()
        thread.join()


def test_connections_can_be_encrypted(spark, tmp_path):
    options = {"tls": "require", "same_host_link": "off"}
    query = start(counted(), spark, tmp_path, workers=2, options=options)
    with query:
        stream_jobs.wait_for_a_checkpoint(query, 1)
        peers = list(query._master._workers._peers.values())
        assert [one._link.tls is not None for one in peers] == [True, True]
        assert query.await_termination(120)
        assert query.status.restarts == 0
    check(spark, tmp_path)


def test_options_come_from_the_confs_of_the_session(spark):
    from headgate.spark.streams.start import _environment

    found = _environment(spark, {"segment_size": "32k"})
    assert found["memory"] == 16 << 20
    assert found["segment_size"] == 32 << 10
    assert found["buffer_timeout"] == "5ms"
    with pytest.raises(errors.OptionError, match="memroy"):
        _environment(spark, {"memroy": "1m"})


@pytest.mark.parametrize(
    ("options", "message"),
    [({"workers": 0}, "workers=0 is less than 1"), ({"options": {"tlss": "off"}}, "tlss")],
)
def test_wrong_options_are_refused_at_once(spark, options, message):
    job = counted().sink(FunctionSink(print))
    with pytest.raises(errors.OptionError, match=message):
        job.start(spark=spark, **options)


def test_a_session_of_connect_is_refused():
    kind = type("SparkSession", (SimpleNamespace,), {"__module__": "pyspark.sql.connect.session"})
    job = counted().sink(FunctionSink(print))
    with pytest.raises(errors.NotBuiltError, match="Spark Connect"):
        job.start(spark=kind())


def test_a_sink_that_a_worker_cannot_reach_fails_the_job(spark, tmp_path):
    (tmp_path / "out").write_text("no folder")
    job = counted().sink(FileSink(str(tmp_path / "out")))
    with pytest.raises(errors.HeadgateError):
        job.start(spark=spark).await_termination(60)
