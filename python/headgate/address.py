"""Where a subpartition is read from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChannelAddress:
    """The address of one subpartition; plain data, so that it can be pickled or sent as it is.

    It holds no secret: whoever has it still has to prove the environment's secret to read.

    Attributes:
        host: name or number of the producer's host.
        port: its port.
        partition_id: 16 bytes, the partition's name.
        subpartition: which of its subpartitions, from 0.
        process_id: 16 bytes, the producer's process; equal to the reader's own where no
            connection is needed.
        schema: the Arrow schema of the batches as an IPC message, or None if it is not known yet.

    Example:
        >>> import headgate as hg
        >>> with hg.ShuffleEnvironment() as env:
        ...     partition = env.create_result_partition(2)
        ...     address = partition.address(1)
        ...     address.process_id == env.process_id, address.subpartition
        (True, 1)
    """

    host: str
    port: int
    partition_id: bytes
    subpartition: int
    process_id: bytes
    schema: bytes | None = None
