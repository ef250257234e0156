"""What every process of a session is doing, into a folder: for a run that does not end."""

import contextlib
import faulthandler
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.chaos import processes


def write_stacks(token, folder):
    """Write the stacks of this process and of all that have the token."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "driver.txt").open("w") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    found = [p for p in processes.of(token) if p.pid != os.getpid()]
    for process in found:
        name = f"{process.kind}-{process.pid}"
        (folder / f"{name}.kernel.txt").write_text(_kernel(process.pid))
        if process.is_stopped:
            continue  # it would not answer
        if process.kind in {"executor", "driver"}:
            _run(["jstack", str(process.pid)], folder / f"{name}.jstack.txt")
        elif shutil.which("py-spy"):
            _run(["py-spy", "dump", "--pid", str(process.pid)], folder / f"{name}.py-spy.txt")
        elif _catches(process.pid, signal.SIGUSR1):
            process.signal(signal.SIGUSR1)
    time.sleep(1.0)
    for place in {p.folder for p in found if p.kind == "executor"}:
        with contextlib.suppress(OSError):  # no log, no copy
            shutil.copy(Path(place) / "stderr", folder / f"executor-{Path(place).name}.stderr.txt")


def _run(command, path):
    try:
        done = subprocess.run(command, capture_output=True, timeout=15, check=False)
        path.write_bytes(done.stdout + done.stderr)
    except (OSError, subprocess.TimeoutExpired) as error:
        path.write_text(f"{error}\n")


def _kernel(pid):
    lines = []
    with contextlib.suppress(OSError):  # it ended while we looked
        for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
            name, state = (task / "comm").read_text().strip(), (task / "wchan").read_text()
            lines.append(f"{task.name} {name}: {state}")
            with contextlib.suppress(OSError):  # only root may read it
                lines.append((task / "stack").read_text())
    return "\n".join(lines)


def _catches(pid, number):
    with contextlib.suppress(OSError):  # it ended while we looked
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
