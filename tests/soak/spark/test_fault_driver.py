"""A driver that is stopped for a while, or gone: its workers end with it."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tests.kit.outcomes import rounds
from tests.kit.sessions import SHORT_LIVED
from tests.kit.waiting import wait_until

HEAD = """
import os, sys, threading, time, warnings
from pathlib import Path
from pyspark.sql import SparkSession
from headgate.spark import exchange, last_stats
folder = Path(sys.argv[1])
spark = (SparkSession.builder.master("local-cluster[2,2,1024]").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").config("spark.headgate.memory", "16m")
    .config("spark.driver.extraJavaOptions", JAVA).config("spark.executor.extraJavaOptions", JAVA)
    .getOrCreate())
spark.sparkContext.setLogLevel("OFF")
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
    time.sleep(0.1)  # wait for the driver and both executors, which have the slots
df = spark.range(0, 1000, 1, 2)
def sign():
    (folder / f"worker-{os.getpid()}").touch()
def slow(seconds):
    def work(batches):
        sign()
        for batch in batches:
            time.sleep(seconds)
            yield batch
    return work
def waiting(batches):
    sign()
    yield from batches
def add_up(result):
    try:
        return tuple(result.selectExpr("sum(id)", "count(id)").first())
    except Exception as error:
        text = str(error)
        return text[text.find("[HG-") + 1:][:7] if "[HG-" in text else text[:300]
"""
RIGHT = (sum(range(1000)), 1000)
#: Each test of this file starts a Spark of its own.
pytestmark = pytest.mark.timeout(600)


class Driver:
    """A separate driver and its processes."""

    def __init__(self, body, folder):
        self.folder = folder
        script = folder / "driver.py"
        head = f"JAVA = {SHORT_LIVED!r}\n{HEAD}"
        script.write_text(head + textwrap.dedent(body), encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        )

    @property
    def workers(self):
        return {int(path.name.split("-")[1]) for path in self.folder.glob("worker-*")}

    @property
    def descendants(self):
        """The live processes: this driver, its JVM, its executors, their daemons and workers."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # the process has ended
                after = path.read_text(encoding="utf-8").rpartition(") ")[2].split()
                if after[0] != "Z":
                    parents[int(path.parent.name)] = int(after[1])
        found, new = set(), {self.process.pid}
        while new:
            found |= new
            new = {pid for pid, above in parents.items() if above in new}
        return found

    def wait_for_workers(self, number=2):
        wait_until(lambda: len(self.workers) >= number, "the workers", 300)

    def result(self):
        out, err = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, err[-3000:]
        return out.strip().splitlines()


@pytest.fixture
def driver(tmp_path):
    """Return a function that starts a driver. Its processes are killed after the test."""
    started = []

    def start(body):
        started.append(Driver(body, tmp_path))
        return started[-1]

    yield start
    for driver in started:
        left = driver.descendants | driver.workers
        for pid in left if driver.process.poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.process.kill()
        driver.process.wait(10)


def is_running(pid):
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False


@pytest.mark.parametrize("whole", [False, True], ids=lambda whole: "whole" if whole else "python")
def test_a_driver_that_is_stopped_for_5_seconds(driver, whole):
    one = driver("""
    print(add_up(exchange(df, by="id", num_partitions=2, map=slow(8), reduce=waiting, schema=df.schema)))
    spark.stop()
    """)
    one.wait_for_workers()
    time.sleep(1)
    stopped = {one.process.pid} | (children(one) if whole else set())
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(5)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    assert one.result() == [str(RIGHT)]


def children(driver):
    text = Path(f"/proc/{driver.process.pid}/task/{driver.process.pid}/children").read_text("ascii")
    return set(map(int, text.split()))


@pytest.mark.parametrize(
    "how", rounds(["killed"], ["killed", "killed with its java", "leaving", "ending"])
)
def test_a_driver_that_is_gone_leaves_no_process_behind(driver, how):
    one = driver("""
    result = exchange(df, by="id", num_partitions=2, map=slow(600), reduce=waiting, schema=df.schema)
    threading.Thread(target=lambda: result.count(), daemon=True).start()
    while not (folder / "leave").exists() and not (folder / "end").exists():
        time.sleep(0.05)
    if (folder / "leave").exists():
        os._exit(0)
    """)
    one.wait_for_workers()
    time.sleep(1)
    left = one.descendants | one.workers
    assert len(left) >= 6  # driver, java, two executors, at least one daemon and worker
    if how == "leaving":
        (one.folder / "leave").touch()
    elif how == "ending":
        (one.folder / "end").touch()
    else:
        java = children(one) if how == "killed with its java" else set()
        for pid in {one.process.pid} | java:
            os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    workers = one.workers
    wait_until(lambda: not any(map(is_running, workers)), "no worker runs", 20)
    seconds = time.monotonic() - started
    wait_until(lambda: not any(map(is_running, left)), f"none of {left} runs", 30)
    print(f"{how}: workers ended within {seconds:.1f} s, all {len(left)} processes within")
    print(f"{time.monotonic() - started:.1f} s")
