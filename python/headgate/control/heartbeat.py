"""Heartbeats between a worker and the coordinator.

Native threads send them on both ends. So a program or a function that holds the GIL for a minute is
not taken for lost, but a stopped process or a lost host is. A worker opens a second connection beside
its control connection; it carries one HEARTBEAT message and then only beats.

Decision: ADR 0007.
"""

from __future__ import annotations

import math
import socket
from typing import TYPE_CHECKING, Final

from headgate._native import HeartbeatManager

if TYPE_CHECKING:
    from headgate._native import TlsSession

#: Unanswered keepalive probes after which the kernel closes a connection.
_PROBES: Final = 4


class Heartbeats:
    """The native thread that sends heartbeats to other processes and watches theirs."""

    def __init__(self) -> None:
        self._native = HeartbeatManager()
        # Passing descriptors through a Unix socket gives the thread its own, without unsafe code.
        self._door = socket.socket(fileno=self._native.door())

    def monitor(self, sock: socket.socket, timeout: float, tls: TlsSession | None = None) -> int:
        """Exchange heartbeats on a connected socket; closes this process's ``sock``.

        Args:
            sock: a socket on which both ends have proved themselves.
            timeout: seconds of silence after which the peer counts as lost.
            tls: what encrypts the connection; nobody else can use it from here on.

        Returns:
            The number of the peer, for the other methods.

        Raises:
            OSError: this process has too many open files.
        """
        with sock:
            socket.send_fds(self._door, [b"\0"], [sock.fileno()])
            return self._native.monitor(timeout, tls)

    def silence(self, target: int) -> float | None:
        """Return the seconds for which a peer has been silent, or None if it is not lost."""
        return self._native.silence(target) if self._native.num_silent else None

    def unmonitor(self, target: int) -> None:
        """Stop watching a peer and close its connection."""
        self._native.unmonitor(target)

    def close(self) -> None:
        """End the thread and all connections."""
        self._native.close()
        self._door.close()


def keep_alive(sock: socket.socket, timeout: float) -> None:
    """Let the kernel detect a lost host, soon after the heartbeats would.

    ``TCP_USER_TIMEOUT`` is not set: it would also end a connection to a peer that is alive but does
    not read.

    Args:
        sock: a TCP socket.
        timeout: seconds of silence after which heartbeats take the peer for lost.
    """
    idle = min(32_767, max(1, math.ceil(timeout)))  # the limit of Linux
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, idle // _PROBES))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
