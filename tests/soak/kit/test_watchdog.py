"""A test that hangs fails soon, with the stacks of all its processes."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

CONFTEST = "from tests.kit.watchdog import pytest_runtest_protocol\n"

HANGING = """
import ctypes
import os
import signal
import time

import pytest


def hang_in_the_child():
    time.sleep(300)


def hang_in_the_parent():
    time.sleep(300)


@pytest.mark.timeout(16)
def test_that_hangs():
    child = os.fork()
    if child == 0:
        hang_in_the_child()
        os._exit(0)
    try:
        hang_in_the_parent()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def hang_with_pythons_lock():
    mutex = ctypes.create_string_buffer(64)
    libc = ctypes.PyDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)  # no signal ends this one


@pytest.mark.timeout(4)
def test_that_holds_the_lock():
    hang_with_pythons_lock()


def test_after_it():
    assert True
"""


def run_pytest(folder, *arguments):
    """Run pytest on a folder of its own; return its exit code and its output."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_hanging.py").write_text(HANGING)
    options = ["-p", "no:cacheprovider", "-o", f"pythonpath={ROOT}", "--import-mode=importlib"]
    command = [sys.executable, "-m", "pytest", *options, *arguments, "test_hanging.py"]
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    environment.pop("HEADGATE_TEST_MARK", None)
    # A process that the run leaves behind would keep a pipe open, so this uses a file.
    with (folder / "said.txt").open("w+") as said:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=said, stderr=said, timeout=80, check=False
        )
        said.seek(0)
        return done.returncode, said.read()


def test_a_hang_is_reported_with_the_stacks_of_parent_and_forked_child(tmp_path):
    started = time.monotonic()
    code, said = run_pytest(tmp_path, "-k", "that_hangs or after_it")
    assert code == 1, said
    assert "1 failed, 1 passed" in said
    assert "it hangs: not done after 12 s" in said
    assert said.count("hang_in_the_child (test_hanging.py") >= 1, said
    assert said.count("hang_in_the_parent (test_hanging.py") >= 1, said
    assert time.monotonic() - started < 90


def test_a_test_that_holds_pythons_lock_for_ever_is_ended_with_its_stack(tmp_path):
    # pytest-timeout cannot end this test, as no Python code runs to handle its signal.
    code, said = run_pytest(tmp_path, "-k", "holds_the_lock or after_it")
    assert code < 0, said
    assert "answers no signal" in said
    assert "hang_with_pythons_lock (test_hanging.py" in said
