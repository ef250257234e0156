"""Keyed state for functions that get batches: one call per batch, never one per key. Decision: ADR 0033.

numpy is imported here and nowhere else in the package: Spark's Python workers have it, since ``mapInArrow``
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

from headgate.stream.state.backend import KeyedStateBackend
from headgate.stream.state.descriptors import (
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
from headgate.stream.state.retention import SnapshotRetention
from headgate.stream.state.savepoint import read_savepoint
from headgate.stream.state.snapshot import Snapshot
from headgate.stream.state.states import ReducingState, ValueState
from headgate.stream.state.timers import Timers
from headgate.stream.windows.aggregates import Aggregate
from headgate.stream.windows.kinds import (
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    WindowOutput,
)
from headgate.stream.windows.operator import WindowOperator
from headgate.stream.windows.sessions import SessionWindowOperator

__all__ = [
    "Aggregate",
    "KeyedStateBackend",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "ReducingState",
    "ReducingStateDescriptor",
    "SessionWindow",
    "SessionWindowOperator",
    "SlidingWindow",
    "Snapshot",
    "SnapshotFolder",
    "SnapshotRetention",
    "StateTtlConfig",
    "Timers",
    "TumblingWindow",
    "ValueState",
    "ValueStateDescriptor",
    "WindowOperator",
    "WindowOutput",
    "key_groups_of",
    "read_savepoint",
]
