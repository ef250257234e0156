"""The base of sources whose splits are plain data: a function opens a split, one enumerator hands all of them out."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from headgate.source.api import (
    JsonSerializer,
    SimpleVersionedSerializer,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from headgate.source.sequential import BatchSourceReader, Pace, Positioned, SequentialSplitReader

SplitT = TypeVar("SplitT", bound=SourceSplit)


@dataclass(frozen=True, slots=True)
class Unassigned:
    """The splits that no reader has.

    Attributes:
        splits: the fields of each.
        assigned: number of all other splits.
    """

    splits: Sequence[Sequence[Any]] = ()
    assigned: int = 0


class BatchSource(Source[pa.RecordBatch, SplitT, Unassigned]):
    """A source of batches. Its splits are a frozen dataclass of plain fields, with a ``position``.

    Attributes:
        split_type: the dataclass of the splits.
        assigns_at_start: True if a split belongs to the reader ``split.number`` modulo the readers, which gets it when
            it registers; False if readers request splits.
        never_waits: True if the next batch of a split is there at once, so that small ones are handed over together.
    """

    split_type: ClassVar[type[Any]]
    assigns_at_start: ClassVar[bool] = False
    never_waits: ClassVar[bool] = False

    @abstractmethod
    def first_splits(self, readers: int) -> Sequence[SplitT]:
        """Return the splits of a source that starts from the beginning."""

    @abstractmethod
    def open_split(self, split: SplitT, readers: int) -> Iterator[Positioned | None]:
        """Yield the batches of a split from its position on, each with the position after it; None to wait."""

    def cut(self, split: SplitT) -> tuple[SplitT, SplitT | None]:
        """Return the split to assign, and the rest of it that stays here."""
        return split, None

    def count(self, split: SplitT) -> int | None:  # noqa: ARG002 - for overrides
        """Return how many splits :meth:`cut` makes of one; None if it has no end."""
        return 1

    def pace_of(self, readers: int) -> Callable[[SplitT], Pace] | None:  # noqa: ARG002 - for overrides
        """Return a function from a reader's splits to their paces; None for no limit."""
        return None

    def create_enumerator(
        self, context: SplitEnumeratorContext[SplitT]
    ) -> SplitEnumerator[SplitT, Unassigned]:
        """Return an enumerator of all splits."""
        return BatchEnumerator(context, self, self.first_splits(context.current_parallelism), 0)

    def restore_enumerator(
        self, context: SplitEnumeratorContext[SplitT], checkpoint: Unassigned
    ) -> SplitEnumerator[SplitT, Unassigned]:
        """Return an enumerator of the splits that no reader had."""
        splits = [self.split_type(*fields) for fields in checkpoint.splits]
        return BatchEnumerator(context, self, splits, checkpoint.assigned)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[pa.RecordBatch, SplitT]:
        """Return a reader that keeps to its share of the rate, if there is one."""
        readers = context.current_parallelism
        pace_of = self.pace_of(readers)

        def split_reader() -> SequentialSplitReader[SplitT]:
            return SequentialSplitReader(
                lambda split: self.open_split(split, readers),
                pace_of,
                reads_in_order=not self.assigns_at_start,
                never_waits=self.never_waits,
            )

        return BatchSourceReader(split_reader, context)

    @property
    def split_serializer(self) -> SimpleVersionedSerializer[SplitT]:
        """JSON."""
        return JsonSerializer(self.split_type)

    @property
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[Unassigned]:
        """JSON."""
        return JsonSerializer(Unassigned)


class BatchEnumerator(SplitEnumerator[SplitT, Unassigned]):
    """Hands out the splits in their order, those of a lost reader first."""

    def __init__(
        self,
        context: SplitEnumeratorContext[SplitT],
        source: BatchSource[SplitT],
        splits: Sequence[SplitT],
        assigned: int,
    ) -> None:
        self._context, self._source = context, source
        self._splits = deque(splits)
        self._assigned = assigned

    def start(self) -> None:
        """Do nothing."""

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:  # noqa: ARG002 - any host
        """Assign the next split, or signal that there is none."""
        if self._source.assigns_at_start:
            return  # The reader has its splits since it registered.
        if not self._splits:
            self._context.signal_no_more_splits(subtask_id)
            return
        split, rest = self._source.cut(self._splits.popleft())
        if rest is not None:
            self._splits.appendleft(rest)
        self._assign([split], subtask_id)

    def add_splits_back(self, splits: Sequence[SplitT], subtask_id: int) -> None:  # noqa: ARG002 - any reader
        """Keep splits of a lost reader for the next request, or for its successor."""
        self._splits.extendleft(reversed(splits))
        self._assigned -= len(splits)

    def add_reader(self, subtask_id: int) -> None:
        """Assign the reader's splits, if they are assigned at the start, and signal that no more follow."""
        if not self._source.assigns_at_start:
            return
        readers = self._context.current_parallelism
        waiting: list[Any] = list(self._splits)
        splits = [split for split in waiting if split.number % readers == subtask_id]
        self._splits = deque(split for split in waiting if split.number % readers != subtask_id)
        if splits:
            self._assign(splits, subtask_id)
        self._context.signal_no_more_splits(subtask_id)

    def snapshot_state(self, checkpoint_id: int) -> Unassigned:  # noqa: ARG002 - unused
        """Return the splits that no reader has."""
        fields: list[Any] = list(self._splits)
        return Unassigned(tuple(dataclasses.astuple(split) for split in fields), self._assigned)

    @property
    def total_splits(self) -> int | None:
        """The number of splits; None without an end."""
        counts = [self._source.count(split) for split in self._splits]
        return None if None in counts else self._assigned + sum(filter(None, counts))

    def close(self) -> None:
        """Do nothing."""

    def _assign(self, splits: Sequence[SplitT], subtask_id: int) -> None:
        self._assigned += len(splits)
        self._context.assign_splits({subtask_id: splits})
