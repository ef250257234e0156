"""Reading records and raw buffers from a gate."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headgate import _native
from headgate._arguments import arrow_schema, function, one_of
from headgate._option_table import OPTIONS
from headgate._options import parse
from headgate._polling import Pollable
from headgate.checkpoints import NOTICES, CheckpointBarrier, checked_id
from headgate.data_types import DataType
from headgate.errors import OptionError, SchemaMismatchError
from headgate.schemas import same_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.gate import DataInput


class Event(NamedTuple):
    """An event that a producer broadcast, in its place among the records.

    Attributes:
        channel: index of the channel in the gate, or over all gates of a union.
        name: kind of the event.
        body: its content.

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
    """Announces a barrier that is queued behind records that have not been read.

    Only channels from other processes announce barriers, and only those sent with
    ``is_timeoutable=True``. The barrier follows in its place among the records, or as the next
    record after :meth:`InputGate.convert_to_priority`.

    Attributes:
        channel: index of the channel in the gate, or over all gates of a union.
        sequence_number: number of the barrier on its channel.
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
        data_type: its type.
        data: its bytes. Events are encoded as in :doc:`the protocol </protocol>`.
        sequence_number: number on its channel, events included, from 0. Priority events are read
            before buffers with smaller numbers.

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


class RecordReader(Pollable[Any]):
    """Iterates over the records of a gate. Channels take turns; each channel stays in order.

    Batches are views of the segments they arrived in. Keeping any number of them is safe: when
    segments run low, further batches are copied to ordinary memory, which
    ``env.stats()["copies"]`` counts.

    Pages can be small if there are many subpartitions; ``batch_bytes`` joins them.

    There are three ways to read, which may be mixed: ``for record in reader`` blocks,
    :meth:`poll_next` does not block, and ``async for record in reader`` lets other tasks of the
    event loop run.

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
        gate: an :class:`InputGate`, or a union of them, without another reader.
        schema: schema of the batches; the gate's if not given.
        serializer: serializer of the writers: ``"arrow"``, ``"bytes"`` or ``"pickle"``.
            ``"pickle"`` runs code that the writers choose.
        on_event: called with each :class:`Event` and :class:`EventAnnouncement`, which are dropped
            if it is not given. If the gate takes checkpoints, also with :class:`CheckpointBarrier`,
            :class:`CheckpointComplete` and :class:`CheckpointAborted`.
        batch_bytes: join pages into batches of up to this size, as ``"1m"`` or a number of bytes; 0
            returns each page as a batch. A batch may have rows of several channels, those of each
            channel in order. Joined pages are copied to ordinary memory, which frees their segments
            at once; ``env.stats()["copies"]["coalesced"]`` counts the bytes. The reader waits for
            no further page: it returns the rows it has before it would block, and before an event,
            an error or the end. A single page, or one larger than half of the size, is returned
            without a copy.

    Raises:
        OptionError: an Arrow reader without a schema, a ``batch_bytes`` that cannot be read or is
            above 1 GiB, or ``batch_bytes`` for records that are not batches.
    """

    def __init__(
        self,
        gate: DataInput,
        *,
        schema: pa.Schema | None = None,
        serializer: Literal["arrow", "bytes", "pickle"] = "arrow",
        on_event: Callable[[Any], object] | None = None,
        batch_bytes: int | str = 0,
    ) -> None:
        one_of("arrow", "bytes", "pickle")("serializer", serializer)
        if on_event is not None:
            function("on_event", on_event, 1, "def heard(event): ...")
        if schema is not None:
            arrow_schema("schema", schema)
        # docs/adr/0020-batches-put-together.md
        size: int = parse(OPTIONS["batch_bytes"], batch_bytes)
        if size and serializer != "arrow":
            raise OptionError(
                f"batch_bytes={batch_bytes!r}, and records of "
                f'serializer="{serializer}" are not batches',
                remedy="leave batch_bytes out",
            )
        self._serializer = serializer
        self._loads = _unpickled if serializer == "pickle" else None
        self._on_event = on_event
        self._schema = _schema_of(gate, schema) if serializer == "arrow" else None
        self._native = _native.RecordReader(
            gate._native,  # noqa: SLF001 - one package
            self._schema,
            size,
        )
        super().__init__(gate, self._native)

    def __iter__(self) -> Iterator[Any]:
        """Return the reader itself."""
        return self

    def __next__(self) -> Any:
        """Return the next record: a ``pyarrow.RecordBatch``, bytes, or an object.

        Raises:
            StopIteration: all channels have ended and their totals match.
            PeerLostError: the connection to a producer was lost.
            ProducerFailedError: a producer failed; the text is the producer's.
            IntegrityError: bytes, order or totals differ from those that were sent.
            SchemaMismatchError: a record cannot be unpickled; the exception of pickle, or of the
                object's own code, is the cause. The next record can be read.
        """
        while (record := self._native.next()) is not None:
            if isinstance(record, tuple):
                self._handle(record)
            else:
                return record if self._loads is None else self._loads(record)
        raise StopIteration

    def poll_next(self, default: Any = None) -> Any:
        """Return the next record, or `default` if there is none yet or any more; never blocks.

        ``is_finished`` distinguishes the two. Raises the errors of iterating.
        """
        return self._poll(self._native.poll_next, default)

    def poll_priority_event(self, default: Any = None) -> Any:
        """Pass priority events to ``on_event``, such as unaligned barriers, and read no data; never blocks.

        For a task whose outputs are full: its barriers need not wait until they have room. A record is returned
        only if it was taken from the gate before, else `default`. Raises the errors of iterating. Source:
        ``processPriorityEvents`` of Flink's ``CheckpointedInputGate``.
        """
        return self._poll(self._native.poll_priority_event, default)

    def _poll(self, poll: Callable[[], Any], default: Any) -> Any:
        while (record := poll()) is not None:
            if isinstance(record, tuple):
                self._handle(record)
            else:
                return record if self._loads is None else self._loads(record)
        return default

    def _until_timer(self) -> float | None:
        due = self.next_timer_ms()
        return None if due is None else max(0.0, due / 1000 - time.time())

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a pyarrow reader of the remaining batches; it reads through this object.

        Raises:
            OptionError: the records are not batches.
        """
        import pyarrow as pa

        if self._schema is None:
            raise OptionError(
                f'records of serializer="{self._serializer}" are not Arrow batches',
                remedy="for record in reader: ...",
            )
        return pa.RecordBatchReader.from_batches(self._schema, self)

    def read_all(self) -> pa.Table:
        """Return the remaining rows as one table; blocks until the producers have ended.

        Batches beyond half of the budget are copied out of the segments.

        Raises:
            OptionError: the records are not batches.
            PeerLostError: the connection to a producer was lost; and the other errors of iterating.
        """
        return self.to_reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return an Arrow stream of the remaining batches, as for ``polars.from_arrow(reader)``."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def totals(self) -> tuple[int, int]:
        """Return rows (or records) and bytes read so far."""
        return self._native.totals()

    def take_channel_state(self, checkpoint_id: int) -> list[tuple[int, bytes]]:
        """Take the records in flight that belong to a complete checkpoint: the input's part of it.

        These are the records before the barriers that the task had not processed when it took its
        snapshot. They are returned by this reader too, after the snapshot. An aligned checkpoint has
        none. :func:`decode_channel_state` reads the bytes.

        Returns:
            The channels that have such records, each with its bytes.

        Raises:
            ClosedError: the newest :class:`CheckpointComplete` is of another checkpoint, or it was
                taken.
            OptionError: no number of a checkpoint.
        """
        return self._native.take_channel_state(checked_id(checkpoint_id))

    def next_timer_ms(self) -> int | None:
        """Return when a poll is due although no data arrives, in ms since 1970; None for never.

        Barriers with a timeout set the time. Iterating and ``wait_available()`` heed it.
        """
        return self._native.next_timer_ms()

    def _handle(self, heard: tuple[Any, ...]) -> None:
        if isinstance(heard, NOTICES):
            self._handle_checkpoint(heard)
        elif self._on_event is not None:
            event = Event(*heard[:3])
            # A fourth field is the sequence number of an announced barrier.
            is_announced = len(heard) > 3
            self._on_event(
                EventAnnouncement(event.channel, heard[3], event) if is_announced else event
            )

    def _handle_checkpoint(self, notice: Any) -> None:
        if self._on_event is None:
            raise OptionError(
                "the gate takes checkpoints, and nobody hears of them",
                remedy="RecordReader(gate, on_event=...)",
            )
        self._on_event(notice)
        if isinstance(notice, CheckpointBarrier):
            # Not after an exception: without a snapshot nothing behind the barrier may be read.
            self._native.snapshot_taken(notice.checkpoint_id)


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
        gate: an :class:`InputGate`, or a union of them, without another reader.
    """

    def __init__(self, gate: DataInput) -> None:
        self._native = _native.BufferReader(gate._native)  # noqa: SLF001 - one package
        super().__init__(gate, self._native)

    def __iter__(self) -> Iterator[Buffer]:
        """Return the reader itself."""
        return self

    def __next__(self) -> Buffer:
        """Return the next buffer.

        Raises:
            StopIteration: all channels have ended.
            PeerLostError: the connection to a producer was lost; and the other errors of
                :class:`RecordReader`.
        """
        buffer = self._native.next()
        if buffer is None:
            raise StopIteration
        return _buffer(*buffer)

    def poll_next(self, default: Any = None) -> Any:
        """Return the next :class:`Buffer`, or `default` if there is none yet; never blocks."""
        buffer = self._native.poll_next()
        return default if buffer is None else _buffer(*buffer)


def _schema_of(gate: DataInput, schema: pa.Schema | None) -> pa.Schema:
    expected = gate.schema if schema is None else schema
    if expected is None:
        raise OptionError(
            "the schema of the batches is unknown",
            remedy="RecordReader(gate, schema=...) · "
            "env.create_result_partition(n, schema=...) before address()",
        )
    same_schema(gate.schema, expected, "the gate reads")
    return expected


def _unpickled(record: bytes) -> Any:
    try:
        # The caller chose pickle, and the connection authenticates the bytes.
        return pickle.loads(record)  # noqa: S301
    except Exception as error:
        raise SchemaMismatchError(
            f"a record of {len(record)} bytes cannot be unpickled: {type(error).__name__}: {error}",
            remedy='serializer="pickle" in the writer too · import where it is read what it is made of',
        ) from error


def _buffer(channel: int, data_type: int, sequence_number: int, data: bytes) -> Buffer:
    return Buffer(channel, DataType(data_type), data, sequence_number)
