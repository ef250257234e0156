"""Several gates, read as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate._arguments import instance, refuse
from headgate._kinds import kind_of
from headgate._native import UnionInputGate as NativeUnion
from headgate.checkpoints import Checkpointed
from headgate.data_types import EndOfDataStatus
from headgate.errors import OptionError
from headgate.gate import InputGate
from headgate.schemas import same_schema

if TYPE_CHECKING:
    import pyarrow as pa


class UnionInputGate(Checkpointed):
    """Several gates read as one: gates take turns, and the channels of each gate take turns.

    Channels are numbered over all gates, in the order in which the gates are given. Source: Flink's
    ``UnionInputGate``.

    >>> import headgate as hg
    >>> from headgate.flink import UnionInputGate
    >>> env = hg.ShuffleEnvironment(memory="1m", segment_size="32k")
    >>> partitions = [env.create_result_partition(1) for _ in range(2)]
    >>> for number, partition in enumerate(partitions):
    ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
    ...         writer.emit(b"from %d" % number)
    >>> gates = [env.create_input_gate([partition.address(0)]) for partition in partitions]
    >>> list(hg.RecordReader(UnionInputGate(gates), serializer="bytes"))
    [b'from 0', b'from 1']
    >>> env.close()

    Args:
        gates: two or more gates of one environment and one schema. Each is sealed, is given once,
            and has no other reader. Unions cannot be nested.

    Raises:
        OptionError: fewer than two gates, or an argument that is not an :class:`InputGate`.
        ClosedError: a gate given twice, a gate that is not sealed, or gates of several
            environments.
        SchemaMismatchError: the gates' schemas differ.
    """

    _native: NativeUnion

    def __init__(self, gates: Iterable[InputGate]) -> None:
        if not isinstance(gates, Iterable):
            raise refuse("gates", gates, f"is {kind_of(gates)}", "InputGates")
        self._gates = list(gates)
        for gate in self._gates:
            instance("InputGates", InputGate)("gates", gate)
        if len(self._gates) < 2:
            raise OptionError(f"a union of {len(self._gates)} gates", asked="two gates or more")
        for gate in self._gates:
            if self.schema is not None and gate.schema is not None:
                same_schema(self.schema, gate.schema, "the union's gates before it read")
        natives = [gate._native for gate in self._gates]  # noqa: SLF001 - one package
        self._native = NativeUnion(natives)

    @property
    def gates(self) -> list[InputGate]:
        """The gates, in their order."""
        return list(self._gates)

    def send_task_event(self, name: str, body: bytes = b"") -> None:
        """Send an event to the producers of all gates; see :meth:`InputGate.send_task_event`."""
        for gate in self._gates:
            gate.send_task_event(name, body)

    def announce_buffer_size(self, size: int) -> None:
        """Ask the producers of all gates; see :meth:`InputGate.announce_buffer_size`."""
        for gate in self._gates:
            gate.announce_buffer_size(size)

    def resume_consumption(self, channel: int) -> None:
        """Unblock a channel, numbered over all gates; see :meth:`InputGate.resume_consumption`."""
        gate, channel = self._locate(channel)
        gate.resume_consumption(channel)

    def convert_to_priority(self, channel: int, sequence_number: int) -> bool:
        """Let an announced barrier overtake; see :meth:`InputGate.convert_to_priority`.

        Args:
            channel: index of the channel over all gates, from :attr:`EventAnnouncement.channel`.
            sequence_number: :attr:`EventAnnouncement.sequence_number`.

        Returns:
            False if nothing was done.

        Raises:
            ClosedError: the channel does not exist.
        """
        gate, channel = self._locate(channel)
        return gate.convert_to_priority(channel, sequence_number)

    def acknowledge_all_records_processed(self, channel: int) -> None:
        """Tell a channel's producer that all records before the end of data are processed.

        See :meth:`InputGate.acknowledge_all_records_processed`.

        Args:
            channel: index of the channel over all gates.

        Raises:
            ClosedError: the channel does not exist.
        """
        gate, channel = self._locate(channel)
        gate.acknowledge_all_records_processed(channel)

    def _locate(self, channel: int) -> tuple[InputGate, int]:
        """Return the gate of a channel and its index there; for the last gate also a wrong one."""
        for gate in self._gates[:-1]:
            if channel < gate.num_channels:
                return gate, channel
            channel -= gate.num_channels
        return self._gates[-1], channel

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the batches, from the first gate that knows it."""
        return next((gate.schema for gate in self._gates if gate.schema is not None), None)

    @property
    def num_channels(self) -> int:
        """Number of channels of all gates."""
        return self._native.num_channels

    @property
    def end_of_data_status(self) -> EndOfDataStatus:
        """The status of all channels together."""
        return EndOfDataStatus(self._native.end_of_data_status())

    def close(self) -> None:
        """End the reader, which raises :class:`~headgate.errors.ClosedError` if it is waiting.

        The gates stay open, and their producers wait until each gate is closed.
        """
        self._native.close()
