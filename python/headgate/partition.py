"""A producer's output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from headgate.address import ChannelAddress

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate import _native
    from headgate.environment import ShuffleEnvironment

#: How full buffers are compressed; see the option of this name.
Compression = Literal["none", "lz4", "zstd"]
#: When a partition is read, and where its data waits; see :meth:`create_result_partition`.
PartitionKind = Literal["pipelined", "pipelined_bounded", "blocking", "hybrid"]
KINDS: Final[tuple[str, ...]] = get_args(PartitionKind)


class TaskEvent(NamedTuple):
    """An event that a consumer sent to the task that produces for it.

    ``subpartition`` says whose consumer sent it, ``name`` what kind of event it is.

    Example:
        >>> import headgate as hg
        >>> hg.TaskEvent(subpartition=0, name="stop", body=b"at 17").name
        'stop'
    """

    subpartition: int
    name: str
    body: bytes


class ResultPartition:
    """N subpartitions that one :class:`~headgate.RecordWriter` fills, each for one consumer.

    Made by :meth:`ShuffleEnvironment.create_result_partition`.

    Example:
        >>> import headgate as hg
        >>> with hg.ShuffleEnvironment() as env:
        ...     partition = env.create_result_partition(2, kind="hybrid")
        ...     gates = [env.create_input_gate([partition.address(i)]) for i in range(2)]
        ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
        ...         for record in (b"a", b"b", b"c"):
        ...             writer.emit(record)
        ...     [list(hg.RecordReader(gate, serializer="bytes")) for gate in gates]
        ...     partition.wait_consumed(timeout=10)
        [[b'a', b'c'], [b'b']]
        True
    """

    def __init__(
        self,
        environment: ShuffleEnvironment,
        native: _native.ResultPartition,
        schema: pa.Schema | None,
        kind: PartitionKind,
        handlers: dict[str, Callable[[TaskEvent], object]],
    ) -> None:
        self._environment = environment
        self._kind: PartitionKind = kind
        self._native = native
        self._schema = schema
        self._handlers = handlers

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

    def on_task_event(self, name: str, handler: Callable[[TaskEvent], object]) -> None:
        """Call ``handler`` with each task event of this name that a consumer sends.

        It is called on the thread that writes: by the writer's ``emit``, ``flush`` and ``finish``
        before they do their work, and by :meth:`process_task_events`. What it raises comes out
        there. Source: Flink's ``TaskEventDispatcher``.

        Args:
            name: of the events; consumers that send others get a :class:`TaskEventError`.
            handler: what to call; one per name, for good.

        Raises:
            ClosedError: the name has a handler already.

        Example:
            >>> import headgate as hg
            >>> env = hg.ShuffleEnvironment()
            >>> partition = env.create_result_partition(1)
            >>> partition.on_task_event("stop", lambda event: print(event.name, event.body))
            >>> gate = env.create_input_gate([partition.address(0)])
            >>> gate.send_task_event("stop", b"at 17")
            >>> partition.process_task_events()
            stop b'at 17'
            >>> env.close()
        """
        self._native.subscribe_task_event(name)
        self._handlers[name] = handler

    def process_task_events(self) -> None:
        """Call the handlers of the task events that have come, oldest first, on this thread."""
        while self._native.has_task_events:
            event = self._native.take_task_event()
            if event is not None:
                self._handlers[event[1]](TaskEvent(*event))

    def wait_all_data_processed(self, timeout: float | None = None) -> bool:
        """Wait until all consumers acknowledged what came before the end of data.

        A consumer that is gone, or has the whole subpartition, counts as well. Source: Flink's
        ``getAllDataProcessedFuture``.

        Args:
            timeout: seconds; forever if not given.

        Returns:
            False when the time ran out first.

        Raises:
            HeadgateError: why the partition failed.
        """
        return self._native.wait_all_data_processed(timeout)

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
