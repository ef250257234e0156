"""The interfaces of the Source API. This package has no code that reads or runs a source."""

from headgate.source.api.enumerator import ReaderInfo, SplitEnumerator, SplitEnumeratorContext
from headgate.source.api.event import SourceEvent
from headgate.source.api.output import ReaderOutput, SourceOutput
from headgate.source.api.reader import InputStatus, SourceReader, SourceReaderContext
from headgate.source.api.serializer import JsonSerializer, SimpleVersionedSerializer
from headgate.source.api.source import Boundedness, Source
from headgate.source.api.split import SourceSplit

__all__ = [
    "Boundedness",
    "InputStatus",
    "JsonSerializer",
    "ReaderInfo",
    "ReaderOutput",
    "SimpleVersionedSerializer",
    "Source",
    "SourceEvent",
    "SourceOutput",
    "SourceReader",
    "SourceReaderContext",
    "SourceSplit",
    "SplitEnumerator",
    "SplitEnumeratorContext",
]
