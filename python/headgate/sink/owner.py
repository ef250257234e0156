"""The process that runs a job, identified so that other processes can check if it is alive."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Owner:
    """The identity of a process, unique across machines and reboots.

    Attributes:
        host: the machine's name.
        boot: Linux's id of the machine's last boot.
        namespace: the namespace of the process id; containers have their own.
        pid: the process id.
        started: start time of the process, in ticks since the boot.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Owner | None:
        """Return the identity of a process of this machine; None if it cannot be found."""
        stat = _stat(pid)
        if stat is None:
            return None
        return cls(*_here(), pid, int(stat[19]))

    @classmethod
    def of_ancestor(cls, name: str) -> Owner | None:
        """Return the nearest ancestor of this process that runs a program, by name, or None."""
        pid = os.getpid()
        while pid > 1:
            stat = _stat(pid)
            if stat is None:
                return None
            pid = int(stat[1])
            try:
                program = (_PROC / str(pid) / "comm").read_text(encoding="utf-8").strip()
            except OSError:
                return None
            if program == name:
                return cls.of(pid)
        return None

    @property
    def is_alive(self) -> bool | None:
        """True while the process runs; None if that cannot be checked from here."""
        if (self.host, self.boot, self.namespace) != _here():
            return None
        stat = _stat(self.pid)
        # A killed process is in state Z until its parent waits for it.
        return stat is not None and int(stat[19]) == self.started and stat[0] not in {"Z", "X"}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return asdict(self)


def _here() -> tuple[str, str, str]:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        namespace = os.readlink(_PROC / "self/ns/pid")  # noqa: PTH115 - not a path
    except OSError:
        return socket.gethostname(), "", ""
    return socket.gethostname(), boot, namespace


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command, so the state is at index 0."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
