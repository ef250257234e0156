"""Sinks: targets for the rows of a job, which publish all rows or none. Works without Spark."""

from headgate.sink.api import (
    CommitterContext,
    Sink,
    SinkCommitter,
    SinkWriter,
    WriterContext,
    WriteResult,
)
from headgate.sink.file_sink import FileSink
from headgate.sink.function import FunctionSink
from headgate.sink.local import LocalWrite, write
from headgate.sink.recovery import Recovered

__all__ = [
    "CommitterContext",
    "FileSink",
    "FunctionSink",
    "LocalWrite",
    "Recovered",
    "Sink",
    "SinkCommitter",
    "SinkWriter",
    "WriteResult",
    "WriterContext",
    "write",
]
