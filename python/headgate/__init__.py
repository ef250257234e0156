"""Headgate: a keyed, pipelined, bounded exchange of Arrow batches between processes.

Importing it starts no thread, opens no socket and loads neither pyspark nor the whole of pyarrow.
"""

from headgate._native import __version__
from headgate.address import ChannelAddress
from headgate.data_types import DataType, EndOfDataStatus
from headgate.environment import ShuffleEnvironment
from headgate.errors import HeadgateError, HeadgateWarning
from headgate.gate import InputGate, UnionInputGate
from headgate.mutable_reader import MutableRecordReader
from headgate.partition import ResultPartition
from headgate.reader import Buffer, BufferReader, Event, RecordReader
from headgate.selectors import BroadcastSelector, HashSelector, RoundRobinSelector
from headgate.writer import RecordWriter

__all__ = [
    "BroadcastSelector",
    "Buffer",
    "BufferReader",
    "ChannelAddress",
    "DataType",
    "EndOfDataStatus",
    "Event",
    "HashSelector",
    "HeadgateError",
    "HeadgateWarning",
    "InputGate",
    "MutableRecordReader",
    "RecordReader",
    "RecordWriter",
    "ResultPartition",
    "RoundRobinSelector",
    "ShuffleEnvironment",
    "UnionInputGate",
    "__version__",
]
