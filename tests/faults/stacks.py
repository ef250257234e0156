"""The stacks of all processes of a test as text: py-spy's of Python, jstack's of a JVM."""

import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

from tests.faults import facts, processes

#: Seconds for one attempt at one process.
PATIENCE = 20
#: Processes looked at side by side.
SIDE_BY_SIDE = 4


def of_test(pid, value):
    """Return the stacks of a test run: of process ``pid`` and of its family with this mark."""
    there = [processes.read(pid), *processes.family(pid, value).values()]
    there = [process for process in there if process is not None and process.pid != os.getpid()]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return "\n\n".join(pool.map(of_process, there))


def of_process(process):
    """Return the stacks of one process, or why there are none."""
    if process.is_java:
        attempts = [["jstack", "-l", str(process.pid)]]
    else:
        tool = facts.py_spy() or "py-spy"
        plain = [tool, "dump", "--pid", str(process.pid)]
        # Without native frames where the machine does not allow them.
        attempts = [[*plain, "--native"], plain]
    said = []
    for command in attempts:
        done, text = _run(command)
        if done:
            return f"=== {process}\n{text}"
        said.append(text)
    if process.is_java:
        os.kill(process.pid, signal.SIGQUIT)
        said.append("asked the JVM by SIGQUIT: its threads are in its own output")
    return f"=== {process}: no stacks\n" + "\n".join(said)


def _run(command):
    if shutil.which(command[0]) is None:
        return False, f"{command[0]} is not installed"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"{command[0]} took more than {PATIENCE} s"
    return done.returncode == 0, (done.stdout + done.stderr).strip()
