"""A consumer's input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate import _native
from headgate.data_types import EndOfDataStatus
from headgate.errors import OptionError
from headgate.schemas import same_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.address import ChannelAddress

#: A wish is 32 bits wide on the wire; a segment is never larger.
_LARGEST = 2**32 - 1


class InputGate:
    """All channels of one consumer; read by one :class:`~headgate.RecordReader`.

    Made by :meth:`ShuffleEnvironment.create_input_gate`. With several channels that have data each
    is served one buffer in turn.

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

    def __init__(self, native: _native.InputGate, schema: pa.Schema | None) -> None:
        self._native = native
        self._schema = schema

    @property
    def schema(self) -> pa.Schema | None:
        """What the channels carry, if it was given or came with an address."""
        return self._schema

    @property
    def num_channels(self) -> int:
        """Channels known so far."""
        return self._native.num_channels

    @property
    def end_of_data_status(self) -> EndOfDataStatus:
        """Whether all producers have said that their records are over, and how."""
        return EndOfDataStatus(self._native.end_of_data_status())

    def add_channel(self, address: ChannelAddress) -> int:
        """Add a channel; a reader that waits sees its data at once.

        Returns:
            The channel's index, from 0.

        Raises:
            ClosedError: the gate is closed or sealed.
            PoolTooSmallError: no segment is left to promise to the channel.
            SchemaMismatchError: the address names another schema than the gate has.
        """
        if address.schema is not None:
            self._take_schema(address.schema)
        return self._native.add_channel(*self._place(address))

    def add_unknown_channel(self) -> int:
        """Add a channel whose producer is not known yet; a reader waits for it, sealed or not.

        Returns:
            The channel's index, for :meth:`update_channel`.

        Raises:
            ClosedError: the gate is closed or sealed.
        """
        return self._native.add_unknown_channel()

    def update_channel(self, channel: int, address: ChannelAddress) -> bool:
        """Tell where the producer of an unknown channel is; its data is requested now.

        Args:
            channel: what :meth:`add_unknown_channel` returned.
            address: the producer's, within this process or in another one.

        Returns:
            False if nothing was done: the channel is known already, or the gate was closed.

        Raises:
            ClosedError: the environment is closed, or there is no such channel.
            PoolTooSmallError: no segment is left to promise to the channel; it stays unknown.
            PartitionNotFoundError: an address of this process that does not exist; likewise.
            SchemaMismatchError: the address names another schema than the gate has; likewise.
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

    def send_task_event(self, name: str, body: bytes = b"") -> None:
        """Send an event to the tasks that produce for this gate, against the flow of the data.

        Every channel carries it, those that are added later too, behind their request. Source:
        Flink's ``InputGate.sendTaskEvent``.

        Args:
            name: what the producers' handlers are registered for.
            body: its content; together with the name it must fit a segment.

        Raises:
            RecordTooLargeError: an event that does not fit a segment.
            ClosedError: the gate is closed.
            TaskEventError: later, by the reader, when a producer has no handler for it.
        """
        self._native.send_task_event(name, body)

    def resume_consumption(self, channel: int) -> None:
        """Let the producer of a channel go on behind the barrier that was read from it.

        Args:
            channel: its index, as :attr:`Event.channel` says.

        Raises:
            ClosedError: the channel does not exist or no barrier blocks it.
        """
        self._native.resume_consumption(channel)

    def announce_buffer_size(self, size: int) -> None:
        """Ask the producers of all channels for buffers and pages of at most so many bytes.

        It holds from the next buffer of each on, also for channels that are added later. The first
        row or record of a buffer may be larger; what a producer keeps on disk ignores it. With
        ``buffer_debloat_enabled`` the gate itself does this, and asks anew as its reader's speed
        changes. Source: Flink's ``InputChannel.announceBufferSize``.

        Args:
            size: in bytes; as large as a segment, or larger, for buffers as large as can be.

        Raises:
            OptionError: less than 1 byte.
        """
        if size < 1:
            raise OptionError(
                f"size={size} is less than 1 byte",
                remedy="the segment_size of the environment, for buffers as large as can be",
            )
        self._native.announce_buffer_size(min(size, _LARGEST))

    def convert_to_priority(self, channel: int, sequence_number: int) -> bool:
        """Let a barrier that was announced overtake the records that arrived before it.

        It is the next that is read of its channel, which stays blocked behind it as ever. Source:
        Flink's ``RemoteInputChannel.convertToPriorityEvent``.

        Args:
            channel: its index, as :attr:`EventAnnouncement.channel` says.
            sequence_number: as :attr:`EventAnnouncement.sequence_number` says.

        Returns:
            False if nothing was done: the barrier was read meanwhile, or converted before, or the
            channel is one of this process, where nothing is announced.

        Raises:
            ClosedError: the channel does not exist.
        """
        return self._native.convert_to_priority(channel, sequence_number)

    def acknowledge_all_records_processed(self, channel: int) -> None:
        """Tell the producer of a channel that its records up to the end of data are processed.

        Its :meth:`ResultPartition.wait_all_data_processed` waits for that.

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
        """Add no further channel: the reader ends once all known ones have."""
        self._native.seal()

    def fail(self, cause: BaseException | str) -> None:
        """End the reader with this cause; the first one counts."""
        self._native.fail(str(cause))

    def close(self) -> None:
        """Tell the producers that nothing more is wanted, and give the segments back."""
        self._native.close()


