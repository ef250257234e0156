"""A dictionary by exchange and stage with bounded memory. No sockets, no Spark."""

from __future__ import annotations

from typing import Final, TypeVar

#: Most (exchange, stage) pairs that are kept at once.
_MOST: Final = 1000

_T = TypeVar("_T")


class BoundedDict(dict[tuple[bytes, int], _T]):
    """One value per (exchange, stage). The first value stays, the oldest pairs are evicted."""

    def add(self, key: tuple[bytes, int], value: _T) -> None:
        """Add a value, unless the key has one."""
        self.setdefault(key, value)
        while len(self) > _MOST:
            del self[next(iter(self))]
