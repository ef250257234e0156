"""From buffers back to records."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headgate import _native
from headgate.errors import OptionError
from headgate.schemas import same_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.gate import InputGate


class Event(NamedTuple):
    """An event that a producer broadcast: a control message in its place among the records."""

    channel: int
    name: str
    body: bytes


class Buffer(NamedTuple):
    """A buffer as it travelled, copied out of its segment.

    ``data_type`` is the wire's number: 1 records that may span, 2 event, 8 one Arrow page,
    10 end of the partition.
    """

    channel: int
    data_type: int
    data: bytes


class RecordReader:
    """Iterates over the records of a gate; channels are served in turn, each in order.

    Batches are views of the segments they arrived in. Keeping any number of them is safe: when
    segments run low, further batches are copied to ordinary memory, and ``env.stats()["copies"]``
    counts them.

    Args:
        gate: what to read; it has no other reader.
        schema: of the batches; the gate's if not given.
        serializer: as the writers': ``"arrow"``, ``"bytes"`` or ``"pickle"``. ``"pickle"`` runs
            code of the writers' choice.
        on_event: called with each :class:`Event`; without it events are dropped.

    Raises:
        OptionError: an Arrow reader for which no schema is known.
    """

    def __init__(
        self,
        gate: InputGate,
        *,
        schema: pa.Schema | None = None,
        serializer: Literal["arrow", "bytes", "pickle"] = "arrow",
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        if serializer not in {"arrow", "bytes", "pickle"}:
            raise OptionError(
                f"serializer={serializer!r} is unknown", remedy='"arrow" · "bytes" · "pickle"'
            )
        self._gate = gate
        self._serializer = serializer
        self._on_event = on_event
        expected = None
        if serializer == "arrow":
            expected = gate.schema if schema is None else schema
            if expected is None:
                raise OptionError(
                    "the schema of the batches is not known",
                    remedy="RecordReader(gate, schema=...) · "
                    "env.create_result_partition(n, schema=...) before address()",
                )
            same_schema(gate.schema, expected, "the gate reads")
        self._schema = expected
        self._native = _native.RecordReader(gate._native, expected)  # noqa: SLF001 - one package

    def __iter__(self) -> Iterator[Any]:
        """Return the reader itself."""
        return self

    def __next__(self) -> Any:
        """Return the next record: a ``pyarrow.RecordBatch``, bytes, or an object.

        Raises:
            StopIteration: all channels have ended and their totals are right.
            PeerLostError: a producer vanished.
            ProducerFailedError: a producer failed, in its own words.
            IntegrityError: bytes, order or totals are not what was sent.
        """
        while True:
            record = self._native.next()
            if record is None:
                raise StopIteration
            if isinstance(record, tuple):
                if self._on_event is not None:
                    self._on_event(Event(*record))
            elif self._serializer == "pickle":
                return pickle.loads(record)  # noqa: S301 - asked for by the caller, authenticated
            else:
                return record

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the batches that are left as pyarrow's reader; it reads through this object.

        Raises:
            OptionError: the records are no batches.
        """
        import pyarrow as pa

        if self._schema is None:
            raise OptionError(
                f'records of serializer="{self._serializer}" are no Arrow batches',
                remedy="for record in reader: ...",
            )
        return pa.RecordBatchReader.from_batches(self._schema, self)

    def read_all(self) -> pa.Table:
        """Return everything that is left as one table; blocks until the producers have ended.

        Beyond half of the budget its batches are copied out of the segments.

        Raises:
            OptionError: the records are no batches.
            PeerLostError: a producer vanished; and the other errors of iterating.
        """
        return self.to_reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return an Arrow stream of what is left, for ``polars.from_arrow(reader)`` and others."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def totals(self) -> tuple[int, int]:
        """Return rows (or records) and bytes read so far."""
        return self._native.totals()

    def close(self) -> None:
        """Close the gate: the producers need not send the rest."""
        self._gate.close()


class BufferReader:
    """Iterates over the raw buffers and events of a gate, ends of partitions included."""

    def __init__(self, gate: InputGate) -> None:
        self._native = _native.BufferReader(gate._native)  # noqa: SLF001 - one package

    def __iter__(self) -> Iterator[Buffer]:
        """Return the reader itself."""
        return self

    def __next__(self) -> Buffer:
        """Return the next buffer.

        Raises:
            StopIteration: all channels have ended.
        """
        buffer = self._native.next()
        if buffer is None:
            raise StopIteration
        return Buffer(*buffer)
