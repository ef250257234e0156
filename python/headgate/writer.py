"""Routing records to subpartitions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeAlias

from headgate import _native
from headgate._arguments import (
    any_text,
    arrow_schema,
    flag,
    instance,
    octets,
    one_of,
    patience,
    takes,
    timeout,
)
from headgate._option_table import OPTIONS
from headgate._options import parse
from headgate._slices import columns_at_risk, unsliced
from headgate.checkpoints import CheckpointBarrier, check_barrier, checked_id
from headgate.data_types import DataType
from headgate.errors import OptionError, SelectorError
from headgate.partition import ResultPartition
from headgate.schemas import same_schema
from headgate.selectors import (
    HashSelector,
    KeyedStateSelector,
    KeyGroupSelector,
    NativeSelector,
    RoundRobinSelector,
    Selector,
    native_choice,
)

if TYPE_CHECKING:
    import pyarrow as pa


Serializer: TypeAlias = Literal["arrow", "bytes", "pickle"]
_SERIALIZERS: Final = ("arrow", "bytes", "pickle")


class WriterStats(NamedTuple):
    """Totals of a writer; a record counts once for each subpartition that gets it."""

    rows: int
    bytes: int
    buffers: int


class RecordWriter:
    """The one writer of a result partition.

    As a context manager it finishes the partition at the end of the block, or fails it with the
    exception that left the block.

    >>> import pyarrow as pa
    >>> import headgate as hg
    >>> with hg.ShuffleEnvironment() as env:
    ...     batch = pa.record_batch({"n": [1, 2, 3]})
    ...     partition = env.create_result_partition(2, schema=batch.schema)
    ...     gate = env.create_input_gate([partition.address(0), partition.address(1)])
    ...     selector = hg.RoundRobinSelector(by_rows=True)
    ...     with hg.RecordWriter(partition, selector=selector) as writer:
    ...         writer.emit(batch)
    ...     sorted(batch.column("n").to_pylist() for batch in hg.RecordReader(gate))
    [[1, 3], [2]]

    Args:
        partition: the partition to write to.
        schema: schema of the batches with ``serializer="arrow"``; the partition's if not given.
        selector: chooses the subpartition of each row; one of :mod:`headgate`, or a
            callable. A callable gets a batch and returns one number per row, or gets a bytes record
            or object and returns one number. Round-robin by records if not given.
        serializer: ``"arrow"`` for record batches, from any object with Arrow PyCapsules.
            ``"bytes"`` for bytes records of any size. ``"pickle"`` for Python objects: the reader
            must say so too, and unpickling runs code that the writer chooses.
        buffer_timeout: longest wait of a record for its page or buffer to fill, as ``"100ms"`` or
            seconds. Then the environment's output flusher, a thread, sends it. 0 sends after each
            record. -1 sends only full buffers, or on events, :meth:`flush` and :meth:`finish`. The
            environment's if not given. Source: Flink's execution.buffer-timeout.

    Raises:
        OptionError: a timeout outside its limits, an unknown serializer, or no schema.
        UnknownColumnError: a key column that the schema does not have.
        UnsupportedTypeError: a column that cannot be hashed, or cannot travel in pages.
    """

    @takes(
        partition=instance("a ResultPartition", ResultPartition),
        schema=arrow_schema,
        serializer=one_of(*_SERIALIZERS),
    )
    def __init__(
        self,
        partition: ResultPartition,
        schema: pa.Schema | None = None,
        *,
        selector: Selector | NativeSelector | None = None,
        serializer: Serializer = "arrow",
        buffer_timeout: str | float | None = None,
    ) -> None:
        selector = RoundRobinSelector() if selector is None else selector
        self._choose = _custom(selector)
        self._num_chosen = 0
        self._partition = partition
        #: Of task events, by name. Most partitions have none, and their records cost nothing.
        self._handlers = partition._handlers  # noqa: SLF001 - one package
        self._serializer = serializer
        #: Columns that need a copy before the native writer may read them.
        self._at_risk: list[int] = []
        # A callable passes its numbers with each record, so the native selector is never asked.
        built_in = selector if isinstance(selector, NativeSelector) else RoundRobinSelector()
        choice = native_choice(built_in, partition.num_subpartitions)
        timeout = partition._buffer_timeout  # noqa: SLF001 - one package
        if buffer_timeout is not None:
            timeout = parse(OPTIONS["buffer_timeout"], buffer_timeout)
        expected = None
        if serializer == "arrow":
            expected = partition._schema if schema is None else schema  # noqa: SLF001 - one package
            if expected is None:
                raise OptionError("a writer of Arrow batches needs schema=")
            same_schema(partition._schema, expected, "the partition was created for")  # noqa: SLF001
            self._at_risk = columns_at_risk(expected)
        elif isinstance(selector, (HashSelector, KeyGroupSelector, KeyedStateSelector)):
            raise SelectorError(f"{serializer} records have no columns to hash")
        self._native = _native.RecordWriter(
            partition._native,  # noqa: SLF001 - one package
            choice,
            expected,
            timeout=timeout,
        )
        if expected is not None:
            partition._schema = expected  # noqa: SLF001 - addresses carry it from now on

    def emit(self, record: Any) -> None:
        """Emit a record by the selector; blocks while the consumers are behind.

        A batch that goes to one subpartition as a whole, or to all, is often not copied: its pages
        are slices of its memory. Do not change that memory before a consumer in another process has
        read it, or while a consumer in this process keeps it. Arrow's own memory never changes, but
        that of a numpy array under a batch can. Later calls of the writer,
        ``partition.wait_consumed()`` and closing the environment release the memory; no thread of
        Headgate does. See docs/adr/0021-pages-in-pieces.md.

        A signal handler may raise while this call waits. Rows before that are emitted. If a part of a
        record is sent by then, the partition fails with the exception as its cause.

        Args:
            record: a batch, table or stream with Arrow PyCapsules, bytes, or any object, as the
                serializer says. An Arrow stream is emitted batch by batch.

        Raises:
            SchemaMismatchError: the batch has another schema. None of it is emitted.
            SelectorError: the callable raised, which is the cause, or did not return one valid
                number per row; or a key of a KeyGroupSelector is null. None of the batch is
                emitted.
            RecordTooLargeError: a row above ``max_record_size``.
            ClosedError: after :meth:`end_of_data` or :meth:`finish`.
        """
        if self._handlers:
            self._partition.process_task_events()
        if self._choose is not None:
            self._emit_chosen(self._choose, record)
            return
        for part in self._prepared(record):
            self._native.emit(part)

    def _emit_chosen(self, choose: Callable[[Any], Any], record: Any) -> None:
        for part in self._prepared(record):
            if self._serializer != "arrow":
                self._native.emit_to(part, _channel_number(self._channels(choose, record)))
                continue
            for batch in _batches(part):
                numbers = _channel_numbers(self._channels(choose, batch), batch.num_rows)
                self._native.emit_to(batch, numbers)

    def _prepared(self, record: Any) -> Iterable[Any]:
        if self._serializer != "arrow":
            return (self._encode(record),)
        if not self._at_risk:
            return (record,)
        return (unsliced(batch, self._at_risk) for batch in _batches(record))

    def _channels(self, choose: Callable[[Any], Any], record: Any) -> Any:
        self._num_chosen += 1
        try:
            return choose(record)
        except Exception as error:
            rows = getattr(record, "num_rows", None)
            number = self._num_chosen
            name = f"record {number}" if rows is None else f"batch {number}, {rows} rows"
            raise SelectorError(
                f"the selector failed: {type(error).__name__}: {error}",
                asked=f"the channel numbers of {name}",
                remedy="see the exception above, it comes from the selector's own code",
            ) from error

    def broadcast_emit(self, record: Any) -> None:
        """Emit a record to every subpartition; in memory there is one copy of it, or none."""
        for part in self._prepared(record):
            self._native.broadcast_emit(part)

    @takes(name=any_text, body=octets(), is_priority=flag, is_barrier=flag, is_timeoutable=flag)
    def broadcast_event(
        self,
        name: str,
        body: bytes = b"",
        *,
        is_priority: bool = False,
        is_barrier: bool = False,
        is_timeoutable: bool = False,
    ) -> None:
        """Append an event of your own to every subpartition, after all records so far.

        Args:
            name: kind of the event; up to 65,535 bytes of UTF-8. The names that events of Headgate
                have at a reader, such as ``EndOfData(Drain)``, are reserved.
            body: content of the event. Name and body together must fit a segment.
            is_priority: let the event overtake waiting records.
            is_barrier: block each subpartition behind the event until its consumer calls
                :meth:`InputGate.resume_consumption`.
            is_timeoutable: announce the barrier to consumers in other processes ahead of the
                records before it, so that they may let it overtake those:
                :meth:`InputGate.convert_to_priority`.

        Raises:
            OptionError: a reserved name, both ``is_priority`` and ``is_barrier``, or
                ``is_timeoutable`` without ``is_barrier``.
        """
        if _native.is_reserved_event(name):
            raise OptionError(
                f"name={name!r} is the name of an event of Headgate: readers could not tell them apart",
                remedy="another name · end_of_data() sends that event",
            )
        if is_priority and is_barrier:
            raise OptionError("is_priority=True and is_barrier=True", remedy="one of them")
        if is_timeoutable and not is_barrier:
            raise OptionError(
                "is_timeoutable=True, and the event is no barrier",
                remedy="is_barrier=True, is_timeoutable=True",
            )
        data_type = DataType.EVENT_BUFFER
        if is_priority:
            data_type = DataType.PRIORITIZED_EVENT_BUFFER
        elif is_timeoutable:
            data_type = DataType.TIMEOUTABLE_ALIGNED_CHECKPOINT_BARRIER
        elif is_barrier:
            data_type = DataType.ALIGNED_CHECKPOINT_BARRIER
        self._native.broadcast_event(name, body, data_type)

    @takes(barrier=instance("a CheckpointBarrier", CheckpointBarrier))
    def broadcast_barrier(self, barrier: CheckpointBarrier) -> None:
        """Send the barrier of a checkpoint on all subpartitions, after all records so far.

        An aligned one blocks each subpartition until its consumer has the barriers of all its channels.
        A timeoutable one is announced to consumers in other processes ahead of the records before it.
        An unaligned one overtakes all records that wait. Source: Flink's ``broadcastEvent`` of a
        ``CheckpointBarrier``.

        Raises:
            OptionError: a field that no barrier can have.
            ClosedError: a blocking or hybrid partition, or after :meth:`finish`.
            RecordTooLargeError: a body that does not fit a segment.
        """
        check_barrier(barrier)
        self._native.broadcast_barrier(barrier)

    def broadcast_cancellation(self, checkpoint_id: int) -> None:
        """Tell all consumers, after all records so far, that a checkpoint was given up.

        Their readers abort it, and resume the channels that wait for it. Source: Flink's
        ``CancelCheckpointMarker``.

        Raises:
            OptionError: no number of a checkpoint.
            ClosedError: after :meth:`finish`.
        """
        self._native.broadcast_cancellation(checked_id(checkpoint_id))

    def take_channel_state(self, checkpoint_id: int) -> list[tuple[int, bytes]] | None:
        """Take the records that a barrier overtook: the output's part of its checkpoint.

        An unaligned barrier has overtaken all that waited when it was sent. A timeoutable one overtakes
        what still waits when its timeout has passed; Headgate sees to it, also while :meth:`emit`
        blocks. :func:`decode_channel_state` reads the bytes.

        Returns:
            The subpartitions that have such records, each with its bytes. None while a timeoutable
            barrier waits behind records and its timeout has not passed: ask again later.

        Raises:
            ClosedError: the newest barrier is of another checkpoint, or it was taken.
            OptionError: no number of a checkpoint.
        """
        return self._native.take_channel_state(checked_id(checkpoint_id))

    @takes(mode=one_of("drain", "no_drain"))
    def end_of_data(self, mode: Literal["drain", "no_drain"] = "drain") -> None:
        """Announce that no record follows; consumers may then acknowledge all of them.

        Args:
            mode: ``"drain"`` if the input is exhausted, ``"no_drain"`` if the job stops to continue
                later.

        Raises:
            OptionError: another mode.
            ClosedError: it was called before.
        """
        if mode not in {"drain", "no_drain"}:
            raise OptionError(f"mode={mode!r} is unknown", remedy='"drain" · "no_drain"')
        self._native.end_of_data(mode == "drain")

    def flush(self) -> None:
        """Send everything emitted so far, in pages that are not full."""
        if self._handlers:
            self._partition.process_task_events()
        self._native.flush()

    def finish(self) -> None:
        """End all subpartitions; a second call does nothing.

        Raises:
            SpillError: the last data of a blocking partition does not fit the disk. The partition
                fails.
        """
        if self._handlers:
            self._partition.process_task_events()
        self._native.finish()

    def fail(self, cause: BaseException | str) -> None:
        """Fail the partition and its consumers with this cause."""
        self._native.fail(str(cause))

    def stats(self) -> WriterStats:
        """Return the totals so far; an open page counts once it is sent."""
        return WriterStats(*self._native.stats())

    @property
    def is_available(self) -> bool:
        """True if :meth:`emit` would not block: no subpartition is full, and a segment is free.

        Also True in a finished writer, and if :meth:`emit` would raise at once.
        """
        return self._native.is_available()

    @takes(timeout=timeout)
    def wait_available(self, timeout: float | None = None) -> bool:
        """Wait until the consumers have made room or :meth:`wake_up` is called, without emitting anything.

        Args:
            timeout: seconds; no limit if not given.

        Returns:
            :attr:`is_available`: False only on timeout, and if it was woken up.

        Raises:
            HeadgateError: the failure of the partition.
        """
        return self._native.wait_available(patience(timeout))

    def wake_up(self) -> None:
        """End :meth:`wait_available` at once, or the next call of it; any thread may call it."""
        self._native.wake_up()

    def back_pressured_ns(self) -> int:
        """Return how long this writer has waited for segments, in ns, including a current wait."""
        return self._native.back_pressured_ns()

    def _encode(self, record: Any) -> bytes:
        if self._serializer == "pickle":
            return pickle.dumps(record, protocol=5)
        if isinstance(record, (bytes, bytearray, memoryview)):
            return bytes(record)
        raise OptionError(
            f"a record is {type(record).__name__}, this writer takes bytes",
            remedy='encode it · serializer="pickle" on both sides',
        )

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish the partition, or fail it with the exception that left the block."""
        if exc is None:
            self.finish()
        else:
            self.fail(f"{type(exc).__name__}: {exc}")


