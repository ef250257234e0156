"""Types of buffers, and the end-of-data status of a gate."""

from __future__ import annotations

from enum import Enum, IntEnum


class DataType(IntEnum):
    """Type of a buffer, with its number on the wire.

    >>> DataType(8)
    <DataType.DATA_BUFFER_WITH_CLEAR_END: 8>
    >>> DataType.END_OF_PARTITION.is_event
    True
    """

    DATA_BUFFER = 1
    """Bytes of records; the last record may continue in the next buffer."""
    EVENT_BUFFER = 2
    """An event without a type of its own."""
    PRIORITIZED_EVENT_BUFFER = 3
    """An event that overtakes every buffer without priority."""
    ALIGNED_CHECKPOINT_BARRIER = 4
    """A barrier; its channel is blocked until the consumer resumes it."""
    TIMEOUTABLE_ALIGNED_CHECKPOINT_BARRIER = 5
    """A barrier that the consumer may let overtake the records before it."""
    RECOVERY_COMPLETION = 6
    """End of a channel's recovered state."""
    END_OF_SEGMENT = 7
    """End of a segment of a tiered partition."""
    DATA_BUFFER_WITH_CLEAR_END = 8
    """Records of which none continues in the next buffer: one Arrow page."""
    END_OF_DATA = 9
    """End of the user's records."""
    END_OF_PARTITION = 10
    """End of the subpartition."""
    RECOVERY_METADATA = 11
    """Recovery's metadata about the buffers before it."""

    @property
    def is_buffer(self) -> bool:
        """True for data, which costs a credit."""
        return self in {DataType.DATA_BUFFER, DataType.DATA_BUFFER_WITH_CLEAR_END}

    @property
    def is_event(self) -> bool:
        """True for an event, which needs no credit."""
        return not self.is_buffer

    @property
    def is_blocking_upstream(self) -> bool:
        """True if it blocks its channel until the consumer resumes it."""
        return self in {
            DataType.ALIGNED_CHECKPOINT_BARRIER,
            DataType.TIMEOUTABLE_ALIGNED_CHECKPOINT_BARRIER,
            DataType.RECOVERY_COMPLETION,
        }

    @property
    def has_priority(self) -> bool:
        """True if it overtakes buffers without priority."""
        return self is DataType.PRIORITIZED_EVENT_BUFFER

    @property
    def requires_announcement(self) -> bool:
        """True if a channel from another process announces it ahead of the data before it."""
        return self is DataType.TIMEOUTABLE_ALIGNED_CHECKPOINT_BARRIER


class EndOfDataStatus(Enum):
    """End-of-data status of all producers of a gate together.

    >>> import headgate as hg
    >>> with hg.ShuffleEnvironment() as env:
    ...     partition = env.create_result_partition(1)
    ...     gate = env.create_input_gate([partition.address(0)])
    ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
    ...         writer.emit(b"last")
    ...         writer.end_of_data()
    ...     records = list(hg.RecordReader(gate, serializer="bytes"))
    ...     gate.end_of_data_status
    <EndOfDataStatus.DRAINED: 1>
    """

    NOT_END_OF_DATA = 0
    """At least one producer has not ended its records."""
    DRAINED = 1
    """All producers have ended, each because its input was exhausted."""
    STOPPED = 2
    """All producers have ended, at least one because the job stops to continue later."""
