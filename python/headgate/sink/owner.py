"""Which process a job belongs to, so that another one can tell whether it is still alive."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, named so that no other one is ever taken for it.

    Attributes:
        host: the machine's name.
        boot: Linux's id of the machine's last start.
        namespace: the namespace that the process id counts in; containers have their own.
        pid: the process id.
        started: when the process started, in ticks since the boot.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Owner | None:
        """Return a living process of this machine; None where that cannot be found out."""
        stat = _stat(pid)
        if stat is None:
            return None
        return cls(*_here(), pid, int(stat[19]))

    @classmethod
    def of_ancestor(cls, name: str) -> Owner | None:
        """Return the nearest process above this one that runs a program of a name, or None."""
        pid = os.getpid()
        while pid > 1:
            stat = _stat(pid)
            if stat is None:
                return None
            pid = int(stat[1])
            try:
                found = (_PROC / str(pid) / "comm").read_text(encoding="utf-8").strip()
            except OSError:
                return None
            if found == name:
                return cls.of(pid)
        return None

    @property
    def is_alive(self) -> bool | None:
        """Whether the process lives; None when it cannot be seen from here."""
        if (self.host, self.boot, self.namespace) != _here():
            return None
        stat = _stat(self.pid)
        # A killed process whose parent has not asked for its end yet is in state Z.
        return stat is not None and int(stat[19]) == self.started and stat[0] not in {"Z", "X"}

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def _here() -> tuple[str, str, str]:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        namespace = os.readlink(_PROC / "self/ns/pid")  # noqa: PTH115 - no path, a name
    except OSError:
        return socket.gethostname(), "", ""
    return socket.gethostname(), boot, namespace


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third (the state) on."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
