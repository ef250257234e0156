"""From buffers back to records."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headgate import _native
from headgate._option_table import OPTIONS
from headgate._options import parse
from headgate._polling import Pollable
from headgate.data_types import DataType
from headgate.errors import OptionError
from headgate.schemas import same_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.gate import InputGate, UnionInputGate


class Event(NamedTuple):
    """An event that a producer broadcast: a control message in its place among the records.

    Example:
        >>> import headgate as hg
        >>> with hg.ShuffleEnvironment() as env:
        ...     partition = env.create_result_partition(1)
        ...     gate = env.create_input_gate([partition.address(0)])
        ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
        ...         writer.emit(b"before")
        ...         writer.broadcast_event("watermark", b"12:00")
        ...     list(hg.RecordReader(gate, serializer="bytes", on_event=print))
        Event(channel=0, name='watermark', body=b'12:00')
        [b'before']
    """

    channel: int
    name: str
    body: bytes


class EventAnnouncement(NamedTuple):
    """Says ahead of its turn that a barrier is on its way, behind records that wait to be read.

    Only channels from other processes announce, and only what was sent with ``is_timeoutable=True``.
    The barrier itself follows in its place, or next if :meth:`InputGate.convert_to_priority` says so.

    Attributes:
        channel: index of the channel in the gate, or over all gates of a union.
        sequence_number: the barrier's number on its channel.
        announced: the barrier.

    Example:
        >>> import headgate as hg
        >>> producer = hg.ShuffleEnvironment(secret=bytes(32))
        >>> consumer = hg.ShuffleEnvironment(secret=bytes(32))
        >>> partition = producer.create_result_partition(1)
        >>> gate = consumer.create_input_gate([partition.address(0)])
        >>> def handle(event):
        ...     print(event)
        ...     if isinstance(event, hg.EventAnnouncement):
        ...         gate.convert_to_priority(event.channel, event.sequence_number)
        ...     else:
        ...         gate.resume_consumption(event.channel)
        >>> with hg.RecordWriter(partition, serializer="bytes") as writer:
        ...     writer.broadcast_event("barrier", is_barrier=True, is_timeoutable=True)
        >>> list(hg.RecordReader(gate, serializer="bytes", on_event=handle))
        EventAnnouncement(channel=0, sequence_number=0, announced=Event(channel=0, name='barrier', body=b''))
        Event(channel=0, name='barrier', body=b'')
        []
        >>> consumer.close()
        >>> producer.close()
    """

    channel: int
    sequence_number: int
    announced: Event


class Buffer(NamedTuple):
    """A buffer as it travelled, copied out of its segment.

    Attributes:
        channel: index of the channel in the gate, or over all gates of a union.
        data_type: what it carries.
        data: its bytes; of an event, as :doc:`the protocol </protocol>` encodes it.
        sequence_number: its number on its channel, events included, from 0; priority events are
            read before what has smaller numbers.

    Example:
        >>> import headgate as hg
        >>> with hg.ShuffleEnvironment() as env:
        ...     partition = env.create_result_partition(1)
        ...     gate = env.create_input_gate([partition.address(0)])
        ...     hg.RecordWriter(partition, serializer="bytes").finish()
        ...     [(buffer.channel, buffer.data_type.name) for buffer in hg.BufferReader(gate)]
        [(0, 'END_OF_PARTITION')]
    """

    channel: int
    data_type: DataType
    data: bytes
    sequence_number: int = 0


class AbstractReader:
    """What all readers of records share: the gate, events, supersteps and totals.

    Not to be created itself: see :class:`RecordReader` and :class:`MutableRecordReader`.
    """

    def __init__(
        self,
        gate: InputGate | UnionInputGate,
        *,
        schema: pa.Schema | None,
        serializer: str,
        serializers: tuple[str, ...],
        on_event: Callable[[Any], object] | None,
        iterative: bool,
        batch_bytes: int = 0,
    ) -> None:
        if serializer not in serializers:
            raise OptionError(
                f"serializer={serializer!r} is unknown",
                remedy=" · ".join(f'"{name}"' for name in serializers),
            )
        self._serializer = serializer
        self._on_event = on_event
        expected = None
        if serializer == "arrow":
            expected = gate.schema if schema is None else schema
            if expected is None:
                raise OptionError(
                    "the schema of the batches is not known",
                    remedy=f"{type(self).__name__}(gate, schema=...) · "
                    "env.create_result_partition(n, schema=...) before address()",
                )
            same_schema(gate.schema, expected, "the gate reads")
        self._schema = expected
        self._native = _native.RecordReader(
            gate._native,  # noqa: SLF001 - one package
            expected,
            iterative,
            batch_bytes,
        )

    @property
    def has_reached_end_of_superstep(self) -> bool:
        """Whether every channel that has not ended reached the end of the superstep.

        Always False of a reader that is not iterative, and while channels can still be added.
        """
        return self._native.has_reached_end_of_superstep()

    def start_next_superstep(self) -> None:
        """Go on with the records of the next superstep.

        Raises:
            ClosedError: a channel has not reached the end of this one.
        """
        self._native.start_next_superstep()

    def totals(self) -> tuple[int, int]:
        """Return rows (or records) and bytes read so far."""
        return self._native.totals()

    def _handle(self, event: tuple[Any, ...]) -> None:
        if self._on_event is None:
            return
        what = Event(*event[:3])
        is_announced = len(event) > 3
        self._on_event(EventAnnouncement(what.channel, event[3], what) if is_announced else what)


class RecordReader(AbstractReader, Pollable[Any]):
    """Iterates over the records of a gate; channels are served in turn, each in order.

    Batches are views of the segments they arrived in. Keeping any number of them is safe: when
    segments run low, further batches are copied to ordinary memory, and ``env.stats()["copies"]``
    counts them.

    Pages may be small where subpartitions are many; ``batch_bytes`` puts them together.

    Reads in three ways, which may be mixed: ``for record in reader`` blocks, :meth:`poll_next` does
    not, and ``async for record in reader`` lets other tasks of the event loop run meanwhile.

    >>> import headgate as hg
    >>> env = hg.ShuffleEnvironment(memory="1m", segment_size="32k")
    >>> partition = env.create_result_partition(1)
    >>> reader = hg.RecordReader(env.create_input_gate([partition.address(0)]), serializer="bytes")
    >>> with hg.RecordWriter(partition, serializer="bytes") as writer:
    ...     reader.poll_next(default="nothing yet")
    ...     writer.emit(b"one")
    ...     writer.emit(b"two")
    'nothing yet'
    >>> list(reader)
    [b'one', b'two']
    >>> reader.is_finished
    True
    >>> env.close()

    Args:
        gate: what to read, a gate or a union of several; it has no other reader.
        schema: of the batches; the gate's if not given.
        serializer: as the writers': ``"arrow"``, ``"bytes"`` or ``"pickle"``. ``"pickle"`` runs
            code of the writers' choice.
        on_event: called with each :class:`Event` and :class:`EventAnnouncement`; without it they are
            dropped.
        iterative: iteration ends at the end of each superstep, once every channel has reached it:
            channels that are there already wait for the others. :meth:`start_next_superstep` goes
            on. Readers that are not iterative raise where a superstep ends.
        batch_bytes: puts pages together into batches of up to so many bytes, as ``"1m"`` or a number;
            0 returns each page as a batch of its own. Rows of several channels may share a batch;
            those of each stay in order. What is put together is copied to ordinary memory, its
            segments are free at once, and ``env.stats()["copies"]["coalesced"]`` counts it. Rows
            wait for others only while the gate has something to read: before the reader would
            block, and before an event, an error or the end, they are returned. A page that is alone,
            or larger than half of the size, is returned as it is.

    Raises:
        OptionError: an Arrow reader for which no schema is known; a size that cannot be read or is
            above 1 GiB, or one for records that are no batches.
    """

    def __init__(
        self,
        gate: InputGate | UnionInputGate,
        *,
        schema: pa.Schema | None = None,
        serializer: Literal["arrow", "bytes", "pickle"] = "arrow",
        on_event: Callable[[Any], object] | None = None,
        iterative: bool = False,
        batch_bytes: int | str = 0,
    ) -> None:
        size: int = parse(OPTIONS["batch_bytes"], batch_bytes)
        if size and serializer != "arrow":
            raise OptionError(
                f'batch_bytes={batch_bytes!r}, and records of serializer="{serializer}" are no batches',
                remedy="leave batch_bytes out",
            )
        AbstractReader.__init__(
            self,
            gate,
            schema=schema,
            serializer=serializer,
            serializers=("arrow", "bytes", "pickle"),
            on_event=on_event,
            iterative=iterative,
            batch_bytes=size,
        )
        Pollable.__init__(self, gate, self._native)
        # The caller asked for it, and the bytes are authenticated.
        self._loads = pickle.loads if serializer == "pickle" else None

    def __iter__(self) -> Iterator[Any]:
        """Return the reader itself."""
        return self

    def __next__(self) -> Any:
        """Return the next record: a ``pyarrow.RecordBatch``, bytes, or an object.

        Raises:
            StopIteration: all channels have ended and their totals are right; or all have reached
                the end of the superstep.
            PeerLostError: a producer vanished.
            ProducerFailedError: a producer failed, in its own words.
            IntegrityError: bytes, order or totals are not what was sent.
        """
        while (record := self._native.next()) is not None:
            if isinstance(record, tuple):
                self._handle(record)
            else:
                return record if self._loads is None else self._loads(record)
        raise StopIteration

    def poll_next(self, default: Any = None) -> Any:
        """Return the next record, or `default` where there is none now; never blocks.

        There is none now, or there will be none any more: :attr:`is_finished`, and
        :attr:`has_reached_end_of_superstep`, tell which. Raises what iterating does.
        """
        while (record := self._native.poll_next()) is not None:
            if isinstance(record, tuple):
                self._handle(record)
            else:
                return record if self._loads is None else self._loads(record)
        return default

    def _is_over(self) -> bool:
        return self.is_finished or self.has_reached_end_of_superstep

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

    def send_task_event(self, name: str, body: bytes = b"") -> None:
        """Send an event to the producers; see :meth:`InputGate.send_task_event`."""
        self._gate.send_task_event(name, body)


class BufferReader(Pollable[Buffer]):
    """Iterates over the raw buffers and events of a gate, ends of partitions included.

    >>> import headgate as hg
    >>> env = hg.ShuffleEnvironment(memory="1m", segment_size="32k")
    >>> partition = env.create_result_partition(1)
    >>> reader = hg.BufferReader(env.create_input_gate([partition.address(0)]))
    >>> with hg.RecordWriter(partition, serializer="bytes") as writer:
    ...     writer.emit(b"abc")
    >>> [(buffer.data_type.name, len(buffer.data)) for buffer in reader]
    [('DATA_BUFFER', 7), ('END_OF_PARTITION', 28)]
    >>> env.close()

    Args:
        gate: what to read, a gate or a union of several; it has no other reader.
    """

    def __init__(self, gate: InputGate | UnionInputGate) -> None:
        self._native = _native.BufferReader(gate._native)  # noqa: SLF001 - one package
        super().__init__(gate, self._native)

    def __iter__(self) -> Iterator[Buffer]:
        """Return the reader itself."""
        return self

    def __next__(self) -> Buffer:
        """Return the next buffer.

        Raises:
            StopIteration: all channels have ended.
            PeerLostError: a producer vanished; and the other errors of :class:`RecordReader`.
        """
        buffer = self._native.next()
        if buffer is None:
            raise StopIteration
        return _buffer(*buffer)

    def poll_next(self, default: Any = None) -> Any:
        """Return the next :class:`Buffer`, or `default` where there is none now; never blocks."""
        buffer = self._native.poll_next()
        return default if buffer is None else _buffer(*buffer)


def _buffer(channel: int, data_type: int, sequence_number: int, data: bytes) -> Buffer:
    return Buffer(channel, DataType(data_type), data, sequence_number)
