"""The check for leftovers covers Spark's Python workers too."""

import signal
import sys
import time

import pytest
from pyspark import cloudpickle
from tests.kit import processes
from tests.kit.leftovers import Leftovers, of_worker
from tests.kit.waiting import wait_until

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

FORGETFUL = {
    "a socket": ("kept.append(socket.socket())", "2 sockets of worker"),
    "an epoll": ("kept.append(select.epoll())", "eventpoll] of worker"),
    "a thread": (
        "threading.Thread(target=time.sleep, args=(8,), name='headgate-control').start()",
        "thread headgate-control of worker",
    ),
    "a mapping": ("kept.append(mmap.mmap(-1, 4096))", "4096 bytes of /dev/zero (deleted) mapped"),
}


def forget(code):
    """Return a function for mapInArrow that leaks a resource in its worker."""

    def run(batches):
        import sys

        names = ("mmap", "select", "socket", "threading", "time")
        kept = sys.__dict__.setdefault("kept_by_a_test", [])
        exec(code, {"kept": kept, **{name: __import__(name) for name in names}})
        yield from batches

    return run


def clean(batches):
    """Release the resources that a test leaked."""
    import sys
    import time

    sys.__dict__.pop("kept_by_a_test", None)
    time.sleep(0.5)  # so that each worker gets one task
    yield from batches


def in_workers(spark, function, rows):
    return spark.range(0, rows, 1, rows).mapInArrow(function, "id long").collect()


@pytest.mark.parametrize("what", FORGETFUL)
def test_what_a_task_leaves_in_an_idle_worker_is_found(local_cluster, what):
    code, line = FORGETFUL[what]
    in_workers(local_cluster, clean, 4)
    leftovers = Leftovers(spark="live")
    leftovers.check()
    in_workers(local_cluster, forget(code), 1)
    # A thread gets its name a moment after its start.
    wait_until(lambda: any(line in found for found in leftovers.find()), line)
    in_workers(local_cluster, clean, 4)
    leftovers.check(20)


def test_workers_whose_jvm_is_gone_are_found(local_cluster):
    in_workers(local_cluster, clean, 4)
    leftovers = Leftovers(spark="live")
    leftovers.check()
    family = processes.family()
    workers = [process for process in family.values() if process.is_daemon_or_worker]
    executors = [process for process in family.values() if process.kind == "executor"]
    assert len(executors) == 2
    without = {pid: process for pid, process in family.items() if not process.is_java}
    for worker in workers:
        (line,) = of_worker(worker, without)
        assert "pyspark.daemon" in line
        assert line.endswith("whose JVM is gone")
    assert executors[0].signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while executors[0].is_there:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    leftovers.check(30)  # the workers end with their JVM
