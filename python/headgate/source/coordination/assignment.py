"""The splits assigned since each checkpoint, which return to the enumerator with a lost reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class SplitAssignmentTracker(Generic[T]):
    """Keeps the assigned splits until a checkpoint that covers them is complete.

    Flink's ``SplitAssignmentTracker``: the assignments since the last checkpoint, and those of each
    checkpoint that is not complete.
    """

    def __init__(self) -> None:
        self._latest: dict[int, list[T]] = {}
        self._by_checkpoint: dict[int, dict[int, list[T]]] = {}
        self._complete = 0

    @property
    def complete_checkpoint(self) -> int:
        """The latest complete checkpoint; 0 before the first."""
        return self._complete

    def record(self, assignment: Mapping[int, Iterable[T]]) -> None:
        """Record the splits assigned to readers, by their numbers."""
        for subtask, splits in assignment.items():
            self._latest.setdefault(subtask, []).extend(splits)

    def snapshot(self, checkpoint_id: int) -> None:
        """Start a checkpoint, which covers all assignments so far.

        Raises:
            ValueError: the number is not greater than all before.
        """
        if checkpoint_id <= max(self._by_checkpoint, default=self._complete):
            raise ValueError(f"checkpoint {checkpoint_id} does not follow the one before")
        self._by_checkpoint[checkpoint_id] = self._latest
        self._latest = {}

    def complete(self, checkpoint_id: int) -> None:
        """Drop the assignments that a checkpoint covers; they are in the readers' states."""
        for old in [i for i in self._by_checkpoint if i <= checkpoint_id]:
            del self._by_checkpoint[old]
        self._complete = max(self._complete, checkpoint_id)

    def reset(self, subtask: int, checkpoint_id: int) -> list[T]:
        """Remove and return a reader's splits since a checkpoint, in the order of assignment."""
        later = (i for i in sorted(self._by_checkpoint) if i > checkpoint_id)
        back = [s for i in later for s in self._by_checkpoint[i].pop(subtask, ())]
        return back + self._latest.pop(subtask, [])
