"""The high-level half of the Source API: implement a split reader, get a reader.

A fetcher thread runs the split reader, which may block, and puts batches into a queue. The reader polls
the queue in the task's thread and never blocks.
"""

from headgate.source.base.emitter import RecordEmitter
from headgate.source.base.fetcher import AVAILABLE, SplitFetcher
from headgate.source.base.reader import SingleThreadMultiplexSourceReaderBase
from headgate.source.base.records import RecordsBySplits, RecordsWithSplitIds
from headgate.source.base.split_reader import (
    SplitReader,
    SplitsAddition,
    SplitsChange,
    SplitsRemoval,
)

__all__ = [
    "AVAILABLE",
    "RecordEmitter",
    "RecordsBySplits",
    "RecordsWithSplitIds",
    "SingleThreadMultiplexSourceReaderBase",
    "SplitFetcher",
    "SplitReader",
    "SplitsAddition",
    "SplitsChange",
    "SplitsRemoval",
]
