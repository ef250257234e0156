"""The result of a ``fetch()``: records by split, and the splits that ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from headgate.errors import SourceError

E = TypeVar("E")


class RecordsWithSplitIds(ABC, Generic[E]):
    """A batch of elements, split by split, in the order of their emission."""

    @abstractmethod
    def next_split(self) -> str | None:
        """Move to the next split and return its id; None after the last one."""

    @abstractmethod
    def next_record_from_split(self) -> E | None:
        """Return the next element of the current split; None after the last one."""

    @abstractmethod
    def finished_splits(self) -> frozenset[str]:
        """Return the splits that end with this batch, with or without records in it."""

    def recycle(self) -> None:
        """Release the batch's resources; called once, after its last element was emitted.

        A reader that is closed early also recycles batches that it has not emitted, possibly after
        the split reader was closed.
        """


class RecordsBySplits(RecordsWithSplitIds[E]):
    """A batch whose elements are in sequences.

    Args:
        records: split id -> elements of the split; no element may be None.
        finished: ids of the splits that end with this batch.
    """

    def __init__(self, records: Mapping[str, Sequence[E]], finished: Iterable[str] = ()) -> None:
        self._splits = iter(list(records.items()))
        self._records: Iterator[E] | None = None
        self._finished = frozenset(finished)

    def next_split(self) -> str | None:
        """Move to the next split and return its id."""
        split_id, records = next(self._splits, (None, ()))
        self._records = None if split_id is None else iter(records)
        return split_id

    def next_record_from_split(self) -> E | None:
        """Return the next element of the current split.

        Raises:
            SourceError: there is no current split.
        """
        if self._records is None:
            raise SourceError(
                "next_record_from_split() without a current split",
                remedy="call next_split() first, and stop when it returns None",
            )
        return next(self._records, None)

    def finished_splits(self) -> frozenset[str]:
        """Return the splits that end with this batch."""
        return self._finished