def _custom(selector: Selector | NativeSelector) -> Callable[[Any], Any] | None:
    if isinstance(selector, NativeSelector):
        return None
    if callable(selector):
        return selector
    raise SelectorError(
        f"selector={selector!r} is neither a selector nor callable",
        remedy='HashSelector(["user"]) · RoundRobinSelector() · BroadcastSelector() · a function',
    )


def _batches(record: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if isinstance(record, pa.RecordBatch):
        yield record
    elif hasattr(record, "__arrow_c_array__"):
        yield pa.record_batch(record)
    else:
        yield from pa.RecordBatchReader.from_stream(record)


def _channel_numbers(chosen: Any, rows: int) -> pa.Array:
    import pyarrow as pa

    try:
        numbers = pa.array(chosen)
        if numbers.null_count:
            raise ValueError(f"{numbers.null_count} of them are null")
        if rows and not pa.types.is_integer(numbers.type):
            raise TypeError(f"they are {numbers.type}, not whole numbers")
        numbers = numbers.cast(pa.uint32())
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SelectorError(
            f"the selector did not return channel numbers: {error}",
            asked=f"{rows} whole numbers, one per row",
            have=type(chosen).__name__,
        ) from error
    return numbers


def _channel_number(chosen: Any) -> int:
    if isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < 2**32:
        return chosen
    raise SelectorError(f"the selector returned {chosen!r}, which is no channel number")
