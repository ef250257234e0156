"""The processes of a test, as the kernel shows them in /proc.

Whose they are is told by their parents, and by a mark in the environment they were started with: that
finds processes whose parents are gone. A forked child keeps its parent's environment, so the workers
that Spark's daemon forks carry the mark too.

A number stands for another process once its first owner is gone, so nothing is signalled without a look
at when it was started.
"""

import os
import signal
import time
import uuid
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

#: Environment variable that whatever a test run starts inherits.
MARK = "HEADGATE_TEST_MARK"
#: States of a process that has ended: only its parent still has to be told.
ENDED = frozenset("ZXx")


def mark():
    """Return the mark of this run; processes that are started from now on carry it."""
    return os.environ.setdefault(MARK, uuid.uuid4().hex)


@dataclass(frozen=True)
class Process:
    """One process.

    Attributes:
        pid: its number.
        started: in ticks since boot; with the pid it never names another process.
        parent: pid of its parent.
        state: the kernel's letter, Z for one that has ended and was not waited for.
        session: id of its session.
    """

    pid: int
    started: int
    parent: int
    state: str
    session: int

    @cached_property
    def command(self):
        """Its arguments; none once it has ended. Reading them may wait for that process."""
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")[:-1]
        except OSError:
            return ()
        return tuple(word.decode(errors="replace") for word in words)

    @cached_property
    def kind(self):
        """What it is of Spark: driver, executor, daemon or worker; other."""
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
        """Its working directory: an executor's own, for it and its workers."""
        try:
            return str(Path(f"/proc/{self.pid}/cwd").readlink())
        except OSError:
            return ""

    @property
    def is_stopped(self):
        """Whether a signal has stopped it, as it was read."""
        return self.state in {"T", "t"}

    @property
    def is_there(self):
        """Whether it still runs, or is stopped: it is looked at anew."""
        now = read(self.pid)
        return now is not None and now.key == self.key and now.state not in ENDED

    def signal(self, number):
        """Send a signal, if this process is still there; return whether it was."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # The handle is of whoever has the number now: look again before it is used.
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
        """What tells it from all others, those with the same number later on included."""
        return self.pid, self.started

    @property
    def is_java(self):
        """Whether it is a JVM."""
        return bool(self.command) and Path(self.command[0]).name == "java"

    @property
    def is_python(self):
        """Whether it is a Python interpreter."""
        return bool(self.command) and Path(self.command[0]).name.startswith("python")

    @property
    def is_daemon_or_worker(self):
        """Whether Spark's daemon runs here: itself, or a worker that it forked."""
        return any(word.startswith("pyspark.") for word in self.command[1:])

    def __str__(self):
        """Return number and command, the latter cut."""
        words = " ".join(self.command)
        return f"{self.pid} ({words if len(words) < 120 else '... ' + words[-110:]})"


def read(pid):
    """Return a process; None when there is none of that number any more."""
    try:
        # The name is in brackets and may hold anything, brackets too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return Process(pid, int(fields[19]), int(fields[1]), fields[0], int(fields[3]))


def everything():
    """Return all processes of this machine by number."""
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {process.pid: process for pid in numbers if (process := read(pid)) is not None}


def carries(pid, value, variable=MARK):
    """Whether a process was started with this mark, in this variable."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it ended, it belongs to somebody else, or it is the kernel's
        return False
    return f"{variable}={value}".encode() in environment.split(b"\0")


@cache
def _carries(pid, started, value):
    # Asked once of each: `started` tells processes of one number apart.
    return carries(pid, value)


def marked(value, variable=MARK):
    """Return the live processes that were started with this mark, in this variable."""
    return [
        p for p in everything().values() if p.state not in ENDED and carries(p.pid, value, variable)
    ]


def kill_all(value, variable=MARK, seconds=20.0):
    """Kill every process with a mark until none is left.

    Raises:
        TimeoutError: some do not end.
    """
    end = time.monotonic() + seconds
    while left := marked(value, variable):
        for process in left:
            process.signal(signal.SIGKILL)
        if time.monotonic() > end:
            raise TimeoutError(f"not to be killed: {', '.join(map(str, left))}")
        time.sleep(0.05)


def family(pid=None, value=None):
    """Return the live processes of a test run except itself, by number.

    Args:
        pid: where the tree starts; this process when not given.
        value: the mark; that of this run when not given.
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
            # A child that this process forked has no mark: the kernel shows what it started with.
            orphaned = top is not None and process.parent == 1 and process.session == top.session
            forked = orphaned and process.command == top.command
            if forked or _carries(process.pid, process.started, value):
                found.add(process.pid)
    found.discard(pid)
    return {n: known[n] for n in sorted(found) if known[n].state not in ENDED}
