"""A consumer's input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.schemas import same_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate import _native
    from headgate.address import ChannelAddress


class InputGate:
    """All channels of one consumer; read by one :class:`~headgate.RecordReader`.

    Made by :meth:`ShuffleEnvironment.create_input_gate`. With several channels that have data each
    is served one buffer in turn.
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

    def add_channel(self, address: ChannelAddress) -> None:
        """Add a channel; a reader that waits sees its data at once.

        Raises:
            ClosedError: the gate is closed or sealed.
            PoolTooSmallError: no segment is left to promise to the channel.
            SchemaMismatchError: the address names another schema than the gate has.
        """
        if address.schema is not None:
            self._take_schema(address.schema)
        self._native.add_channel(
            address.host,
            address.port,
            address.process_id,
            address.partition_id,
            address.subpartition,
            self._schema,
        )

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
