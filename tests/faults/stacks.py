"""The stacks of all processes of a test as text: py-spy's of Python, jstack's of a JVM, the kernel's."""

import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults import facts, processes

#: Seconds for one attempt at one process.
PATIENCE = 20
#: Processes looked at side by side.
SIDE_BY_SIDE = 4


def of_test(pid, value):
    """Return the stacks of a test run: of process ``pid`` and of its family with this mark."""
    there = [processes.read(pid), *processes.family(pid, value).values()]
    return of_processes(process for process in there if process is not None)


def of_processes(there):
    """Return the stacks of these processes, this one left out."""
    there = [process for process in there if process.pid != os.getpid()]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return "\n\n".join(pool.map(of_process, there))


def of_process(process):
    """Return the stacks of one process, or why there are none."""
    if process.is_stopped:
        return f"=== {process} is stopped\n{_kernel(process.pid)}"
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
    return "\n".join([f"=== {process}: no stacks", *said, _kernel(process.pid)])


def _kernel(pid):
    """Return where in the kernel each thread waits: of a process that answers nobody."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        try:
            lines.append(f"{(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text()}")
            lines.append((task / "stack").read_text())
        except OSError as error:  # it ended while we looked, or only root may read it
            lines.append(str(error))
    return "\n".join(lines)


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
