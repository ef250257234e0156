"""Facts of Linux about a process: its host, its peak of memory, and the control group that limits its memory.

Decision: ADR 0052.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")
#: Files with the count "oom_kill", of version 2 and of version 1, and those with the limit.
_COUNTS: Final = ("memory.events", "memory.oom_control")
_LIMITS: Final = ("memory.max", "memory.limit_in_bytes")
#: Version 1 writes a number from this one on if there is no limit.
_NO_LIMIT: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """The control group (cgroup) of a process that counts its memory, of version 1 or 2.

    Attributes:
        host: id of the host, as :func:`host_id` returns it.
        folder: path at which the process sees the group.
        device: of that folder.
        inode: of that folder; with the device the same for each process of the host, also in a container.
        kills: its ``oom_kill``: processes in it that the kernel has killed for want of memory since the group was made.
        limit: bytes; the smallest limit of the group and of those around it, None if there is none.
    """

    host: str
    folder: str
    device: int
    inode: int
    kills: int
    limit: int | None

    @property
    def key(self) -> tuple[str, int, int]:
        """The group among those of all hosts."""
        return self.host, self.device, self.inode


def host_id(proc: Path = _PROC) -> str:
    """Return a name of this host that no other one has, and that a restart changes; empty if unknown."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def peak_resident_bytes() -> int:
    """Return the peak of this process's resident memory since it began or since the last reset; 0 if unknown.

    The peak of getrusage() would count what the process was before it started this program.
    """
    try:
        status = (_PROC / "self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("VmHWM:")[2].split(None, 1)[0]) * 1024
    except (OSError, ValueError, IndexError):
        return 0


def reset_peak() -> bool:
    """Let the peak of this process begin anew at what it has now; return False if the kernel refuses."""
    try:
        (_PROC / "self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def memory_group(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> MemoryGroup | None:
    """Return the group of this process; None if none is seen that counts kills.

    Args:
        proc: the folder /proc.
        cgroups: the folder in which the groups are mounted.
    """
    try:
        lines = (proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        for root in (cgroups / controllers, cgroups / "unified"):
            # A container may not see the folder that its host has for it. Its root is its group then.
            for folder in _and_around(root / path.lstrip("/"), root):
                if (kills := oom_kills(folder)) is not None:
                    place, limit = folder.stat(), _limit(folder, root)
                    host, at = host_id(proc), str(folder)
                    return MemoryGroup(host, at, place.st_dev, place.st_ino, kills, limit)
    return None


def memory_group_now(group: MemoryGroup) -> MemoryGroup | None:
    """Return a group with its count of now; None if this process does not see it, as on another host."""
    folder = Path(group.folder)
    kills = oom_kills(folder) if group.host == host_id() else None
    if kills is None:
        return None
    place = folder.stat()
    is_same = (place.st_dev, place.st_ino) == (group.device, group.inode)
    return replace(group, kills=kills) if is_same else None


def oom_kills(folder: Path) -> int | None:
    """Return the count ``oom_kill`` of the group of a folder; None if it has none."""
    for name in _COUNTS:
        with suppress(OSError, ValueError):
            for line in (folder / name).read_text(encoding="ascii").splitlines():
                key, _, number = line.partition(" ")
                if key == "oom_kill":
                    return int(number)
    return None


def _and_around(folder: Path, root: Path) -> list[Path]:
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


def _limit(folder: Path, root: Path) -> int | None:
    limits = []
    for around in _and_around(folder, root):
        for name in _LIMITS:
            # Version 2 writes "max" if there is none.
            with suppress(OSError, ValueError):
                limits.append(int((around / name).read_text(encoding="ascii")))
    return min((limit for limit in limits if limit < _NO_LIMIT), default=None)
