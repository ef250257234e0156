"""A consumer's input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from headgate._arguments import any_text, instance, integer, octets, takes, whole
from headgate.address import ChannelAddress
from headgate.checkpoints import Checkpointed
from headgate.data_types import EndOfDataStatus
from headgate.errors import OptionError
from headgate.partition import KeptSubpartition
from headgate.schemas import same_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate._native import InputGate as NativeGate
    from headgate._native import UnionInputGate as NativeUnion

    NativeInput: TypeAlias = NativeGate | NativeUnion

#: The largest buffer size that can be announced: 32 bits on the wire.
_LARGEST = 2**32 - 1
_ADDRESS = instance("a ChannelAddress, from ResultPartition.address()", ChannelAddress)


class DataInput(Protocol):
    """Input of a reader: an :class:`InputGate`, or a a union of several."""

    @property
    def _native(self) -> NativeInput: ...

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the batches, if it is known."""

    def send_task_event(self, name: str, body: bytes = b"") -> None:
        """Send an event to the producers."""

    def close(self) -> None:
        """End the reader."""


class InputGate(Checkpointed):
    """All channels of one consumer; read by one :class:`~headgate.RecordReader`.

    Made by :meth:`ShuffleEnvironment.create_input_gate`. Channels that have data take turns, one
    buffer each.

    >>> import headgate as hg
    >>> env = hg.ShuffleEnvironment(memory="1m", segment_size="32k")
    >>> gate = env.create_input_gate(unknown=1)
    >>> partition = env.create_result_partition(1)
    >>> with hg.RecordWriter(partition, serializer="bytes") as writer:
    ...     writer.emit(b"hello")
    >>> gate.update_channel(0, partition.address(0))
    True
    >>> list(hg.RecordReader(gate, serializer="bytes"))
    [b'hello']
    >>> env.close()
    """

    _native: NativeGate

    def __init__(self, native: NativeGate, schema: pa.Schema | None) -> None:
        self._native = native
        self._schema = schema

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the batches, if it was given or came with an address."""
        return self._schema

    @property
    def num_channels(self) -> int:
        """Number of channels added so far."""
        return self._native.num_channels

    @property
    def end_of_data_status(self) -> EndOfDataStatus:
        """The status of all channels together."""
        return EndOfDataStatus(self._native.end_of_data_status())

    @takes(address=_ADDRESS)
    def add_channel(self, address: ChannelAddress) -> int:
        """Add a channel; a reader that is waiting gets its data.

        Returns:
            The channel's index, from 0.

        Raises:
            ClosedError: the gate is closed or sealed.
            PoolTooSmallError: the pool has no segment left to promise to the channel.
            SchemaMismatchError: the address has another schema than the gate.
        """
        if address.schema is not None:
            self._take_schema(address.schema)
        return self._native.add_channel(*self._place(address))

    @takes(subpartition=instance("a KeptSubpartition", KeptSubpartition))
    def add_kept_channel(self, subpartition: KeptSubpartition) -> int:
        """Add a channel that reads a kept subpartition.

        It needs no segments: batches are read where the file is mapped, and keep it mapped.

        Args:
            subpartition: an item that :meth:`ResultPartition.keep` returned, in this process or another one of
                this host.

        Returns:
            The channel's index, from 0.

        Raises:
            ClosedError: the gate is closed or sealed.
            IntegrityError: the index is damaged.
            PartitionNotFoundError: raised later, by the reader, if the file is gone.
        """
        return self._native.add_kept_channel(subpartition.index, subpartition.file)

    def add_unknown_channel(self) -> int:
        """Add a channel whose producer is not known yet; a reader waits for it, sealed or not.

        Returns:
            The channel's index, for :meth:`update_channel`.

        Raises:
            ClosedError: the gate is closed or sealed.
        """
        return self._native.add_unknown_channel()

    @takes(channel=whole(0, _LARGEST), address=_ADDRESS)
    def update_channel(self, channel: int, address: ChannelAddress) -> bool:
        """Set the producer of an unknown channel, and request its data.

        Args:
            channel: index from :meth:`add_unknown_channel`.
            address: address of a partition of this process or another one.

        Returns:
            False if nothing was done, because the channel is known already or the gate is closed.

        Raises:
            ClosedError: the environment is closed, or there is no such channel.
            PoolTooSmallError: the pool has no segment left to promise to the channel. As after the
                next two errors, the channel stays unknown.
            PartitionNotFoundError: an address of this process that does not exist.
            SchemaMismatchError: the address has another schema than the gate.
        """
        if not self._native.is_unknown(channel):
            return False
        if address.schema is not None:
            self._take_schema(address.schema)
        return self._native.update_channel(channel, *self._place(address))

    def _place(
        self, address: ChannelAddress
    ) -> tuple[str, int, bytes, bytes, int, pa.Schema | None]:
        place = (address.host, address.port, address.process_id)
        return (*place, address.partition_id, address.subpartition, self._schema)

    @takes(name=any_text, body=octets())
    def send_task_event(self, name: str, body: bytes = b"") -> None:
        """Send an event upstream, to the tasks that produce for this gate.

        Every channel carries it. Channels that are added later send it after their request. Source:
        Flink's ``InputGate.sendTaskEvent``.

        Args:
            name: name that the producers registered a handler for.
            body: content of the event. Name and body together must fit a segment.

        Raises:
            RecordTooLargeError: an event that does not fit a segment.
            ClosedError: the gate is closed.
            TaskEventError: raised later, by the reader, if a producer has no handler for the name.
        """
        self._native.send_task_event(name, body)

    @takes(channel=whole(0, _LARGEST))
    def resume_consumption(self, channel: int) -> None:
        """Unblock a channel after the barrier that was read from it.

        Args:
            channel: index of the channel, from :attr:`Event.channel`.

        Raises:
            ClosedError: the channel does not exist, or no barrier blocks it.
        """
        self._native.resume_consumption(channel)

    @takes(size=integer)
    def announce_buffer_size(self, size: int) -> None:
        """Ask the producers of all channels for buffers and pages of at most this size.

        It takes effect with the next buffer, also on channels that are added later. A single row or
        record may be larger. Blocking and hybrid partitions ignore it. With
        ``buffer_debloat_enabled`` the gate calls this itself as its reader's speed changes. Source:
        Flink's ``InputChannel.announceBufferSize``.

        Args:
            size: bytes. The size of a segment, or more, lifts the limit.

        Raises:
            OptionError: less than 1 byte.
        """
        if size < 1:
            raise OptionError(
                f"size={size} is less than 1 byte",
                remedy="the segment_size of the environment, for buffers as large as can be",
            )
        self._native.announce_buffer_size(min(size, _LARGEST))

    @takes(channel=whole(0, _LARGEST), sequence_number=whole(0, _LARGEST))
    def convert_to_priority(self, channel: int, sequence_number: int) -> bool:
        """Let a barrier that was announced overtake the records that arrived before it.

        The channel's next read returns it. The channel is blocked behind it as usual. Source:
        Flink's ``RemoteInputChannel.convertToPriorityEvent``.

        Args:
            channel: index of the channel, from :attr:`EventAnnouncement.channel`.
            sequence_number: :attr:`EventAnnouncement.sequence_number`.

        Returns:
            False if nothing was done: the barrier has been read or converted already, or the
            producer is in this process, where barriers are not announced.

        Raises:
            ClosedError: the channel does not exist.
        """
        return self._native.convert_to_priority(channel, sequence_number)

    @takes(channel=whole(0, _LARGEST))
    def acknowledge_all_records_processed(self, channel: int) -> None:
        """Tell a channel's producer that all records before the end of data are processed.

        The producer waits for this in :meth:`ResultPartition.wait_all_data_processed`.

        Raises:
            ClosedError: the channel does not exist.
        """
        self._native.acknowledge_all_records_processed(channel)

    def _take_schema(self, message: bytes) -> None:
        import pyarrow as pa

        schema = pa.ipc.read_schema(pa.py_buffer(message))
        same_schema(self._schema, schema, "the gate reads")
        self._schema = schema

    def seal(self) -> None:
        """Refuse further channels; the reader ends once all channels have ended."""
        self._native.seal()

    def fail(self, cause: BaseException | str) -> None:
        """End the reader with this cause; the first cause counts."""
        self._native.fail(str(cause))

    def close(self) -> None:
        """Cancel the channels and release their segments."""
        self._native.close()
