"""Addresses of subpartitions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChannelAddress:
    """The address of one subpartition; plain data that can be pickled.

    It holds no secret. A reader must also prove that it knows the environment's secret.

    Attributes:
        host: name or number of the producer's host.
        port: port of the producer's process.
        partition_id: 16 bytes that name the partition.
        subpartition: number of the subpartition, from 0.
        process_id: 16 bytes that name the producer's process. If it is the reader's own process, no
            connection is made.
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
