"""Which splits were assigned since which checkpoint: what goes back when a reader is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class SplitAssignmentTracker(Generic[T]):
    """Remembers what readers were given, until a checkpoint that covers it is complete.

    Flink's ``SplitAssignmentTracker``: assignments since the last checkpoint, and one such set per
    checkpoint that is taken and not complete.
    """

    def __init__(self) -> None:
        self._latest: dict[int, list[T]] = {}
        self._by_checkpoint: dict[int, dict[int, list[T]]] = {}
        self._complete = 0

    @property
    def complete_checkpoint(self) -> int:
        """The latest checkpoint that is complete; 0 before the first."""
        return self._complete

    def record(self, assignment: Mapping[int, Iterable[T]]) -> None:
        """Remember splits given to readers, by their numbers."""
        for subtask, splits in assignment.items():
            self._latest.setdefault(subtask, []).extend(splits)

    def snapshot(self, checkpoint_id: int) -> None:
        """Begin a checkpoint: what was assigned until now belongs to it.

        Raises:
            ValueError: a number that is not greater than those before.
        """
        if checkpoint_id <= max(self._by_checkpoint, default=self._complete):
            raise ValueError(f"checkpoint {checkpoint_id} does not follow the one before")
        self._by_checkpoint[checkpoint_id] = self._latest
        self._latest = {}

    def complete(self, checkpoint_id: int) -> None:
        """Forget what this checkpoint and the ones before cover: readers have it in their states."""
        for old in [i for i in self._by_checkpoint if i <= checkpoint_id]:
            del self._by_checkpoint[old]
        self._complete = max(self._complete, checkpoint_id)

    def reset(self, subtask: int, checkpoint_id: int) -> list[T]:
        """Return and forget what a reader got after a checkpoint, in the order of assignment."""
        later = (i for i in sorted(self._by_checkpoint) if i > checkpoint_id)
        back = [s for i in later for s in self._by_checkpoint[i].pop(subtask, ())]
        return back + self._latest.pop(subtask, [])

    def assigned_since(self, checkpoint_id: int) -> Mapping[int, Sequence[T]]:
        """Return what all readers got after a checkpoint, without forgetting it."""
        assigned: dict[int, list[T]] = {}
        for later in (i for i in sorted(self._by_checkpoint) if i > checkpoint_id):
            for subtask, splits in self._by_checkpoint[later].items():
                assigned.setdefault(subtask, []).extend(splits)
        for subtask, splits in self._latest.items():
            assigned.setdefault(subtask, []).extend(splits)
        return assigned
