"""The stacks of all processes of a test, as text, from py-spy, jstack and the kernel."""

import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kit import processes, resources

#: Seconds for one attempt at one process.
PATIENCE = 20
#: Number of processes examined in parallel.
SIDE_BY_SIDE = 4


def of_test(pid, value):
    """Return the stacks of a test run: of process ``pid`` and of its family with the mark."""
    there = [processes.read(pid), *processes.family(pid, value).values()]
    return of_processes(process for process in there if process is not None)


def of_processes(there):
    """Return the stacks of these processes, except this process."""
    there = [process for process in there if process.pid != os.getpid()]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return "\n\n".join(pool.map(of_process, there))


def of_process(process):
    """Return the stacks of one process, or the reason that there are none."""
    if process.is_stopped:
        return f"=== {process} is stopped\n{_kernel(process.pid)}"
    if process.is_java:
        attempts = [["jstack", "-l", str(process.pid)]]
    else:
        tool = resources.py_spy() or "py-spy"
        plain = [tool, "dump", "--pid", str(process.pid)]
        # The second attempt is for machines that do not allow native frames.
        attempts = [[*plain, "--native"], plain]
    said = []
    for command in attempts:
        done, text = _run(command)
        if done:
            return f"=== {process}\n{text}"
        said.append(text)
    if process.is_java:
        os.kill(process.pid, signal.SIGQUIT)
        said.append("sent SIGQUIT to the JVM: the stacks are in its own output")
    return "\n".join([f"=== {process}: no stacks", *said, _kernel(process.pid)])


def _kernel(pid):
    """Return the place in the kernel where each thread of an unresponsive process waits."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        try:
            lines.append(f"{(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text()}")
            lines.append((task / "stack").read_text())
        except OSError as error:  # the thread has ended, or only root may read its stack
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
