"""Starts the host of this executor, if there is none, and finds its address; in a producer. ADR 0023."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import headgate
from headgate import _options
from headgate.errors import ConnectError
from headgate.spark.tasks.host import ADDRESS, LOCK
from headgate.spark.tasks.kept_files import folders_of, is_own, owned

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds in which a host must have written its address.
_START: Final = 20.0
_PAUSE: Final = 0.02
#: Seconds of one attempt to connect.
_DIAL: Final = 5.0
#: The argument of an executor's JVM before its id.
_ID: Final = "--executor-id"
#: File beside the lock that gets what the host prints.
_LOG: Final = "host.log"
#: Variables that a Python may need to find its libraries.
_INHERITED: Final = ("LD_LIBRARY_PATH",)
#: Leaves the worker that started it, and loads the host's module without the packages above it, which import pyarrow.
_BOOT: Final = """
import os, sys, types
if os.fork():
    os._exit(0)
for name in ("headgate", "headgate.spark"):
    package = types.ModuleType(name)
    package.__path__ = [sys.argv[1] + name.replace("headgate", "", 1).replace(".", "/")]
    sys.modules[name] = package
from headgate.spark.tasks.host import main
main()
"""


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The values that a producer needs to start a host; a part of its task.

    Attributes:
        application: 16 bytes that name the application to the hosts.
        secret: 32 bytes that its hosts and consumers share.
        driver: the driver's address; hosts listen on the way to it.
        tls: the options of TLS of hosts and consumers.
    """

    application: bytes
    secret: bytes = field(repr=False)
    driver: str = ""
    tls: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostAddress:
    """The address of a host.

    Attributes:
        host: its IP address.
        port: its port.
        process: name of its process, 16 bytes in hex.
        executor: Spark's id of the executor whose output it serves; empty if it is not known.
    """

    host: str
    port: int
    process: str
    executor: str = ""


def ensure(plan: HostPlan, directories: Sequence[str]) -> HostAddress:
    """Return the address of this executor's host; start one if there is none.

    Call it after the partition's files have their names: a host that ends because it has no file
    cannot miss them then.

    Args:
        plan: of the exchange.
        directories: Spark's local directories on this executor.

    Raises:
        ConnectError: the host did not start.
    """
    folder = owned(folders_of(directories)[0])
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline:
        _start_if_none(plan, folder, directories)
        address = _address(folder)
        if address is not None:
            return address
        time.sleep(_PAUSE)
    raise ConnectError(
        f"the host of this executor did not start within {_START:g} s",
        have=_last_words(folder),
        remedy=f"see the log {folder / _LOG}",
    )


def revive(plan: HostPlan, directories: Sequence[str]) -> None:
    """Start the host of this executor again, at the address that consumers know, if all its processes were killed."""
    for folder in folders_of(directories)[:1]:
        if is_own(folder) and (folder / ADDRESS).exists():
            _start_if_none(plan, folder, directories)


def refuses(host: str, port: int, seconds: float) -> bool:
    """Return True if nobody listens at a host's address, nor does in so many seconds: a killed host comes back there."""
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), _DIAL).close()
        except ConnectionRefusedError:
            if time.monotonic() >= end:
                return True
            time.sleep(_PAUSE)
        except OSError:
            return False  # the network may be at fault
        else:
            return False


def _start_if_none(plan: HostPlan, folder: Path, directories: Sequence[str]) -> None:
    """Start a host unless one lives; at the address of the one before, if that was killed."""
    with (folder / LOCK).open("a") as lock:
        if _locked(lock.fileno()):
            before = _address(folder)
            (folder / ADDRESS).unlink(missing_ok=True)
            _start(plan, folder, directories, lock.fileno(), before)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _address(folder: Path) -> HostAddress | None:
    try:
        fields: dict[str, Any] = json.loads((folder / ADDRESS).read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    return HostAddress(**fields)


def _start(
    plan: HostPlan,
    folder: Path,
    directories: Sequence[str],
    lock: int,
    before: HostAddress | None,
) -> None:
    """Start a host that inherits the lock, and has nothing else of this process."""
    listen = f"{_own_address(plan.driver)}:0"
    options = _options.resolve("environment", {"listen": listen, **plan.tls})
    jvm, executor = _executor()
    config = {
        "application": plan.application.hex(),
        "secret": plan.secret.hex(),
        "options": {**options, "temp_directories": [], "same_host_link": "off"},
        "directories": list(directories),
        "folder": str(folder),
        "jvm": jvm,
        "executor": executor,
        "before": None if before is None else asdict(before),
    }
    package = str(Path(headgate.__file__).parent)
    with (folder / _LOG).open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", "-c", _BOOT, package],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd="/",
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
            pass_fds=[lock],
            start_new_session=True,
        )
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    with contextlib.suppress(BrokenPipeError), process.stdin:  # its log says why it ended
        process.stdin.write(json.dumps(config).encode("ascii"))
    process.wait()


def _own_address(driver: str) -> str:
    """Return this host's address on the way to the driver. No packet is sent."""
    info = socket.getaddrinfo(driver, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(info[0], socket.SOCK_DGRAM) as probe:
        probe.connect(info[4])
        return str(probe.getsockname()[0])


def _executor() -> tuple[int | None, str]:
    """Return the JVM above this process, and Spark's id of its executor; nothing if there is none, as when its daemon has died."""
    process = os.getppid()
    while process > 1:
        folder = Path("/proc", str(process))
        if (folder / "comm").read_text(encoding="utf-8").strip() == "java":
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            named = arguments[arguments.index(_ID) + 1] if _ID in arguments else ""
            return process, named
        status = (folder / "status").read_text(encoding="utf-8")
        process = int(status.partition("PPid:")[2].split()[0])
    return None, ""


def _last_words(folder: Path) -> str:
    with contextlib.suppress(OSError):
        lines = (folder / _LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it wrote no log"
    return "it wrote no log"
