"""Arrow batches between processes: each row to the task that owns its key, within a memory budget.

Importing it starts no thread, opens no socket and loads neither pyspark nor the whole of pyarrow.
"""

try:
    from headgate._native import __version__
except ModuleNotFoundError as error:
    from headgate._missing import without_native

    raise without_native(__path__[0]) from error
from headgate._text import make_logs_plain
from headgate.address import ChannelAddress
from headgate.batches import Batches
from headgate.checkpoints import (
    CheckpointAborted,
    CheckpointBarrier,
    CheckpointComplete,
    decode_channel_state,
)
from headgate.data_types import DataType, EndOfDataStatus
from headgate.environment import ShuffleEnvironment
from headgate.errors import HeadgateError, HeadgateWarning
from headgate.functions.per_key import per_groups, per_key
from headgate.gate import InputGate
from headgate.partition import ResultPartition, TaskEvent
from headgate.reader import Buffer, BufferReader, Event, EventAnnouncement, RecordReader
from headgate.selectors import (
    BroadcastSelector,
    ForwardSelector,
    GlobalSelector,
    HashSelector,
    KeyGroupSelector,
    RebalanceSelector,
    RescaleSelector,
    RoundRobinSelector,
    ShuffleSelector,
)
from headgate.writer import RecordWriter

__all__ = [
    "Batches",
    "BroadcastSelector",
    "Buffer",
    "BufferReader",
    "ChannelAddress",
    "CheckpointAborted",
    "CheckpointBarrier",
    "CheckpointComplete",
    "DataType",
    "EndOfDataStatus",
    "Event",
    "EventAnnouncement",
    "ForwardSelector",
    "GlobalSelector",
    "HashSelector",
    "HeadgateError",
    "HeadgateWarning",
    "InputGate",
    "KeyGroupSelector",
    "RebalanceSelector",
    "RecordReader",
    "RecordWriter",
    "RescaleSelector",
    "ResultPartition",
    "RoundRobinSelector",
    "ShuffleEnvironment",
    "ShuffleSelector",
    "TaskEvent",
    "__version__",
    "decode_channel_state",
    "per_groups",
    "per_key",
]

make_logs_plain()
