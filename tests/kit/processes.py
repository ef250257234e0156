"""The processes of a test, as the kernel shows them in /proc.

A process belongs to a test if its parents do, or if its initial environment has the test's mark.
The mark finds processes whose parents have ended. A forked child keeps its parent's environment, so
the workers that Spark's daemon forks carry the mark too.

The kernel reuses pids. So a process is only signalled after a check of its start time.
"""

import os
import signal
import time
import uuid
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

#: Environment variable that all processes of a test run inherit.
MARK = "HEADGATE_TEST_MARK"
#: States of a process that has ended and that its parent has not waited for.
ENDED = frozenset("ZXx")


def mark():
    """Return the mark of this run. Processes started from now on carry it."""
    return os.environ.setdefault(MARK, uuid.uuid4().hex)


@dataclass(frozen=True)
class Process:
    """One process.

    Attributes:
        pid: pid of the process.
        started: start time in ticks since boot. Together with the pid it is unique.
        parent: pid of the parent.
        state: the kernel's letter, such as Z for a zombie.
        session: session id.
    """

    pid: int
    started: int
    parent: int
    state: str
    session: int

    @cached_property
    def command(self):
        """The arguments; none once the process has ended. Reading them may wait for the process."""
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")[:-1]
        except OSError:
            return ()
        return tuple(word.decode(errors="replace") for word in words)

    @cached_property
    def kind(self):
        """The role in Spark: "driver", "executor", "daemon", "worker" or "other"."""
        words = " ".join(self.command)
        if "CoarseGrainedExecutorBackend" in words:
            return "executor"
        if "SparkSubmit" in words:
            return "driver"
        if not self.is_daemon_or_worker:
            return "other"
        above = read(self.parent)
        return "daemon" if above is not None and above.kind == "executor" else "worker"

    @property
    def folder(self):
        """The working directory, which an executor shares with its workers only."""
        try:
            return str(Path(f"/proc/{self.pid}/cwd").readlink())
        except OSError:
            return ""

    @property
    def is_stopped(self):
        """True if a signal had stopped the process when it was read."""
        return self.state in {"T", "t"}

    @property
    def is_there(self):
        """True while the process has not ended. Reads the process again."""
        now = read(self.pid)
        return now is not None and now.key == self.key and now.state not in ENDED

    def signal(self, number):
        """Send a signal. Return False if the process has ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # The pid may have been reused before the handle was opened, so check again.
            if not self.is_there:
                return False
            signal.pidfd_send_signal(handle, number)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    @property
    def key(self):
        """The identity of the process, which a later process with the same pid does not share."""
        return self.pid, self.started

    @property
    def is_java(self):
        """True if the process is a JVM."""
        return bool(self.command) and Path(self.command[0]).name == "java"

    @property
    def is_daemon_or_worker(self):
        """True if the process is Spark's Python daemon or a worker that the daemon forked."""
        return any(word.startswith("pyspark.") for word in self.command[1:])

    def __str__(self):
        """Return the pid and the command, shortened."""
        words = " ".join(self.command)
        return f"{self.pid} ({words if len(words) < 120 else '... ' + words[-110:]})"


def read(pid):
    """Return the process with a pid, or None if it has ended."""
    try:
        # The name stands in brackets and may contain any character, brackets too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return Process(pid, int(fields[19]), int(fields[1]), fields[0], int(fields[3]))


def everything():
    """Return all processes of this machine by pid."""
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {process.pid: process for pid in numbers if (process := read(pid)) is not None}


def carries(pid, value, variable=MARK):
    """Return True if a process was started with this mark in this variable."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or belongs to another user or to the kernel
        return False
    return f"{variable}={value}".encode() in environment.split(b"\0")


@cache
def _carries(pid, started, value):
    # The cache reads each process once. `started` tells processes with the same pid apart.
    return carries(pid, value)


def marked(value, variable=MARK):
    """Return the live processes that were started with this mark in this variable."""
    return [
        p for p in everything().values() if p.state not in ENDED and carries(p.pid, value, variable)
    ]


def kill_all(value, variable=MARK, seconds=20.0):
    """Kill every process with a mark until none is left.

    Raises:
        TimeoutError: processes are left after ``seconds``.
    """
    end = time.monotonic() + seconds
    while left := marked(value, variable):
        for process in left:
            process.signal(signal.SIGKILL)
        if time.monotonic() > end:
            raise TimeoutError(f"alive {seconds} s after SIGKILL: {', '.join(map(str, left))}")
        time.sleep(0.05)


def family(pid=None, value=None):
    """Return the live processes of a test run except process ``pid`` itself, by pid.

    Args:
        pid: root of the tree of processes; this process by default.
        value: the mark; the one of this run by default.
    """
    pid = os.getpid() if pid is None else pid
    value = mark() if value is None else value
    known = everything()
    top = known.get(pid)
    found = set()
    for process in known.values():
        above, line = process, []
        while above is not None and above.pid not in line:
            line.append(above.pid)
            if above.parent == pid or above.pid in found:
                found.update(line)
                break
            above = known.get(above.parent)
    since = 0 if top is None else top.started
    for process in known.values():
        if process.pid not in found and process.started >= since:
            # A child forked by this process has no mark: the kernel shows the initial environment.
            orphaned = top is not None and process.parent == 1 and process.session == top.session
            forked = orphaned and process.command == top.command
            if forked or _carries(process.pid, process.started, value):
                found.add(process.pid)
    found.discard(pid)
    return {n: known[n] for n in sorted(found) if known[n].state not in ENDED}
