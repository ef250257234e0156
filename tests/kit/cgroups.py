"""Control groups: real ones of version 1, and folders like those of Linux for tests that cannot have them."""

import contextlib
import errno
import os
from pathlib import Path

import pytest
from tests.kit.waiting import wait_until

from headgate._process import host_id, memory_group

#: The counts of a group, in version 1 and in version 2.
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
V2 = "low 0\nhigh 0\nmax 9\noom 9\noom_kill {}\noom_group_kill 8\n"

#: Folder of version 1 of the memory controller, on machines that have it.
CONTROLLER = Path("/sys/fs/cgroup/memory")


@contextlib.contextmanager
def limited(limit):
    """Make a memory group of so many bytes, which processes can join; skip the test where that cannot be had."""
    folder = CONTROLLER / f"headgate-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(limit))
    except OSError as error:
        pytest.skip(f"cannot create a memory group here: {error}")
    yield folder
    wait_until(lambda: _is_removed(folder), f"the end of all processes of {folder}")


def _is_removed(folder):
    """Move the processes out of a group, and remove it; return False if one that was killed still ends."""
    for pid in (folder / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):  # the process has ended
            (CONTROLLER / "cgroup.procs").write_text(pid)
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


class Machine:
    """Folders like those of Linux."""

    def __init__(self, folder):
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.write(self.proc / "sys/kernel/random/boot_id", f"{host_id()}\n")

    def write(self, file, text):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def group(self, lines):
        """Return the group that a process with these lines in /proc finds."""
        self.write(self.proc / "self/cgroup", "\n".join(lines) + "\n")
        return memory_group(self.proc, self.cgroups)
