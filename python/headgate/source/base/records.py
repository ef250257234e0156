"""What one ``fetch()`` returns: records of some splits, and which splits ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from headgate.errors import SourceError

E = TypeVar("E")


class RecordsWithSplitIds(ABC, Generic[E]):
    """A batch of elements, split after split, in the order in which they are to be emitted."""

    @abstractmethod
    def next_split(self) -> str | None:
        """Move to the next split and return its id; None when there is no further one."""

    @abstractmethod
    def next_record_from_split(self) -> E | None:
        """Return the next element of the current split; None when there is no further one."""

    @abstractmethod
    def finished_splits(self) -> frozenset[str]:
        """Return the splits that end with this batch; they need not have records in it."""

    def recycle(self) -> None:
        """Give back what the batch held; called once, after its last element was emitted.

        When a reader is closed early, batches that it has not emitted are given back as well, and
        that may be after the split reader was closed.
        """


class RecordsBySplits(RecordsWithSplitIds[E]):
    """A batch that holds its elements in sequences.

    Args:
        records: split id -> its elements; no element may be None.
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
