"""A dictionary by exchange and stage with bounded memory. No sockets, no Spark."""

from __future__ import annotations

from typing import Final, TypeVar

#: Most stages of one exchange that are kept at once.
_MOST: Final = 100

_T = TypeVar("_T")


class BoundedDict(dict[tuple[bytes, int], _T]):
    """One value per (exchange, stage). The first value stays, the oldest stages of an exchange are evicted."""

    def add(self, key: tuple[bytes, int], value: _T) -> None:
        """Add a value, unless the key has one. No other exchange loses one."""
        self.setdefault(key, value)
        for oldest in self._of(key[0])[:-_MOST]:
            del self[oldest]

    def drop(self, exchange_id: bytes) -> None:
        """Remove an exchange."""
        for key in self._of(exchange_id):
            del self[key]

    def _of(self, exchange_id: bytes) -> list[tuple[bytes, int]]:
        return [key for key in self if key[0] == exchange_id]
