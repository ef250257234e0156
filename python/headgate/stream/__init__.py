"""Keyed state for functions that get batches: one call per batch, never one per key. Decision: ADR 0033.

numpy is imported here and nowhere else in the package: Spark's Python workers have it, since ``mapInArrow``
needs pandas.
"""

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
from headgate.stream.snapshot import Snapshot
from headgate.stream.states import ReducingState, ValueState
from headgate.stream.timers import Timers

__all__ = [
    "KeyedStateBackend",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "ReducingState",
    "ReducingStateDescriptor",
    "Snapshot",
    "SnapshotFolder",
    "SnapshotRetention",
    "StateTtlConfig",
    "Timers",
    "ValueState",
    "ValueStateDescriptor",
    "key_groups_of",
]
