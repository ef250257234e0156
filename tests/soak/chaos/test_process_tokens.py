"""Processes are found by their mark, and a signal never reaches a later process with the pid."""

import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace

import pytest
from tests.kit import processes
from tests.kit.waiting import wait_until


@pytest.fixture
def sleeper():
    """Yield a process with a mark of its own, found by that mark."""
    mark = uuid.uuid4().hex
    started = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(100)"],
        env={**os.environ, processes.MARK: mark},
    )
    yield mark, started
    started.kill()
    started.wait()


def test_a_process_is_found_by_its_mark_alone(sleeper):
    mark, started = sleeper
    assert [p.pid for p in processes.marked(mark)] == [started.pid]
    assert not processes.marked(uuid.uuid4().hex)


def test_a_stopped_process_is_killed(sleeper):
    mark, _ = sleeper
    (process,) = processes.marked(mark)
    assert process.signal(signal.SIGSTOP)
    wait_until(lambda: processes.marked(mark)[0].is_stopped)
    processes.kill_all(mark)
    assert not processes.marked(mark)
    assert not process.is_there


def test_another_process_of_the_same_number_is_not_signalled(sleeper):
    mark, started = sleeper
    (process,) = processes.marked(mark)
    earlier = replace(process, started=process.started - 1)
    assert not earlier.signal(signal.SIGKILL)
    assert started.poll() is None
