"""Splits that wait for a reader, ordered by host and size."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.source.files.split import FileSplit

_Entry = tuple[int, str]


class PendingSplits:
    """A set of splits, ordered by size for the whole cluster and for each host.

    Large splits come first, so that the last ones are small and all readers end at about the same
    time. Each split has an entry in several orders; an entry of a taken split is skipped.
    """

    def __init__(self, splits: Iterable[FileSplit] = ()) -> None:
        self._splits: dict[str, FileSplit] = {}
        self._largest: list[_Entry] = []
        self._on_host: dict[str, list[_Entry]] = {}
        self.add(splits)

    def __len__(self) -> int:
        """Return the number of splits."""
        return len(self._splits)

    def add(self, splits: Iterable[FileSplit]) -> None:
        """Add splits: new ones, or those of a lost reader."""
        for split in splits:
            self._splits[split.split_id] = split
            entry = (-split.size, split.split_id)
            heapq.heappush(self._largest, entry)
            for host in split.hosts:
                heapq.heappush(self._on_host.setdefault(host.lower(), []), entry)

    def take(self, host: str | None) -> FileSplit | None:
        """Remove and return the largest split, on ``host`` if possible; None if there is none."""
        local = self._on_host.get(host.lower(), []) if host else []
        return self._pop(local) or self._pop(self._largest)

    def all(self) -> tuple[FileSplit, ...]:
        """Return the splits in the order of their arrival."""
        return tuple(self._splits.values())

    def _pop(self, order: list[_Entry]) -> FileSplit | None:
        while order:
            split = self._splits.pop(heapq.heappop(order)[1], None)
            if split is not None:
                return split
        return None
