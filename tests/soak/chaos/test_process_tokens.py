"""Processes are found by their token, and a signal never reaches a later process with the pid."""

import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace

import pytest
from tests.soak.chaos import remains


@pytest.fixture
def sleeper():
    """Yield a process with a token of its own, found by that token."""
    token = uuid.uuid4().hex
    started = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(100)"],
        env={**os.environ, remains.TOKEN: token},
    )
    yield token, started
    started.kill()
    started.wait()


def test_a_process_is_found_by_its_token_alone(sleeper):
    token, started = sleeper
    assert [p.pid for p in remains.of(token)] == [started.pid]
    assert not remains.of(uuid.uuid4().hex)


def test_a_stopped_process_is_left_behind_until_it_is_killed(sleeper):
    token, _ = sleeper
    (process,) = remains.of(token)
    assert process.signal(signal.SIGSTOP)
    end = time.monotonic() + 10
    while not remains.left_behind(token):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert "is stopped" in remains.left_behind(token)[0]
    remains.kill_all(token)
    assert not remains.left_behind(token)
    assert not process.is_there


def test_another_process_of_the_same_number_is_not_signalled(sleeper):
    token, started = sleeper
    (process,) = remains.of(token)
    earlier = replace(process, started=process.started - 1)
    assert not earlier.signal(signal.SIGKILL)
    assert started.poll() is None
