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
from headgate.sink.local import LocalWrite, write
from headgate.sink.recovery import Recovered
from headgate.sink.query_committer import QueryCommitter

__all__ = [
    "Committable",
    "Committer",
    "FileSink",
    "LocalWrite",
    "Recovered",
    "Sink",
    "SinkWriter",
    "StagedFile",
    "QueryCommitter",
    "WriteResult",
    "WriterContext",
    "write",
]
