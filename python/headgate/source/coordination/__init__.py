"""The coordinator's half of a source: enumerators on one thread, and their assigned splits.

Decision: ADR 0008.
"""

from headgate.source.coordination.alignment import AlignmentGroups, WatermarkAggregator
from headgate.source.coordination.assignment import SplitAssignmentTracker
from headgate.source.coordination.context import Gateway
from headgate.source.coordination.coordinator import SourceCoordinator
from headgate.source.coordination.thread import CoordinatorThread, EnumeratorExecutor

__all__ = [
    "AlignmentGroups",
    "CoordinatorThread",
    "EnumeratorExecutor",
    "Gateway",
    "SourceCoordinator",
    "SplitAssignmentTracker",
    "WatermarkAggregator",
]
