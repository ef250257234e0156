"""Sinks: targets for the rows of a job, which publish all rows or none. Works without Spark."""

from headgate.sink.api import (
    Committable,
    Committer,
    Sink,
    SinkWriter,
    StagedFile,
    WriterContext,
    WriteResult,
)
from headgate.sink.file_sink import FileSink
from headgate.sink.function import FunctionSink
from headgate.sink.local import LocalWrite, write
from headgate.sink.query_committer import QueryCommitter
from headgate.sink.recovery import Recovered
from headgate.sink.stream_api import (
    StreamSink,
    StreamSinkCommitter,
    StreamSinkWriter,
    StreamWriterContext,
)

__all__ = [
    "Committable",
    "Committer",
    "FileSink",
    "FunctionSink",
    "LocalWrite",
    "QueryCommitter",
    "Recovered",
    "Sink",
    "SinkWriter",
    "StagedFile",
    "StreamSink",
    "StreamSinkCommitter",
    "StreamSinkWriter",
    "StreamWriterContext",
    "WriteResult",
    "WriterContext",
    "write",
]
