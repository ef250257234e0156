"""Connections whose peers have not proved themselves yet. Their number is limited, and no address crowds out another."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Final

#: Most connections that have named no exchange, and no streaming job, of this process.
MAX_STRANGERS: Final = 64
#: Most connections that have named one. Its number is known to its tasks, and to who reads the network.
MAX_NAMED: Final = 256


class _Pool:
    """Connections by their host, the oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._hosts: defaultdict[str, OrderedDict[int, None]] = defaultdict(OrderedDict)
        self._count = 0

    def add(self, number: int, host: str) -> int | None:
        """Add a connection. If there are too many, remove and return the oldest of the host with the most."""
        self._hosts[host][number] = None
        self._count += 1
        if self._count <= self._limit:
            return None
        crowd = max(self._hosts, key=lambda name: len(self._hosts[name]))
        oldest = next(iter(self._hosts[crowd]))
        self.discard(oldest, crowd)
        return oldest

    def discard(self, number: int, host: str) -> None:
        """Remove a connection, if it is here."""
        numbers = self._hosts.get(host)
        if numbers is None or number not in numbers:
            return
        del numbers[number]
        self._count -= 1
        if not numbers:
            del self._hosts[host]


class Newcomers:
    """Connections before their proof: those that named an exchange or job of this process, and all others.

    Each method that adds one returns the number of a connection that must be closed to make room, or None.
    """

    def __init__(self) -> None:
        self._strangers = _Pool(MAX_STRANGERS)
        self._named = _Pool(MAX_NAMED)

    def came(self, number: int, host: str) -> int | None:
        """Add a new connection from a host."""
        return self._strangers.add(number, host)

    def named(self, number: int, host: str) -> int | None:
        """Move a connection to those that named an exchange."""
        self._strangers.discard(number, host)
        return self._named.add(number, host)

    def left(self, number: int, host: str) -> None:
        """Forget a connection that has proved itself or is closed."""
        self._strangers.discard(number, host)
        self._named.discard(number, host)
