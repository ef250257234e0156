"""One check after each test: nothing that Headgate made is still there.

A :class:`Leftovers` takes a snapshot when it is made; :meth:`Leftovers.check` compares, and waits a
bounded time for what is on its way out. It looks at segments, descriptors, sockets, threads and shared
mappings of this process, at processes, and at files. With ``spark="live"`` it also knows what belongs
to a live application: JVMs, Spark's daemons and the idle workers, which are used again, and looks
into these. A worker is idle with one socket, to its JVM, and no thread beside its own. With
``spark="stopped"`` the JVM of the driver may stay, which PySpark uses again, and what Spark left that nothing of
ours ever ran in.
"""

import gc
import os
import shutil
import sys
import tempfile
import threading
import time
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

import pytest
from tests.faults import facts, processes

import headgate as hg

#: Seconds in which what a test left must have gone.
SETTLE = 3.0
#: Seconds in which an exchange must have cleaned up behind itself.
SETTLE_SPARK = 6.0
#: Threads that live as long as the application: its coordinator, its look at Spark, its heartbeats.
RESIDENT = (
    "headgate-coordinator",
    "headgate-spark",
    "headgate-beat",
    "headgate-enumerators",
    "headgate-call-",
)
#: What keeps the time of the tests, see watchdog.py.
WATCHDOG = "tests.faults.timekeeper"


class Leftovers:
    """What there was before a test.

    Args:
        environments: those that the test makes, a list that may grow.
        spark: "live" where an application may live on, "stopped" where one has been, or None.
        folders: where files of ours would be, beside the folder for temporary files.
    """

    def __init__(self, environments=(), *, spark=None, folders=()):
        self._environments = environments
        self._spark = spark
        self._folders = [temporary_folder(), *map(Path, folders)]
        processes.mark()
        self._here = facts.look()
        self._family = {process.key for process in processes.family().values()}
        self._files = set(self._find_files())

    def check(self, seconds=None):
        """Wait until nothing is left.

        Raises:
            AssertionError: something still is after the time; the text names all of it.
        """
        seconds = (SETTLE_SPARK if self._spark else SETTLE) if seconds is None else seconds
        deadline = time.monotonic() + seconds
        while left := self.find():
            if time.monotonic() > deadline:
                raise AssertionError(f"left behind after {seconds:g} s:\n  " + "\n  ".join(left))
            gc.collect()
            time.sleep(0.02)

    def find(self):
        """Return what is left now, one line for each thing."""
        left = [f"segments: {kept}" for e in self._environments if (kept := segments(e))]
        left += self._of_this_process()
        left += of_applications() if self._spark == "live" else []
        left += self._of_family()
        left += [f"file {path}" for path in self._find_files() if path not in self._files]
        return left

    def _of_this_process(self):
        now = facts.look()
        ours = {*our_threads(), *(name for name in now.threads if name.startswith("headgate"))}
        if self._spark == "live":
            ours = {name for name in ours if not name.startswith(RESIDENT)}
        left = [f"thread {name}" for name in sorted(ours)]
        left += _mappings("this process", now.mapped - self._here.mapped)
        if not self._spark:  # py4j's sockets come and go, see of_applications
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
        # Spark starts its daemon anew for a task that begins as it stops, and loses workers (see of_worker).
        own = self._spark == "stopped" and process.is_daemon_or_worker
        return own and not _has_loaded_headgate(process.pid)

    def _find_files(self):
        for folder in self._folders:
            yield from folder.glob("**/*headgate*")


@cache
def temporary_folder():
    """Return where this run's temporary files go from now on, and those of what it starts.

    Other runs on this machine have theirs elsewhere, and pytest its own where they always are.
    """
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="headgate-tests-")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    # After multiprocessing has removed what it keeps there, which it does at -100; never in a forked child.
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=-200)
    return Path(folder)


def segments(environment):
    """Return what an environment holds of its pool, empty when that is nothing."""
    stats = environment.stats()["segments"]
    names = ("held", "pinned", "idle", "local_pools")
    return {name: stats[name] for name in names if stats[name]}


def of_applications():
    """Return what the coordinators of this process know of beside their exchanges, in words."""
    from headgate.spark.driver import application

    left = []
    for running in list(application._running.values()):
        server = running._server
        coordinator = server.coordinator
        left += [f"run {run.number}, {run.state}" for run in list(coordinator.runs.values())]
        left += [f"task {member}" for member in list(coordinator.members.values())]
        left += [f"connection {number}" for number in list(server._connections)]
        left += [f"socket to {peer} of the coordinator" for peer in established(server.port)]
    return left


def servers_of_multiprocessing():
    """Return the pids of its resource tracker and fork server: once used, they stay with this process."""
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    server = sys.modules.get("multiprocessing.forkserver")
    pids = [tracker._resource_tracker._pid] if tracker else []
    return pids + ([server._forkserver._forkserver_pid] if server else [])


def our_threads():
    """Return the names of Headgate's Python threads in this process."""
    return [t.name for t in threading.enumerate() if t.name.startswith("headgate")]


def of_worker(process, family):
    """Return what a process of Spark's Python daemon has above an idle one, in words."""
    if not _has_jvm(process, family):
        # Spark loses a worker that it interrupts before the first task: it waits, none of ours ever ran there.
        ran_nothing = process.parent == 1 and not _has_loaded_headgate(process.pid)
        return [] if ran_nothing else [f"process {process}, whose JVM is gone"]
    now = facts.look(process.pid)
    left = [f"{target} of worker {process.pid}" for target in now.others]
    if len(now.sockets) > 1:
        left.append(f"{len(now.sockets)} sockets of worker {process.pid}, an idle one has 1")
    ours = [name for name in now.threads if name.startswith("headgate")]
    if len(now.threads) > len(ours) and not left:
        # Python's threads have no name of their own for the kernel, nor have pyarrow's.
        ours += facts.python_threads(process.pid)
    left += [f"thread {name} of worker {process.pid}" for name in ours]
    return left + _mappings(f"worker {process.pid}", now.mapped)


def established(port):
    """Return the peers of this machine's connections to a port of ours, by the kernel's tables."""
    found = []
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            local, remote, state, inode = fields[1], fields[2], fields[3], fields[9]
            # Without an inode nobody holds it: the kernel only waits for late packets.
            if int(local.rpartition(":")[2], 16) == port and state == "01" and inode != "0":
                found.append(remote)
    return found


def _has_loaded_headgate(pid):
    try:
        return "headgate/_native" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False  # it has ended


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
    """Remember whether a test passed: the traceback of a failed one keeps its batches."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


def passed(request):
    """Whether the test of a fixture's request passed."""
    return request.node.stash.get(_PASSED, False)


def remember_environments(monkeypatch):
    """Return a list to which every environment that is made is added."""
    made = []
    original = hg.ShuffleEnvironment.__init__

    def remember(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(hg.ShuffleEnvironment, "__init__", remember)
    return made
