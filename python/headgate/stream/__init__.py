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

from headgate.stream.aggregates import Aggregate
from headgate.stream.backend import KeyedStateBackend
from headgate.stream.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from headgate.stream.files import SnapshotFolder
from headgate.stream.groups import key_groups_of
from headgate.stream.lists import ListState
from headgate.stream.maps import MapState
from headgate.stream.retention import SnapshotRetention
from headgate.stream.savepoint import read_savepoint
from headgate.stream.session_operator import SessionWindowOperator
from headgate.stream.snapshot import Snapshot
from headgate.stream.states import ReducingState, ValueState
from headgate.stream.timers import Timers
from headgate.stream.window_operator import WindowOperator
from headgate.stream.windows import (
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    WindowOutput,
)

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
