"""The processes of one Spark application: found by a token in their environment, ended by identity.

A number stands for another process once its first owner is gone, so nothing here is signalled without
a look at when it was started.
"""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

#: Variable that every process of an application inherits.
TOKEN = "HEADGATE_CHAOS"
#: Names of Headgate's native threads begin so.
THREADS = "headgate"


class Process(NamedTuple):
    """One process as it was seen; ``started`` are clock ticks since the machine's start."""

    pid: int
    started: int
    parent: int
    state: str
    kind: str

    @property
    def is_stopped(self):
        """Whether it was stopped by a signal."""
        return self.state in {"T", "t"}

    @property
    def folder(self):
        """Its working directory: an executor's own, for it and its workers."""
        try:
            return str(Path(f"/proc/{self.pid}/cwd").readlink())
        except OSError:
            return ""

    def signal(self, number):
        """Send a signal, if this process is still there; return whether it was."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # The handle is of whoever has the number now: look again before it is used.
            if (now := look(self.pid)) is None or now.started != self.started:
                return False
            signal.pidfd_send_signal(handle, number)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    @property
    def is_there(self):
        """Whether it still runs, or is stopped."""
        now = look(self.pid)
        return now is not None and now.started == self.started and now.state not in {"Z", "X"}


def look(pid):
    """Return the process of a number, or None."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    fields = status.rpartition(")")[2].split()
    return Process(pid, int(fields[19]), int(fields[1]), fields[0], _kind(command))


def _kind(command):
    if b"CoarseGrainedExecutorBackend" in command:
        return "executor"
    if b"pyspark.daemon" in command:
        return "worker"  # or the daemon itself: see `of`
    if b"SparkSubmit" in command:
        return "driver"
    return "other"


def of(token):
    """Return all processes with a token, zombies left out; daemons told from workers."""
    wanted = f"{TOKEN}={token}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0") and (seen := look(int(entry.name))) is not None:
            found.append(seen)
    executors = {p.pid for p in found if p.kind == "executor"}
    return [
        p._replace(kind="daemon") if p.kind == "worker" and p.parent in executors else p
        for p in found
        if p.state not in {"Z", "X"}
    ]


def kill_all(token, seconds=20.0):
    """Kill everything with a token until nothing is left."""
    end = time.monotonic() + seconds
    while left := of(token):
        for process in left:
            process.signal(signal.SIGKILL)
        if time.monotonic() > end:
            raise TimeoutError(f"not to be killed: {left}")
        time.sleep(0.05)


def owner_of_port(port, peer, candidates):
    """Return which of these processes holds the connection from ``port`` to ``peer``, or None."""
    inode = None
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ours, theirs = (int(fields[i].rpartition(":")[2], 16) for i in (1, 2))
        if (ours, theirs) == (port, peer):
            inode = fields[9]
    if inode in {None, "0"}:
        return None
    return next((p for p in candidates if inode in sockets(p.pid)), None)


def sockets(pid):
    """Return the inodes of a process's sockets."""
    found = set()
    with contextlib.suppress(OSError):  # it ended while we looked
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                name = str(entry.readlink())
                if name.startswith("socket:["):
                    found.add(name[8:-1])
    return found


def listening():
    """Return the inodes of all sockets that listen on a port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return {f[9] for f in map(str.split, lines) if f[3] == "0A"}


def left_behind(token):
    """Return what should not be there between two runs, in words.

    Idle workers of a live executor are Spark's own business, but they have no thread, listening
    socket or stopped state of ours.
    """
    found = of(token)
    folders = {p.folder for p in found if p.kind == "executor"}
    ports = listening()
    wrong = []
    for process in found:
        what = f"{process.kind} {process.pid}"
        if process.is_stopped:
            wrong.append(f"{what} is stopped")
        if process.kind not in {"worker", "daemon"}:
            continue
        if process.folder not in folders:
            wrong.append(f"{what} has outlived its executor")
        names = _threads(process.pid)
        wrong += [f"{what} has a thread {name}" for name in names if name.startswith(THREADS)]
        if process.kind == "worker" and sockets(process.pid) & ports:
            wrong.append(f"{what} listens on a port")
    return wrong


def _threads(pid):
    names = []
    with contextlib.suppress(OSError):  # it ended while we looked
        for entry in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                names.append((entry / "comm").read_text().strip())
    return names
