"""The high-level half of the Source API: implement a split reader, get a reader.

Fetcher threads run split readers, which may block, and put batches into a queue. The reader polls
the queue in the task's thread and never blocks.
"""

from headgate.source.base.emitter import RecordEmitter
from headgate.source.base.fetcher import SplitFetcher
from headgate.source.base.manager import SingleThreadFetcherManager, SplitFetcherManager
from headgate.source.base.multiplex import SingleThreadMultiplexSourceReaderBase
from headgate.source.base.queue import AVAILABLE, FutureCompletingBlockingQueue
from headgate.source.base.reader import SourceReaderBase
from headgate.source.base.records import RecordsBySplits, RecordsWithSplitIds
from headgate.source.base.split_reader import (
    SplitReader,
    SplitsAddition,
    SplitsChange,
    SplitsRemoval,
)
from headgate.source.base.tasks import (
    AddSplitsTask,
    FetchTask,
    PauseOrResumeSplitsTask,
    RemoveSplitsTask,
    SplitFetcherTask,
)

__all__ = [
    "AVAILABLE",
    "AddSplitsTask",
    "FetchTask",
    "FutureCompletingBlockingQueue",
    "PauseOrResumeSplitsTask",
    "RecordEmitter",
    "RecordsBySplits",
    "RecordsWithSplitIds",
    "RemoveSplitsTask",
    "SingleThreadFetcherManager",
    "SingleThreadMultiplexSourceReaderBase",
    "SourceReaderBase",
    "SplitFetcher",
    "SplitFetcherManager",
    "SplitFetcherTask",
    "SplitReader",
    "SplitsAddition",
    "SplitsChange",
    "SplitsRemoval",
]
