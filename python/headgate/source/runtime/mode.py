"""The operating mode of an operator."""

from __future__ import annotations

from enum import Enum, auto


class OperatingMode(Enum):
    """The operating mode of an operator. Source: Flink's SourceOperator.OperatingMode."""

    OUTPUTS_UNINITIALISED = auto()
    """Not started; splits and messages wait in the mailbox."""
    READING = auto()
    """The operator polls the reader."""
    WAITING_FOR_ALIGNMENT = auto()
    """The watermark is too far ahead of the alignment group's."""
    SOURCE_STOPPED = auto()
    """Stopped early; the reader is not polled any more."""
    SOURCE_DRAINED = auto()
    """At the end of input, or stopped for good: the last watermark follows the last record."""
    DATA_FINISHED = auto()
    """No record follows."""
