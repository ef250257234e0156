"""A producer's output."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from headgate._arguments import (
    calls,
    patience,
    takes,
    text,
    timeout,
    whole_number,
)
from headgate.address import ChannelAddress

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate import _native

#: The kinds of partition; see :meth:`ShuffleEnvironment.create_result_partition`.
PartitionKind = Literal["pipelined", "pipelined_bounded", "blocking", "hybrid"]
KINDS: Final[tuple[str, ...]] = get_args(PartitionKind)


class TaskEvent(NamedTuple):
    """An event that a consumer sent to the task that produces for it.

    Attributes:
        subpartition: number of the subpartition whose consumer sent it.
        name: kind of the event.
        body: its content.

    Example:
        >>> import headgate as hg
        >>> hg.TaskEvent(subpartition=0, name="stop", body=b"at 17").name
        'stop'
    """

    subpartition: int
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class KeptSubpartition:
    """A subpartition that can be read once the process that wrote it has ended.

    Attributes:
        subpartition: its number.
        size: bytes of its data, as they are on disk.
        file: path of the file that holds the data; None if the data is in ``index`` itself.
        index: where the data is, with a checksum of each buffer.
    """

    subpartition: int
    size: int
    file: str | None
    index: bytes


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
        native: _native.ResultPartition,
        environment: _native.Environment,
        schema: pa.Schema | None,
        kind: PartitionKind,
        handlers: dict[str, Callable[[TaskEvent], object]],
        buffer_timeout: float,
    ) -> None:
        self._native = native
        self._environment = environment
        self._schema = schema
        self._kind: PartitionKind = kind
        self._handlers = handlers
        #: Default of its writer, in seconds.
        self._buffer_timeout = buffer_timeout

    @property
    def id(self) -> bytes:
        """16 bytes that name the partition."""
        return self._native.id

    @property
    def kind(self) -> PartitionKind:
        """The kind that it was created with."""
        return self._kind

    @property
    def num_subpartitions(self) -> int:
        """Number of consumers."""
        return self._native.num_subpartitions

    @property
    def is_released(self) -> bool:
        """True once every consumer is done; for a blocking partition, once it is closed."""
        return self._native.is_released

    @takes(host=text)
    def address(self, subpartition: int, *, host: str | None = None) -> ChannelAddress:
        """Return the address of one subpartition.

        Args:
            subpartition: its number, from 0.
            host: this host's name for others, if it is not the one that the environment listens on.

        Raises:
            OptionError: no such subpartition.
            ConnectError: the environment cannot listen.
        """
        whole_number("subpartition", subpartition, 0, self.num_subpartitions - 1)
        own_host, port = self._environment.address()
        schema = None if self._schema is None else self._schema.serialize().to_pybytes()
        return ChannelAddress(
            host=host or own_host,
            port=port,
            partition_id=self.id,
            subpartition=subpartition,
            process_id=self._environment.process_id,
            schema=schema,
        )

    def keep(
        self, file: str | os.PathLike[str], *, inline_limit: int = 0
    ) -> list[KeptSubpartition]:
        """Keep a finished blocking partition for consumers that come once this process has ended.

        Give them the result in any way you like; :meth:`InputGate.add_kept_channel` reads it. The
        file stays until you delete it. Nobody may write to it: consumers map it.

        Args:
            file: path of a file to create, best in a directory of ``temp_directories``: elsewhere the
                data is copied.
            inline_limit: bytes. If the data of all subpartitions has at most that size, it becomes a
                part of the result and no file is created.

        Returns:
            One item for each subpartition that has rows or records.

        Raises:
            ClosedError: the partition is not finished, or not a blocking one.
            SpillError: the file exists, or cannot be written or read.

        Example:
            >>> import headgate as hg
            >>> env = hg.ShuffleEnvironment()
            >>> partition = env.create_result_partition(2, kind="blocking")
            >>> with hg.RecordWriter(partition, serializer="bytes") as writer:
            ...     writer.emit(b"hello")
            >>> (subpartition,) = partition.keep("unused", inline_limit=1000)
            >>> partition.close()
            >>> gate = env.create_input_gate(sealed=False)
            >>> gate.add_kept_channel(subpartition)
            0
            >>> gate.seal()
            >>> list(hg.RecordReader(gate, serializer="bytes"))
            [b'hello']
            >>> env.close()
        """
        subpartitions, is_linked = self._native.keep(os.fspath(file), inline_limit)
        path = str(Path(file).absolute()) if is_linked else None
        return [
            KeptSubpartition(number, size, path, index) for number, size, index in subpartitions
        ]

    def release_subpartition(self, subpartition: int) -> None:
        """Drop the queue of a consumer that is gone, and everything emitted to it from now on.

        Raises:
            OptionError: no such subpartition.
        """
        whole_number("subpartition", subpartition, 0, self.num_subpartitions - 1)
        self._native.release_subpartition(subpartition)

    @takes(name=text, handler=calls(1, "def stop(event): ..."))
    def on_task_event(self, name: str, handler: Callable[[TaskEvent], object]) -> None:
        """Call ``handler`` with each task event of this name that a consumer sends.

        The thread that writes calls it: in the writer's ``emit``, ``flush`` and ``finish`` before
        they do their work, and in :meth:`process_task_events`. They raise the handler's exceptions.
        Source: Flink's ``TaskEventDispatcher``.

        Args:
            name: name of the events. A consumer that sends another name gets a
                :class:`TaskEventError`.
            handler: the function to call; one per name, which cannot be replaced.

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
        """Call the handlers of the task events that have arrived, oldest first, on this thread."""
        while self._native.has_task_events:
            event = self._native.take_task_event()
            if event is not None:
                self._handlers[event[1]](TaskEvent(*event))

    @takes(timeout=timeout)
    def wait_all_data_processed(self, timeout: float | None = None) -> bool:
        """Wait until all consumers have acknowledged the records before the end of data.

        A consumer that is gone, or has read its whole subpartition, counts as well. Source: Flink's
        ``getAllDataProcessedFuture``.

        Args:
            timeout: seconds; no limit if not given.

        Returns:
            False if the time ran out first.

        Raises:
            HeadgateError: the failure of the partition.
        """
        return self._native.wait_all_data_processed(patience(timeout))

    @takes(timeout=timeout)
    def wait_consumed(self, timeout: float | None = None) -> bool:
        """Wait until every subpartition was read to its end once, or released.

        Args:
            timeout: seconds; no limit if not given.

        Returns:
            False if the time ran out first.

        Raises:
            HeadgateError: the failure of the partition.
        """
        return self._native.wait_consumed(patience(timeout))

    def fail(self, cause: BaseException | str) -> None:
        """Fail the writer and all consumers with this cause; the first cause counts."""
        self._native.fail(str(cause))

    def close(self) -> None:
        """Drop the partition and its data; consumers that have not read to the end get an error.

        Readers of a blocking partition read on to its end; the last of them deletes the file.
        """
        self._native.close()
