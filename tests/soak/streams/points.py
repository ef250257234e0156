"""Named points of a streaming job at which a test has a fault happen, in all processes that import this module.

A file of a point's name in the folder ``$HEADGATE_STREAM_POINTS`` holds an action. The first process that comes by
takes the file away and acts; then there is a file ``struck-NAME``. Actions: ``raise``, ``full`` (an OSError as of a full
disk), ``kill`` (this process), ``stop`` (for a moment), ``cut control``, ``cut data`` and ``sleep``.
"""

import errno
import faulthandler
import os
import signal
import socket
import subprocess
import sys
import time
from functools import wraps
from pathlib import Path

from headgate.sink import file_committer, journal
from headgate.sink.file_writer import FileWriter
from headgate.source.batch_source import BatchEnumerator
from headgate.stream.job.commits import SinkCommits
from headgate.stream.job.deployment import Deployment
from headgate.stream.job.store import CheckpointStore
from headgate.stream.job.worker import StreamWorker
from headgate.stream.runtime.task import StreamTask
from headgate.stream.state.backend import KeyedStateBackend
from headgate.stream.state.files import SnapshotFolder
from headgate.stream.state.retention import SnapshotRetention

FOLDER = Path(os.environ["HEADGATE_STREAM_POINTS"])
#: Where a fault of a worker can happen; each is hit before and after the call.
OF_WORKERS = {
    "barrier": (StreamTask, "_trigger"),
    "snapshot file": (SnapshotFolder, "write"),
    "snapshot": (Deployment, "_acknowledge"),
    "prepare": (FileWriter, "prepare_commit"),
    "retention": (SnapshotRetention, "complete"),
    "discard": (SnapshotRetention, "discard"),
    "read state": (KeyedStateBackend, "restore"),
    "deploy": (StreamWorker, "_deploy"),
    "connect": (Deployment, "connect"),
    "finish": (StreamTask, "_finish"),
}
#: Where a fault of the driver can happen.
OF_DRIVER = {
    "log": (CheckpointStore, "complete"),
    "commit": (SinkCommits, "commit"),
    "restore": (SinkCommits, "restore"),
    "enumerator": (BatchEnumerator, "snapshot_state"),
    "assignment": (BatchEnumerator, "handle_split_request"),
    "delete": (CheckpointStore, "delete_old"),
    "savepoint": (CheckpointStore, "write_savepoint"),
}
#: In the functions of the job and the middle of a commit; see pipeline.py and below.
OTHERS = ("map", "process", "timers", "visible")
PAUSE = 0.3
_workers = []


def hit(name):
    """Act, if a test has armed this point."""
    file = FOLDER / name
    taken = FOLDER / f"struck-{name}-{os.getpid()}"
    try:
        file.rename(taken)
    except FileNotFoundError:
        return
    action = taken.read_text()
    taken.rename(FOLDER / f"struck-{name}")
    print(
        f"---- {time.time() % 1000:.3f} {action} at {name} in {os.getpid()}",
        file=sys.stderr,
        flush=True,
    )
    act(action, name)


def act(action, name):
    """Let a fault happen in this process."""
    if action == "raise":
        raise ValueError(f"planned at {name}")
    if action == "full":
        raise OSError(errno.ENOSPC, f"planned at {name}")
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        script = f"(sleep {PAUSE}; kill -CONT {os.getpid()}) >/dev/null 2>&1 &"
        subprocess.run(["sh", "-c", script], check=True, stdin=subprocess.DEVNULL)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "sleep":
        time.sleep(PAUSE)
    elif action == "cut control":
        for worker in _workers:
            worker.kill()
    elif action == "cut data":
        cut_data()
    else:
        raise AssertionError(action)


def cut_data():
    """Shut down all connections of this process to others, but those to the coordinator."""
    kept = {worker._address.port for worker in _workers}
    for path in list(Path("/proc/self/fd").iterdir()):
        try:
            if not path.is_socket():
                continue
            sock = socket.socket(fileno=os.dup(int(path.name)))
        except OSError:
            continue
        with sock:
            try:
                ends = sock.getsockname(), sock.getpeername()
                if sock.family is socket.AF_INET and kept & {end[1] for end in ends}:
                    continue
                # Pairs of sockets without a name are within this process.
                if sock.family is socket.AF_INET or any(ends):
                    sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def _around(owner, method, name):
    found = owner.__dict__[method]
    call = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found

    @wraps(call)
    def around(*args, **kwargs):
        hit(f"{name}, before")
        result = call(*args, **kwargs)
        hit(f"{name}, after")
        return result

    kind = type(found) if isinstance(found, (staticmethod, classmethod)) else lambda f: f
    setattr(owner, method, kind(around))


def _remembered(run):
    @wraps(run)
    def around(self):
        _workers.append(self)
        try:
            run(self)
        finally:
            _workers.remove(self)

    return around


def _visible(roll_forward):
    @wraps(roll_forward)
    def around(*args, **kwargs):
        hit("visible")
        return roll_forward(*args, **kwargs)

    return around


for point, (owner, method) in {**OF_WORKERS, **OF_DRIVER}.items():
    _around(owner, method, point)
StreamWorker.run = _remembered(StreamWorker.run)
journal.roll_forward = _visible(journal.roll_forward)
assert file_committer.journals is journal
faulthandler.register(signal.SIGUSR1, all_threads=True)
