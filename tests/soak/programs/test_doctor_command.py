"""The command ``python -m headgate doctor``, as scripts run it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MASTER = "local-cluster[2,1,1024]"
LIMIT = 400

pytestmark = pytest.mark.timeout(LIMIT + 100)


def environ(folder, **changes):
    """Return the environment of a command that keeps its files in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "HADOOP_CONF_DIR"}
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder), "TMPDIR": str(folder)}
    return {**kept, **own, "PYSPARK_PYTHON": sys.executable, **changes}


def started(folder, *words, **changes):
    return session(folder, "-m", "headgate", "doctor", *words, **changes)


@contextlib.contextmanager
def session(folder, *words, **changes):
    """Yield a process of Python in a session of its own, of which nothing is left at the end."""
    command = [sys.executable, *words]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environ(folder, **changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            kill(process)


def kill(process):
    """Kill what is left of a session. Its process group is too little: Spark's Python workers have their own."""
    end = time.monotonic() + 60
    while left := group(process.pid):
        assert time.monotonic() < end, left
        for one in map(int, left):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        process.poll()  # a child that nobody has waited for stays in its session
        time.sleep(0.1)


def run(folder, *words, **changes):
    """Return the exit code and the report."""
    with started(folder, *words, "--json", "--seconds", "600", **changes) as process:
        out, err = process.communicate(timeout=LIMIT)
        wait_for_the_end_of(process.pid)
    assert process.returncode in {0, 1, 2}, err
    return process.returncode, json.loads(out)


def wait_for_the_end_of(leader):
    """Wait until no process of a session is left: the JVM of a driver ends after its Python."""
    end = time.monotonic() + 60
    while left := group(leader):
        assert time.monotonic() < end, left
        time.sleep(0.1)


def group(leader):
    """Return the processes of a session."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "-s", str(leader)], check=False, capture_output=True, text=True
    )
    return found.stdout.split()


def by_check(report):
    return {one["check"]: one for one in report["findings"]}


def test_a_cluster_of_two_executors(tmp_path):
    code, report = run(tmp_path, "--master", MASTER, "--conf", "spark.headgate.memory=16m")
    found = by_check(report)
    assert (report["schema_version"], report["exit_code"]) == (1, code)
    assert code < 2, report
    assert report["executors"] == 2
    assert found["pairs"]["summary"] == "2 of 2 pairs reach each other"
    assert "2 pairs within a host; the slowest, " in found["speed"]["summary"]
    assert "16.0 MiB" in found["memory"]["summary"] or "16 MiB" in found["memory"]["summary"]


def test_executors_that_lack_headgate(tmp_path):
    bare = Path(sys.base_prefix, "bin", f"python3.{sys.version_info[1]}")
    code, report = run(tmp_path, "--master", MASTER, PYSPARK_PYTHON=str(bare))
    assert code == 2
    assert by_check(report)["headgate"]["code"] == "HG-1102"


def test_spark_that_does_not_start(tmp_path):
    code, report = run(tmp_path, "--master", "yarn")
    (found,) = report["findings"]
    assert (code, found["code"], found["level"]) == (2, "HG-1205", "fail")
    assert found["remedy"]


def test_ctrl_c_ends_it_and_leaves_no_process_and_no_file(tmp_path):
    with started(tmp_path, "--master", MASTER) as process:
        wait_for_a_worker_of(process)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 130, err
        assert "interrupted" in err
        assert not out
        wait_for_the_end_of(process.pid)
    assert not [path for path in tmp_path.rglob("*headgate*") if "work" not in path.parts]


#: As the doctor's command: a child in a process group of its own, which does not end with its parent.
WITH_A_CHILD = """
import os, time
if os.fork() == 0:
    os.setpgid(0, 0)
# One call for a whole line: print() has two, between which the other process writes.
os.write(1, f"{os.getpid()}\\n".encode())
time.sleep(3600)
"""


def test_a_command_that_these_tests_give_up_leaves_no_process(tmp_path):
    with session(tmp_path, "-c", WITH_A_CHILD) as process:
        found = {process.stdout.readline().strip() for _ in range(2)}
        assert set(group(process.pid)) == found
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=0)
    assert group(process.pid) == []


def wait_for_a_worker_of(process):
    """Wait until an executor runs a Python worker."""
    end = time.monotonic() + LIMIT
    while not commands(process.pid):
        assert time.monotonic() < end, "no executor runs a Python worker"
        assert process.poll() is None
        time.sleep(0.05)


def commands(leader):
    """Return the commands of the Python workers of a session."""
    found = subprocess.run(
        ["ps", "-o", "args=", "-s", str(leader)], check=False, capture_output=True, text=True
    )
    return [line for line in found.stdout.splitlines() if "pyspark.daemon" in line]
