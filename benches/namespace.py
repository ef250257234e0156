"""Another host on this machine: a network namespace behind a pair of virtual Ethernet devices."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Addresses of this side and of the other one: of a network that is for measurements (RFC 2544).
HERE, THERE = "198.18.91.1", "198.18.91.2"
CLONE_NEWNET = 0x40000000


@contextmanager
def another_host() -> Iterator[str]:
    """Yield the name of a namespace whose processes reach this one at HERE, and are reached at THERE.

    Raises:
        PermissionError: this user may not make one.
    """
    if os.geteuid() != 0:
        raise PermissionError("only root makes network namespaces")
    name = f"headgate-{os.getpid()}"
    ip("netns", "add", name)
    try:
        device = f"hg{os.getpid()}"
        ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{HERE}/30", "dev", device)
        ip("link", "set", device, "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "address", "add", f"{THERE}/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        yield name
    finally:
        ip("netns", "delete", name)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def enter(name: str) -> None:
    """Move this thread, and the threads that it starts, into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (Path("/run/netns") / name).open("rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
