"""A check after each test that no resource of Headgate is left.

A :class:`Leftovers` takes a snapshot when it is created. :meth:`Leftovers.check` compares it with
the present, and waits a bounded time for resources that are being released. It covers segments,
descriptors, sockets, threads and shared mappings of this process, other processes, and files.

With ``spark="live"`` the JVMs, daemons and idle workers of an application may stay, as Spark uses
them again. The check looks into the workers: an idle one has one socket, to its JVM, and only its
main thread. With ``spark="stopped"`` the JVM of the driver may stay, which PySpark uses again, and
processes of Spark that never loaded Headgate.
"""

import gc
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

import pytest
from tests.kit import processes, resources

import headgate as hg

#: Seconds after a test within which its resources must be released.
SETTLE = 3.0
#: Seconds after a test with Spark within which its resources must be released.
SETTLE_SPARK = 6.0
#: Threads that live as long as the application: the server, polls of Spark, heartbeats, sources,
#: notices of tasks that start.
#: The sweep lives as long as a DataFrame's kept files, which Java's collector decides.
RESIDENT = (
    "headgate-hosts",
    "headgate-spark",
    "headgate-beat",
    "headgate-enumerators",
    "headgate-notices",
    "headgate-sweep",
    "headgate-call-",
)
#: Command of the watchdog's process; see watchdog.py.
WATCHDOG = "tests.kit.timekeeper"


class Leftovers:
    """A snapshot of the resources before a test.

    Args:
        environments: the environments of the test, a list that may grow.
        spark: "live" if an application may stay alive, "stopped" after one has ended, or None.
        folders: folders to search for files, in addition to the folder for temporary files.
    """

    def __init__(self, environments=(), *, spark=None, folders=()):
        self._environments = environments
        self._spark = spark
        self._folders = [temporary_folder(), *map(Path, folders)]
        processes.mark()
        self._here = resources.look()
        # A worker of pytest may have run tests on Spark before: its application lives on.
        self._resident = Counter(n for n in _our_names(self._here) if n.startswith(RESIDENT))
        self._family = {process.key for process in processes.family().values()}
        self._files = set(self._find_files())

    def check(self, seconds=None):
        """Wait until no resource is left.

        Raises:
            AssertionError: resources are left after ``seconds``; the text names all of them.
        """
        seconds = (SETTLE_SPARK if self._spark else SETTLE) if seconds is None else seconds
        deadline = time.monotonic() + seconds
        while left := self.find():
            if time.monotonic() > deadline:
                raise AssertionError(f"left behind after {seconds:g} s:\n  " + "\n  ".join(left))
            gc.collect()
            time.sleep(0.02)

    def find(self):
        """Return one line for each resource that is left now."""
        left = [f"segments: {kept}" for e in self._environments if (kept := segments(e))]
        left += self._of_this_process()
        left += of_applications() if self._spark == "live" else []
        left += self._of_family()
        left += [f"file {path}" for path in self._find_files() if path not in self._files]
        return left

    def _of_this_process(self):
        now = resources.look()
        ours = Counter(_our_names(now)) - self._resident
        if self._spark == "live":
            ours = {name for name in ours if not name.startswith(RESIDENT)}
        left = [f"thread {name}" for name in sorted(ours)]
        left += _mappings("this process", now.mapped - self._here.mapped)
        # py4j opens and closes sockets at any time; see of_applications.
        if not self._spark and not self._resident:
            opened = sorted(now.descriptors - self._here.descriptors)
            left += [f"descriptor {number}: {target}" for number, target in opened]
        return left

    def _of_family(self):
        left = []
        family = processes.family()
        resident = servers_of_multiprocessing()
        for process in family.values():
            if process.pid in resident or WATCHDOG in process.command:
                continue
            if process.is_java and self._may_live(process):
                continue
            if self._spark == "live" and process.is_daemon_or_worker:
                left += of_worker(process, family)
            elif process.key not in self._family and not self._is_sparks_own(process):
                left.append(f"process {process}, child of {process.parent}")
        return left

    def _may_live(self, java):
        return self._spark == "live" or (self._spark and java.parent == os.getpid())

    def _is_sparks_own(self, process):
        # A task that begins while Spark stops starts a new daemon. For lost workers see of_worker.
        own = self._spark == "stopped" and process.is_daemon_or_worker
        return own and not _has_loaded_headgate(process.pid)

    def _find_files(self):
        for folder in self._folders:
            for path in folder.glob("**/*headgate*"):
                # The folder of kept files stays as long as the executor, empty or not.
                if not path.parent.name.startswith("blockmgr-"):
                    yield path


