"""What one process holds that Headgate could have forgotten: descriptors, threads, mappings."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: Kinds of descriptors that a data plane has; files and pipes are pytest's and Spark's.
DESCRIPTORS = ("socket:", "anon_inode:", "/memfd:")
#: Shared mappings that are neither a file nor a library: memfd, POSIX and System V shared memory.
SHARED = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")
#: What comes with a library and stays: jemalloc's thread is pyarrow's.
LIBRARIES = ("jemalloc_bg_thd",)


@dataclass(frozen=True)
class Facts:
    """What a process holds.

    Attributes:
        descriptors: of the kinds above, as (number, target).
        threads: their native names, the main thread's left out.
        mapped: (start, end, name) of each shared mapping.
    """

    descriptors: frozenset[tuple[int, str]] = frozenset()
    threads: tuple[str, ...] = ()
    mapped: frozenset[tuple[int, int, str]] = frozenset()

    @property
    def sockets(self):
        """The sockets; one that is open under two numbers counts once."""
        return {target for _, target in self.descriptors if target.startswith("socket:")}

    @property
    def others(self):
        """What is open beside sockets: epolls, eventfds, memfds."""
        return sorted(target for _, target in self.descriptors if not target.startswith("socket:"))


def look(pid="self"):
    """Return what a process holds now; nothing of one that has ended."""
    folder = Path("/proc", str(pid))
    return Facts(
        frozenset(_descriptors(folder)), tuple(_threads(folder)), frozenset(_mapped(folder))
    )


def native_threads(pid="self"):
    """Return the names of Headgate's native threads in a process."""
    return sorted(name for name in look(pid).threads if name.startswith("headgate"))


def listening():
    """Return the sockets of this machine that listen on a port, as descriptors name them."""
    return {f"socket:[{fields[9]}]" for fields in _tcp() if fields[3] == "0A"}


def connected(port, peer):
    """Return the sockets at the end ``port`` of connections to the port ``peer``."""
    found = set()
    for fields in _tcp():
        ends = [int(fields[i].rpartition(":")[2], 16) for i in (1, 2)]
        if ends == [port, peer] and fields[9] != "0":  # 0: closed, nobody's any more
            found.add(f"socket:[{fields[9]}]")
    return found


def python_threads(pid):
    """Return the names of Headgate's Python threads in another process, by py-spy."""
    tool = py_spy()
    assert tool is not None, "py-spy is missing: it is one of the packages of the extra `test`"
    dump = subprocess.run(
        [tool, "dump", "--json", "--pid", str(pid)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    if dump.returncode:
        return []  # it ended meanwhile
    names = (thread.get("thread_name") or "" for thread in json.loads(dump.stdout))
    return sorted(name for name in names if name.startswith("headgate"))


def py_spy():
    """Return the path of py-spy, None where it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _tcp():
    return [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]


def _descriptors(folder):
    for entry in _listing(folder / "fd"):
        try:
            target = str(entry.readlink())
        except OSError:  # the listing's own, or closed just now
            continue
        if target.startswith(DESCRIPTORS):
            yield int(entry.name), target


def _threads(folder):
    for entry in _listing(folder / "task"):
        if entry.name == folder.resolve().name:
            continue
        try:
            name = (entry / "comm").read_text().strip()
        except OSError:  # it ended just now
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
