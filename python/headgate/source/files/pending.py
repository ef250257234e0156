"""Splits that wait for a reader, in the order in which they are handed out."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headgate.source.files.order import Order, key_of

if TYPE_CHECKING:
    from headgate.source.files.split import FileSplit, ListedFile

#: The key of the order of files, the place of the split in it, and the split's id.
_Entry = tuple[Any, int, str]


class PendingSplits:
    """A set of splits in an order: one for the whole cluster and, by size, one for each host.

    Each split has an entry in several orders; an entry of a taken split is skipped.

    Args:
        splits: the first splits.
        order: ``"size"`` for the largest first, or one of files. Splits of a file are in the order of its rows.
    """

    def __init__(self, splits: Iterable[FileSplit] = (), order: Order = "size") -> None:
        self._splits: dict[str, FileSplit] = {}
        self._key = key_of(order)
        self._is_by_size = order == "size"
        self._ordered: list[_Entry] = []
        self._on_host: dict[str, list[_Entry]] = {}
        self.add(splits)

    def __len__(self) -> int:
        """Return the number of splits."""
        return len(self._splits)

    def add(self, splits: Iterable[FileSplit]) -> None:
        """Add splits: new ones, or those of a lost reader."""
        for split in splits:
            self._splits[split.split_id] = split
            place = 0 if self._is_by_size else split.start
            entry = (self._key(split), place, split.split_id)
            heapq.heappush(self._ordered, entry)
            for host in split.hosts if self._is_by_size else ():
                heapq.heappush(self._on_host.setdefault(host.lower(), []), entry)

    def take(self, host: str | None, before: ListedFile | None = None) -> FileSplit | None:
        """Remove and return the first split, of those on ``host`` if there is one; None if there is none.

        Args:
            host: of the reader; only by size.
            before: a file whose splits are not known yet, and which they must not overtake; ignored by size.
        """
        if self._is_by_size:
            local = self._on_host.get(host.lower(), []) if host else []
            return self._pop(local) or self._pop(self._ordered)
        while self._ordered and self._ordered[0][2] not in self._splits:
            heapq.heappop(self._ordered)
        if before is not None and self._ordered and self._ordered[0][0] > self._key(before):
            return None
        return self._pop(self._ordered)

    def all(self) -> tuple[FileSplit, ...]:
        """Return the splits in the order of their arrival."""
        return tuple(self._splits.values())

    def _pop(self, order: list[_Entry]) -> FileSplit | None:
        while order:
            split = self._splits.pop(heapq.heappop(order)[2], None)
            if split is not None:
                return split
        return None