@cache
def temporary_folder():
    """Create and return the folder for temporary files of this run and of its child processes.

    Other runs on this machine use other folders. pytest's own temporary files stay in their place.
    """
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="headgate-tests-")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    # Priority -200 runs after multiprocessing has removed its files. Forked children never run it.
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=-200)
    return Path(folder)


def segments(environment):
    """Return the counts of an environment's segments that are above 0."""
    stats = environment.stats()["segments"]
    names = ("held", "pinned", "idle", "local_pools")
    return {name: stats[name] for name in names if stats[name]}


def of_applications():
    """Return one line for each connection of this process's control servers."""
    from headgate.spark.driver import application

    left = []
    for running in list(application._running.values()):
        server = running._host_lookup.server
        left += [f"connection from {peer.host}" for peer in tuple(server.peers)]
        left += [f"socket to {peer} of the control server" for peer in established(server.port)]
    return left


def servers_of_multiprocessing():
    """Return the pids of multiprocessing's resource tracker and fork server, which never exit."""
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    server = sys.modules.get("multiprocessing.forkserver")
    pids = [tracker._resource_tracker._pid] if tracker else []
    return pids + ([server._forkserver._forkserver_pid] if server else [])


def _our_names(here):
    """Return the names of Headgate's threads in this process, Python's and native ones."""
    return [*our_threads(), *here.ours]


def our_threads():
    """Return the names of Headgate's Python threads in this process."""
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("headgate"))


def of_worker(process, family):
    """Return one line for each resource that an idle process of Spark's Python daemon lacks."""
    if not _has_jvm(process, family):
        # Spark forgets a worker that it interrupts before its first task. The worker waits forever.
        ran_nothing = process.parent == 1 and not _has_loaded_headgate(process.pid)
        return [] if ran_nothing else [f"process {process}, whose JVM is gone"]
    now = resources.look(process.pid)
    left = [f"{target} of worker {process.pid}" for target in now.others]
    if len(now.sockets) > 1:
        left.append(f"{len(now.sockets)} sockets of worker {process.pid}; an idle worker has 1")
    ours = now.ours
    if len(now.threads) > len(ours) and not left:
        # py-spy reads the names of Python's threads.
        ours += resources.python_threads(process.pid)
    left += [f"thread {name} of worker {process.pid}" for name in ours]
    return left + _mappings(f"worker {process.pid}", now.mapped)


def established(port):
    """Return the peers of the established connections to a local port, from the kernel's tables."""
    found = []
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            local, remote, state, inode = fields[1], fields[2], fields[3], fields[9]
            # Without an inode no process holds it, and the kernel only waits for late packets.
            if int(local.rpartition(":")[2], 16) == port and state == "01" and inode != "0":
                found.append(remote)
    return found


def _has_loaded_headgate(pid):
    try:
        return "headgate/_native" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False  # the process has ended


def _has_jvm(process, family):
    above = process
    while above is not None and not above.is_java:
        above = family.get(above.parent)
    return above is not None


def _mappings(where, ranges):
    return [f"{end - start} bytes of {name} mapped in {where}" for start, end, name in ranges]


_PASSED = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Record if the test passed. The traceback of a failed test keeps its batches alive."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


def passed(request):
    """Return True if the test of a fixture's request passed."""
    return request.node.stash.get(_PASSED, False)


def remember_environments(monkeypatch):
    """Return a list to which every new environment is added."""
    made = []
    original = hg.ShuffleEnvironment.__init__

    def remember(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(hg.ShuffleEnvironment, "__init__", remember)
    return made
