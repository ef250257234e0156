"""What is remembered of exchanges and stages, in bounded memory. No sockets, no Spark."""

from __future__ import annotations

from typing import Final, TypeVar

#: Most (exchange, stage) pairs that are remembered at once.
_MOST: Final = 1000

_T = TypeVar("_T")


class Remembered(dict[tuple[bytes, int], _T]):
    """Something per (exchange, stage): the first word stays, the oldest pairs are forgotten."""

    def note(self, key: tuple[bytes, int], value: _T) -> None:
        """Remember a value, unless there is one."""
        self.setdefault(key, value)
        while len(self) > _MOST:
            del self[next(iter(self))]
