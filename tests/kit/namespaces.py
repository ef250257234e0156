"""Hosts with addresses of their own: network namespaces around a switch.

The switch is a bridge in its own namespace. So the machine's namespace is not changed, and deleting
the namespaces deletes every link. Needs root and ``ip`` of iproute2.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import pytest

#: Prefix of namespaces and folders. A pid follows, so those of a killed process can be recognized.
PREFIX = "headgate-"
#: Addresses reserved for network tests (RFC 2544). This machine has no route to them.
SUBNET = "198.18.0.{}"
BRIDGE = "bridge"
#: Addresses of the fixture ``hosts``.
ADDRESSES = (SUBNET.format(2), SUBNET.format(3))
#: Seconds within which killed processes must end.
GONE = 20.0


def why_not() -> str:
    """Return the reason that this machine cannot have hosts; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need ip: apt-get install iproute2"
    name = f"{PREFIX}{os.getpid()}-try"
    done = subprocess.run(
        ["ip", "netns", "add", name], capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode:
        return f"ip netns does not work here: {done.stderr.strip()}"
    delete(name)
    return ""


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


def named() -> list[str]:
    """Return the namespaces of this and of earlier processes."""
    names = [line.split()[0] for line in ip("netns", "list").splitlines() if line.strip()]
    return [name for name in names if name.startswith(PREFIX)]


def pids_in(name: str) -> list[int]:
    return [int(word) for word in ip("netns", "pids", name).split()]


def kill_all(name: str) -> None:
    """Kill all processes in a namespace."""
    end = time.monotonic() + GONE
    while pids := pids_in(name):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the process may have ended
                os.kill(pid, signal.SIGKILL)
        assert time.monotonic() < end, f"{pids} in {name} cannot be killed"
        time.sleep(0.05)


def delete(name: str) -> None:
    """Kill all processes in a namespace, then delete it with all its links."""
    kill_all(name)
    ip("netns", "delete", name)


def sweep() -> list[str]:
    """Delete the namespaces and folders of killed tests; return the names of the namespaces."""
    stale = [name for name in named() if is_stale(name)]
    for name in stale:
        delete(name)
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        if is_stale(folder.name):
            shutil.rmtree(folder)
    return stale


def is_stale(name: str) -> bool:
    owner = re.match(rf"{PREFIX}(\d+)-", name)
    return owner is not None and not Path(f"/proc/{owner[1]}").exists()


class Network:
    """Hosts on one switch. The context manager's exit kills all processes and deletes all hosts.

    Args:
        hosts: names of the hosts. The address of the first one ends with 2.
    """

    def __init__(self, *hosts: str) -> None:
        self._prefix = f"{PREFIX}{os.getpid()}-{secrets.token_hex(3)}-"
        self.addresses = {host: SUBNET.format(n) for n, host in enumerate(hosts, 2)}

    def __enter__(self) -> Self:
        sweep()
        try:
            self._lay()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def names(self) -> list[str]:
        """Return the existing namespaces of this network."""
        return [name for name in named() if name.startswith(self._prefix)]

    def name(self, host: str) -> str:
        """Return the name of a host's namespace."""
        return self._prefix + host

    def start(self, host: str, command: list[str], **options) -> subprocess.Popen:
        """Start a process on a host, which has the host's name."""
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]
        return subprocess.Popen(
            [*self.on(host), *named, *command], start_new_session=True, **options
        )

    def on(self, host: str) -> list[str]:
        """Return the prefix of a command that runs on a host."""
        return ["ip", "netns", "exec", self.name(host)]

    def cut(self, host: str) -> None:
        """Take the link of a host down at the switch. Bytes are lost, and no connection ends."""
        ip("-n", self.name("switch"), "link", "set", "dev", host, "down")

    def mend(self, host: str) -> None:
        """Take the link up again."""
        ip("-n", self.name("switch"), "link", "set", "dev", host, "up")

    def connections(self, host: str, program: str) -> list[str]:
        """Return the TCP connections to other hosts of a host's processes with this name."""
        said = subprocess.run(
            [*self.on(host), "ss", "-Htnp"],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout.splitlines()
        here = (self.addresses[host], "127.0.0.1", "[::ffff:127.0.0.1]", "[::1]")
        rows = [line for line in said if f'(("{program}' in line]
        return [row for row in rows if not row.split()[4].rpartition(":")[0].endswith(here)]

    def pids(self, host: str) -> list[int]:
        """Return the processes of a host."""
        return pids_in(self.name(host))

    def kill(self, host: str) -> None:
        """Kill all processes of a host."""
        kill_all(self.name(host))

    def close(self) -> None:
        """Kill all processes on the hosts and delete the hosts. May be called twice."""
        for name in self.names():
            delete(name)

    def _lay(self) -> None:
        switch = self.name("switch")
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", BRIDGE, "type", "bridge")
        ip("-n", switch, "link", "set", BRIDGE, "up")
        for host, address in self.addresses.items():
            name = self.name(host)
            ip("netns", "add", name)
            link = ("link", "add", "eth0", "netns", name, "type", "veth")
            ip(*link, "peer", "name", host, "netns", switch)
            ip("-n", switch, "link", "set", "dev", host, "master", BRIDGE, "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")


@pytest.fixture
def hosts():
    """Yield a network of two hosts, "first" and "second"."""
    if reason := why_not():
        pytest.skip(reason)
    with Network("first", "second") as network:
        yield network
