"""Streaming jobs over batches, and their keyed state: one call per batch, never one per key. Decisions: ADR 0033, 0034.

numpy is imported here and by ``NexmarkSource``, and nowhere else in the package: Spark's Python workers have it, since ``mapInArrow``
needs pandas.
"""

from importlib.util import find_spec

from headgate.errors import PackageNotFound

if find_spec("numpy") is None:
    raise PackageNotFound(
        "headgate.stream needs numpy, which is not installed",
        asked="import headgate.stream",
        remedy='pip install "headgate[stream]" · pip install numpy',
    )

from headgate.observe.record import CheckpointStats, Failure, Run, Stage, Task, Verdict, Worker
from headgate.stream.api.datastream import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
    DataStream,
    KeyedStream,
    stream,
)
from headgate.stream.api.http_posts import HttpPost
from headgate.stream.api.job import StreamingJob
from headgate.stream.api.state_tables import read_state, write_state
from headgate.stream.graph.call_functions import CallContext, CallFunction, Refusal, Retry
from headgate.stream.graph.context import KeyedContext, RuntimeContext
from headgate.stream.graph.functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    ProcessFunction,
)
from headgate.stream.graph.metrics import Counter, Gauge, Histogram, Metrics, Tally
from headgate.stream.job.query import StreamingQuery
from headgate.stream.job.status import JobState
from headgate.stream.state.backend import KeyedStateBackend
from headgate.stream.state.broadcast import BroadcastState
from headgate.stream.state.descriptors import (
    BroadcastStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from headgate.stream.state.files import SnapshotFolder
from headgate.stream.state.groups import key_groups_of
from headgate.stream.state.lists import ListState
from headgate.stream.state.maps import MapState
from headgate.stream.state.memory import StateMemory
from headgate.stream.state.retention import SnapshotRetention
from headgate.stream.state.savepoint import read_savepoint
from headgate.stream.state.snapshot import Snapshot
from headgate.stream.state.states import ReducingState, ValueState
from headgate.stream.state.timers import Timers
from headgate.stream.windows.aggregates import Aggregate
from headgate.stream.windows.fixed import WindowOperator
from headgate.stream.windows.kinds import (
    CountWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    WindowOutput,
)
from headgate.stream.windows.sessions import SessionWindowOperator
from headgate.stream.windows.top import Top

__all__ = [
    "Aggregate",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastState",
    "BroadcastStateDescriptor",
    "BroadcastStream",
    "CallContext",
    "CallFunction",
    "CheckpointStats",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountWindow",
    "Counter",
    "DataStream",
    "Failure",
    "Gauge",
    "Histogram",
    "HttpPost",
    "JobState",
    "KeyedContext",
    "KeyedStateBackend",
    "KeyedStream",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "Metrics",
    "ProcessFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "Refusal",
    "Retry",
    "Run",
    "RuntimeContext",
    "SessionWindow",
    "SessionWindowOperator",
    "SlidingWindow",
    "Snapshot",
    "SnapshotFolder",
    "SnapshotRetention",
    "Stage",
    "StateMemory",
    "StateTtlConfig",
    "StreamingJob",
    "StreamingQuery",
    "Tally",
    "Task",
    "Timers",
    "Top",
    "TumblingWindow",
    "ValueState",
    "ValueStateDescriptor",
    "Verdict",
    "WindowOperator",
    "WindowOutput",
    "Worker",
    "key_groups_of",
    "read_savepoint",
    "read_state",
    "stream",
    "write_state",
]
