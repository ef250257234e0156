"""A producer's output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from headgate.address import ChannelAddress

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate import _native
    from headgate.environment import ShuffleEnvironment

#: When a partition is read, and where its data waits; see :meth:`create_result_partition`.
PartitionKind = Literal["pipelined", "pipelined_bounded", "blocking", "hybrid"]
KINDS: Final[tuple[str, ...]] = get_args(PartitionKind)


class ResultPartition:
    """N subpartitions that one :class:`~headgate.RecordWriter` fills, each for one consumer.

    Made by :meth:`ShuffleEnvironment.create_result_partition`.
    """

    def __init__(
        self,
        environment: ShuffleEnvironment,
        native: _native.ResultPartition,
        schema: pa.Schema | None,
        kind: PartitionKind,
    ) -> None:
        self._environment = environment
        self._kind: PartitionKind = kind
        self._native = native
        self._schema = schema

    @property
    def id(self) -> bytes:
        """16 bytes, random."""
        return self._native.id

    @property
    def kind(self) -> PartitionKind:
        """When it is read, and where its data waits."""
        return self._kind

    @property
    def num_subpartitions(self) -> int:
        """How many consumers the rows are cut for."""
        return self._native.num_subpartitions

    @property
    def is_released(self) -> bool:
        """Whether no consumer wants anything any more; of a blocking one, whether it is closed."""
        return self._native.is_released

    def address(self, subpartition: int, *, host: str | None = None) -> ChannelAddress:
        """Return the address of one subpartition.

        Args:
            subpartition: its number, from 0.
            host: what others call this host, where that is not what the environment listens on.

        Raises:
            IndexError: no such subpartition.
            ConnectError: the environment cannot listen.
        """
        if not 0 <= subpartition < self.num_subpartitions:
            raise IndexError(f"subpartition {subpartition} of {self.num_subpartitions}")
        own_host, port = self._environment.address
        schema = None if self._schema is None else self._schema.serialize().to_pybytes()
        return ChannelAddress(
            host=host or own_host,
            port=port,
            partition_id=self.id,
            subpartition=subpartition,
            process_id=self._environment.process_id,
            schema=schema,
        )

    def release_subpartition(self, subpartition: int) -> None:
        """Drop what is queued for a consumer that is gone, and everything for it from now on."""
        self._native.release_subpartition(subpartition)

    def wait_consumed(self, timeout: float | None = None) -> bool:
        """Wait until all subpartitions are taken to their end once, or released.

        Args:
            timeout: seconds; forever if not given.

        Returns:
            False when the time ran out first.

        Raises:
            HeadgateError: why the partition failed.
        """
        return self._native.wait_consumed(timeout)

    def fail(self, cause: BaseException | str) -> None:
        """Fail the writer and all consumers with this cause; the first one counts."""
        self._native.fail(str(cause))

    def close(self) -> None:
        """Drop it and what it still holds; consumers that have not ended get an error.

        Readers of a blocking partition that are in the middle of it go on to its end; its file is
        gone with the last of them.
        """
        self._native.close()
