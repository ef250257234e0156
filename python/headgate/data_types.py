"""What a buffer carries, and whether the data is over."""

from __future__ import annotations

from enum import Enum, IntEnum


class DataType(IntEnum):
    """What a buffer carries, by its number on the wire.

    >>> DataType(8)
    <DataType.DATA_BUFFER_WITH_CLEAR_END: 8>
    >>> DataType.END_OF_PARTITION.is_event
    True
    """

    DATA_BUFFER = 1
    """Bytes of records, which may go on in the next buffer."""
    EVENT_BUFFER = 2
    """An event that has no type of its own."""
    PRIORITIZED_EVENT_BUFFER = 3
    """An event that overtakes all that is not prioritized."""
    ALIGNED_CHECKPOINT_BARRIER = 4
    """A barrier; its producer waits until the consumer resumes."""
    TIMEOUTABLE_ALIGNED_CHECKPOINT_BARRIER = 5
    """A barrier for which the consumer waits only for a time."""
    RECOVERY_COMPLETION = 6
    """The recovered state of a channel ends."""
    END_OF_SEGMENT = 7
    """A segment of a tiered partition ends."""
    DATA_BUFFER_WITH_CLEAR_END = 8
    """Records that end with the buffer: one Arrow page."""
    END_OF_DATA = 9
    """The user's records end."""
    END_OF_PARTITION = 10
    """The subpartition ends."""
    RECOVERY_METADATA = 11
    """What recovery needs to know of the buffers before it."""

    @property
    def is_buffer(self) -> bool:
        """Whether it is data: it costs a credit."""
        return self in {DataType.DATA_BUFFER, DataType.DATA_BUFFER_WITH_CLEAR_END}

    @property
    def is_event(self) -> bool:
        """Whether it is an event: it passes without credit."""
        return not self.is_buffer

    @property
    def is_blocking_upstream(self) -> bool:
        """Whether its producer waits behind it until the consumer resumes."""
        return self in {
            DataType.ALIGNED_CHECKPOINT_BARRIER,
            DataType.TIMEOUTABLE_ALIGNED_CHECKPOINT_BARRIER,
            DataType.RECOVERY_COMPLETION,
        }

    @property
    def has_priority(self) -> bool:
        """Whether it overtakes what has none."""
        return self is DataType.PRIORITIZED_EVENT_BUFFER

    @property
    def requires_announcement(self) -> bool:
        """Whether a channel from another process announces it ahead of the data before it."""
        return self is DataType.TIMEOUTABLE_ALIGNED_CHECKPOINT_BARRIER


class EndOfDataStatus(Enum):
    """Whether all producers of a gate have said that their records are over.

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
    """One has not."""
    DRAINED = 1
    """All have, each because its input was exhausted."""
    STOPPED = 2
    """All have, at least one because the job stops to go on later."""