class UnionInputGate:
    """Several gates read as one: they are served in turn, and each serves its channels in turn.

    Channels are numbered over all gates, in the order in which the gates are given.

    >>> import headgate as hg
    >>> env = hg.ShuffleEnvironment(memory="1m", segment_size="32k")
    >>> partitions = [env.create_result_partition(1) for _ in range(2)]
    >>> for number, partition in enumerate(partitions):
    ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
    ...         writer.emit(b"from %d" % number)
    >>> gates = [env.create_input_gate([partition.address(0)]) for partition in partitions]
    >>> list(hg.RecordReader(hg.UnionInputGate(gates), serializer="bytes"))
    [b'from 0', b'from 1']
    >>> env.close()

    Args:
        gates: two or more of one environment, each once and sealed, that nobody else reads; of one
            schema. Unions cannot be nested.

    Raises:
        OptionError: fewer than two gates, or something that is no :class:`InputGate`.
        ClosedError: a gate twice, one that is not sealed, or gates of several environments.
        SchemaMismatchError: the gates' schemas differ.
    """

    def __init__(self, gates: Iterable[InputGate]) -> None:
        self._gates = list(gates)
        for gate in self._gates:
            if not isinstance(gate, InputGate):
                raise OptionError(
                    f"a union reads input gates, not {type(gate).__name__}",
                    remedy="give the gates of the other union one by one",
                )
        if len(self._gates) < 2:
            raise OptionError(f"a union of {len(self._gates)} gates", asked="two gates or more")
        for gate in self._gates:
            if self.schema is not None and gate.schema is not None:
                same_schema(self.schema, gate.schema, "the union's gates before it read")
        natives = [gate._native for gate in self._gates]  # noqa: SLF001 - one module
        self._native = _native.UnionInputGate(natives)

    @property
    def gates(self) -> list[InputGate]:
        """The gates, in their order."""
        return list(self._gates)

    def send_task_event(self, name: str, body: bytes = b"") -> None:
        """Send an event to the tasks behind all gates; see :meth:`InputGate.send_task_event`."""
        for gate in self._gates:
            gate.send_task_event(name, body)

    def announce_buffer_size(self, size: int) -> None:
        """Ask the producers behind all gates; see :meth:`InputGate.announce_buffer_size`."""
        for gate in self._gates:
            gate.announce_buffer_size(size)

    @property
    def schema(self) -> pa.Schema | None:
        """What the channels carry: of the first gate that knows it."""
        return next((gate.schema for gate in self._gates if gate.schema is not None), None)

    @property
    def num_channels(self) -> int:
        """Channels of all gates."""
        return self._native.num_channels

    @property
    def end_of_data_status(self) -> EndOfDataStatus:
        """Whether all producers have said that their records are over, and how."""
        return EndOfDataStatus(self._native.end_of_data_status())

    def close(self) -> None:
        """Read no more; who waits for it gets :class:`~headgate.errors.ClosedError`.

        The gates stay open: their producers wait until each of them is closed.
        """
        self._native.close()
