"""The usual base of a reader: one thread reads all splits with one split reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headgate.source.api.split import SourceSplit
from headgate.source.base.manager import SingleThreadFetcherManager
from headgate.source.base.queue import DEFAULT_CAPACITY
from headgate.source.base.reader import SourceReaderBase

if TYPE_CHECKING:
    from headgate.source.api.reader import SourceReaderContext
    from headgate.source.base.emitter import RecordEmitter
    from headgate.source.base.split_reader import SplitReader

E = TypeVar("E")
T = TypeVar("T")
SplitT = TypeVar("SplitT", bound=SourceSplit)
StateT = TypeVar("StateT")


class SingleThreadMultiplexSourceReaderBase(SourceReaderBase[E, T, SplitT, StateT]):
    """A reader whose splits are all read by one split reader, in one fetcher thread.

    Args:
        split_reader_supplier: makes the split reader, and a new one after an idle one was shut
            down.
        record_emitter: converts elements into records.
        context: the reader's context.
        queue_capacity: batches that may wait for the reader, at least 1.
        allow_unaligned_splits: True to ignore a pause that the split reader does not support.
    """

    def __init__(
        self,
        split_reader_supplier: Callable[[], SplitReader[E, SplitT]],
        record_emitter: RecordEmitter[E, T, StateT],
        context: SourceReaderContext,
        *,
        queue_capacity: int = DEFAULT_CAPACITY,
        allow_unaligned_splits: bool = False,
    ) -> None:
        manager: SingleThreadFetcherManager[E, SplitT] = SingleThreadFetcherManager(
            split_reader_supplier,
            queue_capacity=queue_capacity,
            allow_unaligned_splits=allow_unaligned_splits,
            name=str(context.index_of_subtask),
        )
        super().__init__(manager, record_emitter, context)
