"""Heartbeats between a worker and the coordinator.

They come from native threads on both ends: a program or a function that holds Python's lock for a
minute is busy, not lost; a process that is stopped, or whose host is gone, is silent. Each control
connection has a second one beside it, which carries a HEARTBEAT message and then nothing but beats.
See ``docs/adr/0007-heartbeats.md``.

Decision: ADR 0007.
"""

from __future__ import annotations

import math
import socket
from typing import Final

from headgate._native import HeartbeatManager

#: Unanswered probes of an idle connection before the kernel gives it up.
_PROBES: Final = 4


class Heartbeats:
    """One end of some heartbeats, and the native thread that sends and hears them."""

    def __init__(self) -> None:
        self._native = HeartbeatManager()
        # A descriptor that passes through a Unix socket changes hands without unsafe code.
        self._door = socket.socket(fileno=self._native.door())

    def hand_over(self, sock: socket.socket, timeout: float) -> int:
        """Beat on a connected socket and listen to it; ``sock`` itself is closed.

        Args:
            sock: on which both ends have proved themselves.
            timeout: seconds of silence after which the other end is taken for lost.

        Returns:
            The number of the other end, for the other methods.

        Raises:
            OSError: this process has too many open files.
        """
        with sock:
            socket.send_fds(self._door, [b"\0"], [sock.fileno()])
            return self._native.monitor(timeout)

    def silence(self, target: int) -> float | None:
        """Return for how many seconds another end has been silent, if it is taken for lost."""
        return self._native.silence(target) if self._native.num_silent else None

    def let_go(self, target: int) -> None:
        """Listen to another end no longer, and hang up."""
        self._native.unmonitor(target)

    def close(self) -> None:
        """End the thread and all connections."""
        self._native.close()
        self._door.close()


def keep_alive(sock: socket.socket, timeout: float) -> None:
    """Let the kernel find out about a host that is gone, soon after heartbeats would have.

    There is no ``TCP_USER_TIMEOUT``: it would also end a connection whose other end is alive and
    does not come to read.

    Args:
        sock: a TCP socket.
        timeout: seconds of the heartbeats.
    """
    idle = min(32_767, max(1, math.ceil(timeout)))  # what Linux takes
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, idle // _PROBES))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
