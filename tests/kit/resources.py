"""Descriptors, threads and mappings of one process, which Headgate could have leaked; a process without a free descriptor."""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: Kinds of descriptors that the data plane opens. Files and pipes belong to pytest and Spark.
DESCRIPTORS = ("socket:", "anon_inode:", "/memfd:")
#: Shared mappings that are neither a file nor a library: memfd, POSIX and System V shared memory.
SHARED = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")
#: Threads that a library starts and keeps. pyarrow starts jemalloc's.
LIBRARIES = ("jemalloc_bg_thd",)
#: Threads that Headgate starts in Rust, as the kernel cuts their names. From Python 3.14 on the kernel has the names of Python's
#: threads, too, and a library's thread has that of the one that started it.
NATIVE = ("headgate-io", "headgate-beat", "headgate-spill", "headgate-flusher"[:15])


@dataclass(frozen=True)
class Resources:
    """The resources of a process.

    Attributes:
        descriptors: (number, target) of each descriptor of the kinds above.
        threads: native name of each thread but the main one.
        mapped: (start, end, name) of each shared mapping.
    """

    descriptors: frozenset[tuple[int, str]] = frozenset()
    threads: tuple[str, ...] = ()
    mapped: frozenset[tuple[int, int, str]] = frozenset()

    @property
    def sockets(self):
        """The sockets. A socket with two descriptors counts once."""
        return {target for _, target in self.descriptors if target.startswith("socket:")}

    @property
    def ours(self):
        """The names of Headgate's native threads."""
        return sorted(name for name in self.threads if name in NATIVE)

    @property
    def others(self):
        """The descriptors that are not sockets: epolls, eventfds, memfds."""
        return sorted(target for _, target in self.descriptors if not target.startswith("socket:"))


def look(pid="self"):
    """Return the resources of a process; none if the process has ended."""
    folder = Path("/proc", str(pid))
    return Resources(
        frozenset(_descriptors(folder)), tuple(_threads(folder)), frozenset(_mapped(folder))
    )


def native_threads(pid="self"):
    """Return the names of Headgate's native threads in a process."""
    return look(pid).ours


def python_threads(pid):
    """Return the names of Headgate's Python threads in another process, read by py-spy."""
    tool = py_spy()
    assert tool is not None, "py-spy is missing: install the extra `test`"
    dump = subprocess.run(
        [tool, "dump", "--json", "--pid", str(pid)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    if dump.returncode:
        return []  # the process has ended
    names = (thread.get("thread_name") or "" for thread in json.loads(dump.stdout))
    return sorted(name for name in names if name.startswith("headgate"))


def py_spy():
    """Return the path of py-spy, or None if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


@contextlib.contextmanager
def no_descriptor_left():
    """Leave this process without a free descriptor."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    filler = []
    try:
        with contextlib.suppress(OSError):
            while True:
                filler.append(os.dup(0))
        assert filler
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in filler:
            os.close(number)


def _descriptors(folder):
    for entry in _listing(folder / "fd"):
        try:
            target = str(entry.readlink())
        except OSError:  # the descriptor of the listing itself, or one that was just closed
            continue
        if target.startswith(DESCRIPTORS):
            yield int(entry.name), target


def _threads(folder):
    for entry in _listing(folder / "task"):
        if entry.name == folder.resolve().name:
            continue
        try:
            name = (entry / "comm").read_text().strip()
        except OSError:  # the thread has ended
            continue
        if name not in LIBRARIES:
            yield name


def _mapped(folder):
    try:
        lines = (folder / "maps").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(SHARED):
            start, _, end = fields[0].partition("-")
            yield int(start, 16), int(end, 16), fields[5]


def _listing(folder):
    try:
        return list(folder.iterdir())
    except OSError:  # the process has ended
        return []
