"""The facts of a process and its machine.

This runs where headgate may be missing. So Spark gets it by value, and it imports the standard library only; other
packages it merely tries. Each fact is found by itself: one that cannot be found is missing, and ``problems`` says why.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import socket
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

#: Bytes written to each local directory, and the seconds after which a slow one has shown enough.
PROBE: Final = 16 << 20
_CHUNK: Final = 1 << 20
_LONGEST_WRITE: Final = 5.0
_LIMITS: Final = ("nofile", "nproc", "as")
_PACKAGES: Final = ("headgate", "pyarrow", "pyspark")


def facts(directories: tuple[str, ...], tls: dict[str, str]) -> dict[str, Any]:
    """Return plain values.

    Args:
        directories: local directories to write 16 MB to; nothing is left of it.
        tls: paths of ``tls_ca``, ``tls_certificate`` and ``tls_key``; empty if there are none.
    """
    values: dict[str, Any] = {
        "at": time.time(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "machine": platform.machine(),
        "problems": [],
    }
    steps = {
        "libc": lambda: " ".join(platform.libc_ver()).strip(),
        "executor": executor_id,
        "limits": _limits,
        "memfd_error": _memfd_error,
        "cgroup": _cgroup,
        "memory_available": _memory_available,
        "disks": lambda: [_disk(directory) for directory in directories],
        "tls": lambda: _tls(tls) if tls else {},
    }
    for name, step in steps.items():
        try:
            values[name] = step()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - a fact less, and the others are found
            values["problems"].append(f"{name}: {type(error).__name__}: {error}")
    for name in _PACKAGES:
        try:
            values[name] = importlib.import_module(name).__version__
        except Exception as error:  # noqa: BLE001 - a broken package may raise anything
            values[name], values[f"{name}_error"] = None, f"{type(error).__name__}: {error}"
    return values


def executor_id() -> str | None:
    """Return the id of the executor whose JVM is above this process; None if there is none."""
    process = os.getppid()
    while process > 1:
        folder = Path("/proc", str(process))
        arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        if "--executor-id" in arguments:
            return arguments[arguments.index("--executor-id") + 1]
        status = (folder / "status").read_text(encoding="utf-8")
        process = int(status.partition("PPid:")[2].split()[0])
    return None


def _limits() -> dict[str, int | None]:
    """Return the limits in force; None for one that is not set."""
    import resource  # noqa: PLC0415 - Windows has none

    limits: dict[str, int | None] = {}
    for name in _LIMITS:
        soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
        limits[name] = None if soft == resource.RLIM_INFINITY else soft
    limits["pids"] = _least("pids", "pids.max")
    return limits


def _memfd_error() -> str | None:
    """Return why memory cannot be shared by a file without a name; None if it can."""
    try:
        descriptor = os.memfd_create("headgate-doctor", os.MFD_CLOEXEC)
    except OSError as error:
        return str(error)
    try:
        os.ftruncate(descriptor, 1)
        os.pwrite(descriptor, b"x", 0)
    except OSError as error:
        return str(error)
    finally:
        os.close(descriptor)
    return None


def _cgroup() -> dict[str, int | None]:
    """Return the limit of memory of the container; None if there is none."""
    limit = _least("memory", "memory.max", "memory.limit_in_bytes")
    # The first version has a very large number where there is no limit.
    return {"limit": limit if limit is not None and limit < 1 << 60 else None}


def _least(controller: str, *names: str) -> int | None:
    """Return the smallest value of these files in the groups of this process; None if there is none."""
    limits = []
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup", controllers and controller)
        inner = Path(str(root) + group)
        for folder in [inner, *inner.parents]:
            for name in names:
                with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                    limits.append(int((folder / name).read_text(encoding="ascii")))
            if folder == root:
                break
    return min(limits, default=None)


def _memory_available() -> int:
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    return int(text.partition("MemAvailable:")[2].split()[0]) * 1024


def _disk(directory: str) -> dict[str, Any]:
    """Return room, access and speed of a directory, or the error."""
    values: dict[str, Any] = {"path": directory}
    try:
        room = os.statvfs(directory)
        values["free"] = room.f_bavail * room.f_frsize
        values["access"] = {"others": _others(Path(directory))}
        values["bytes_per_second"] = _speed(directory)
    except OSError as error:
        values["error"] = error.strerror or str(error)
    return values


def _others(directory: Path) -> int:
    """Return 1 if users who are neither the owner nor in the group may list the directory and read below it."""
    modes = [folder.stat().st_mode for folder in (directory, *directory.resolve().parents)]
    return int(all(mode & 0o001 for mode in modes) and bool(modes[0] & 0o005 == 0o005))


def _speed(directory: str) -> float:
    """Write a file without a name; return bytes per second, until they are on the disk."""
    data = os.urandom(_CHUNK)
    with tempfile.TemporaryFile(dir=directory, prefix="headgate-doctor-") as file:
        start, written = time.monotonic(), 0
        while written < PROBE and time.monotonic() - start < _LONGEST_WRITE:
            written += file.write(data)
        file.flush()
        os.fsync(file.fileno())
        return written / max(1e-6, time.monotonic() - start)


def _tls(paths: dict[str, str]) -> dict[str, Any]:
    """Shake hands with oneself by these files; return the days that the certificate is valid, or the error."""
    try:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(paths["tls_certificate"], paths["tls_key"])
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False  # the names in certificates are not compared
        client.load_verify_locations(paths["tls_ca"])
        ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
        accepting = server.wrap_bio(ours, theirs, server_side=True)
        dialing = client.wrap_bio(theirs, ours)
        for side in (dialing, accepting, dialing):
            with contextlib.suppress(ssl.SSLWantReadError):  # it waits for the other side
                side.do_handshake()
        end = (dialing.getpeercert() or {})["notAfter"]
        return {"days": max(0.0, (ssl.cert_time_to_seconds(str(end)) - time.time()) / 86_400)}
    except (OSError, KeyError, ValueError) as error:  # ssl.SSLError is an OSError
        return {"error": f"{type(error).__name__}: {error}"}
