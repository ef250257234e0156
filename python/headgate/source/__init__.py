"""The Source API: splits, enumerators, readers, watermarks; and the sources that ship."""

from headgate.source.api.enumerator import ReaderInfo, SplitEnumerator, SplitEnumeratorContext
from headgate.source.api.event import SourceEvent
from headgate.source.api.output import ReaderOutput, SourceOutput
from headgate.source.api.reader import InputStatus, SourceReader, SourceReaderContext
from headgate.source.api.serializer import JsonSerializer, SimpleVersionedSerializer
from headgate.source.api.source import Boundedness, Source
from headgate.source.api.split import SourceSplit
from headgate.source.base import (
    RecordEmitter,
    RecordsBySplits,
    RecordsWithSplitIds,
    SingleThreadMultiplexSourceReaderBase,
    SplitFetcher,
    SplitReader,
    SplitsAddition,
    SplitsChange,
    SplitsRemoval,
)
from headgate.source.files import CsvOptions, FileCheckpoint, FileSource, FileSplit
from headgate.source.hybrid import HybridSource, HybridSourceBuilder
from headgate.source.local import LocalRead, read
from headgate.source.nexmark import NexmarkSource
from headgate.source.numbers import NumberSequenceSource, NumberSplit
from headgate.source.planning import Planned, plan_splits, read_splits
from headgate.source.rate import RateSource
from headgate.source.runtime import OperatingMode, SourceOperator
from headgate.source.socket import SocketSource
from headgate.source.watermark import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    TimestampAssigner,
    WatermarkAlignment,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

__all__ = [
    "MAX_WATERMARK",
    "MIN_WATERMARK",
    "Boundedness",
    "CsvOptions",
    "FileCheckpoint",
    "FileSource",
    "FileSplit",
    "HybridSource",
    "HybridSourceBuilder",
    "InputStatus",
    "JsonSerializer",
    "LocalRead",
    "NexmarkSource",
    "NumberSequenceSource",
    "NumberSplit",
    "OperatingMode",
    "Planned",
    "RateSource",
    "ReaderInfo",
    "ReaderOutput",
    "RecordEmitter",
    "RecordsBySplits",
    "RecordsWithSplitIds",
    "SimpleVersionedSerializer",
    "SingleThreadMultiplexSourceReaderBase",
    "SocketSource",
    "Source",
    "SourceEvent",
    "SourceOperator",
    "SourceOutput",
    "SourceReader",
    "SourceReaderContext",
    "SourceSplit",
    "SplitEnumerator",
    "SplitEnumeratorContext",
    "SplitFetcher",
    "SplitReader",
    "SplitsAddition",
    "SplitsChange",
    "SplitsRemoval",
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "plan_splits",
    "read",
    "read_splits",
]
