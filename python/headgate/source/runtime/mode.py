"""What an operator is at."""

from __future__ import annotations

from enum import Enum, auto


class OperatingMode(Enum):
    """What an operator is at. Source: Flink's SourceOperator.OperatingMode."""

    OUTPUTS_UNINITIALISED = auto()
    """Not started: splits and orders wait."""
    READING = auto()
    """Polls the reader."""
    WAITING_FOR_ALIGNMENT = auto()
    """Its watermark is too far ahead of its group's."""
    SOURCE_STOPPED = auto()
    """Asked to end early; the reader is polled no more."""
    SOURCE_DRAINED = auto()
    """Asked to end early and for good: the last watermark follows the last record."""
    DATA_FINISHED = auto()
    """Nothing follows."""
