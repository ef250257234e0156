"""Routing records to subpartitions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

from headgate import _native
from headgate._option_table import OPTIONS
from headgate._options import parse
from headgate._slices import columns_at_risk, unsliced
from headgate.data_types import DataType
from headgate.errors import OptionError, SelectorError
from headgate.schemas import same_schema
from headgate.selectors import (
    BuiltIn,
    HashSelector,
    KeyGroupSelector,
    RoundRobinSelector,
    Selector,
    native_choice,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.partition import ResultPartition

Serializer: TypeAlias = Literal["arrow", "bytes", "pickle"]


class WriterStats(NamedTuple):
    """What was emitted, counted once for each subpartition that gets it."""

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
        partition: what to write to.
        schema: of the batches, for ``serializer="arrow"``; the partition's own if not given.
        selector: which subpartition gets which row; each record in turn if not given. One of
            :mod:`headgate.selectors`, or a callable: it gets a batch and returns a number per row,
            or gets a bytes record or object and returns one.
        serializer: ``"arrow"``: record batches, anything with Arrow PyCapsules. ``"bytes"``: bytes
            records of any size. ``"pickle"``: Python objects; the reader has to say so too, and
            unpickling runs code of the writer's choice.
        buffer_timeout: how long what is emitted may wait for its page or buffer to fill, as
            ``"100ms"`` or seconds: a thread of the environment then sends it. 0 sends after each
            record, -1 never by time: full ones, events, :meth:`flush` and :meth:`finish` do. The
            environment's if not given. Source: Flink's execution.buffer-timeout.

    Raises:
        OptionError: a timeout below -1 or above its limit, an unknown serializer, no schema.
        UnknownColumnError: a key column that the schema does not have.
        UnsupportedTypeError: a column that cannot be hashed, or cannot travel in pages.
    """

    def __init__(
        self,
        partition: ResultPartition,
        schema: pa.Schema | None = None,
        *,
        selector: Selector | None = None,
        serializer: Serializer = "arrow",
        buffer_timeout: str | float | None = None,
    ) -> None:
        selector = RoundRobinSelector() if selector is None else selector
        self._choose = _custom(selector)
        self._chosen = 0
        self._partition = partition
        self._serializer = serializer
        self._arrow: _native.ArrowWriter | None = None
        self._bytes: _native.BytesWriter | None = None
        # The native writers are told the numbers of a function with each record.
        built_in = selector if isinstance(selector, BuiltIn) else RoundRobinSelector()
        choice = native_choice(built_in, partition.num_subpartitions)
        timeout = partition._environment._buffer_timeout  # noqa: SLF001 - one package
        if buffer_timeout is not None:
            timeout = parse(OPTIONS["buffer_timeout"], buffer_timeout)
        if serializer == "arrow":
            schema = partition._schema if schema is None else schema  # noqa: SLF001 - one package
            if schema is None:
                raise OptionError("a writer of Arrow batches needs schema=")
            same_schema(partition._schema, schema, "the partition was created for")  # noqa: SLF001
            self._at_risk = columns_at_risk(schema)
            self._arrow = _native.ArrowWriter(
                partition._native,  # noqa: SLF001 - one package
                schema,
                choice,
                timeout=timeout,
            )
            partition._schema = schema  # noqa: SLF001 - addresses carry it from now on
        elif serializer in {"bytes", "pickle"}:
            if isinstance(selector, (HashSelector, KeyGroupSelector)):
                raise SelectorError(f"{serializer} records have no columns to hash")
            self._bytes = _native.BytesWriter(
                partition._native,  # noqa: SLF001 - one package
                choice,
                timeout=timeout,
            )
        else:
            raise OptionError(
                f"serializer={serializer!r} is unknown", remedy='"arrow" · "bytes" · "pickle"'
            )

    @property
    def _native(self) -> _native.ArrowWriter | _native.BytesWriter:
        writer = self._arrow or self._bytes
        assert writer is not None  # noqa: S101 - one of both is set in __init__
        return writer

    def emit(self, record: Any) -> None:
        """Emit a record by the selector; blocks while the consumers are behind.

        A batch that goes to one subpartition as a whole, or to each, is often not copied: pages are
        slices of its memory. So nobody may change that until it is read, by a consumer in another
        process, or for as long as one in this process keeps it. Memory of Arrow's never changes; that of
        a numpy array under a batch may. It is let go of by later calls of the writer, by
        ``partition.wait_consumed()`` or with the environment, and by no thread of Headgate's.

        Args:
            record: a batch, table or stream with Arrow PyCapsules, bytes, or any object, as the
                serializer says. An Arrow stream is emitted batch by batch.

        Raises:
            SchemaMismatchError: another schema; the batch is not emitted at all.
            SelectorError: the callable failed, which is the cause then, or did not return one valid
                number per row; a null key of a KeyGroupSelector. The batch is not emitted at all.
            RecordTooLargeError: a row above ``max_record_size``.
            ClosedError: after :meth:`end_of_data` or :meth:`finish`.
        """
        self._partition.process_task_events()
        if self._arrow is None:
            self._emit_bytes(record)
        elif self._choose is None:
            for safe in self._safe(record):
                self._arrow.emit(safe)
        else:
            for batch in (batch for safe in self._safe(record) for batch in _batches(safe)):
                chosen = self._channels(self._choose, batch)
                self._arrow.emit_to(batch, _channel_numbers(chosen, batch.num_rows))

    def _safe(self, record: Any) -> Iterable[Any]:
        """Return the record as the native module may see it, in batches where that takes copies."""
        if not self._at_risk:
            return (record,)
        return (unsliced(batch, self._at_risk) for batch in _batches(record))

    def _emit_bytes(self, record: Any) -> None:
        writer = self._bytes
        assert writer is not None  # noqa: S101 - called for bytes writers only
        encoded = self._encode(record)
        if self._choose is None:
            writer.emit(encoded)
        else:
            writer.emit_to(encoded, _channel_number(self._channels(self._choose, record)))

    def _channels(self, choose: Callable[[Any], Any], record: Any) -> Any:
        self._chosen += 1
        try:
            return choose(record)
        except Exception as error:
            rows = getattr(record, "num_rows", None)
            what = (
                f"record {self._chosen}" if rows is None else f"batch {self._chosen}, {rows} rows"
            )
            raise SelectorError(
                f"the selector failed: {type(error).__name__}: {error}",
                asked=f"the channel numbers of {what}",
                remedy="see the exception above, it comes from the selector's own code",
            ) from error

    def broadcast_emit(self, record: Any) -> None:
        """Emit a record to every subpartition; in memory there is one copy of it, or none."""
        if self._arrow is not None:
            for safe in self._safe(record):
                self._arrow.broadcast_emit(safe)
        elif self._bytes is not None:
            self._bytes.broadcast_emit(self._encode(record))

    def random_emit(self, record: Any) -> None:
        """Emit a record to any one subpartition, all equally likely, whatever the selector.

        For what has no key and needs no fixed place, such as markers that measure latency. A batch
        goes there as a whole. Source: Flink's RecordWriter.randomEmit.
        """
        if self._arrow is not None:
            for safe in self._safe(record):
                self._arrow.random_emit(safe)
        elif self._bytes is not None:
            self._bytes.random_emit(self._encode(record))

    def broadcast_event(
        self,
        name: str,
        body: bytes = b"",
        *,
        is_priority: bool = False,
        is_barrier: bool = False,
        is_timeoutable: bool = False,
    ) -> None:
        """Append an event of your own to every subpartition, behind all records so far.

        Args:
            name: what kind of event it is; up to 65,535 bytes of UTF-8.
            body: its content; together with the name it must fit a segment.
            is_priority: let it overtake the records that wait.
            is_barrier: let each subpartition give nothing behind it before its consumer calls
                :meth:`InputGate.resume_consumption`.
            is_timeoutable: announce the barrier to consumers in other processes ahead of the records
                before it, so that they may stop waiting for those:
                :meth:`InputGate.convert_to_priority`.

        Raises:
            OptionError: an event with priority that is a barrier as well: what overtakes has nothing
                behind it to hold back. Something else than a barrier that is timeoutable.
        """
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

    def end_of_data(self, mode: Literal["drain", "no_drain"] = "drain") -> None:
        """Tell the consumers that no record follows; then they may acknowledge all of them.

        Args:
            mode: ``"drain"``: the input is exhausted. ``"no_drain"``: it goes on another time.

        Raises:
            OptionError: another mode.
            ClosedError: it was called before.
        """
        if mode not in {"drain", "no_drain"}:
            raise OptionError(f"mode={mode!r} is unknown", remedy='"drain" · "no_drain"')
        self._native.end_of_data(mode == "drain")

    def end_of_superstep(self) -> None:
        """Append the end of a superstep to every subpartition, behind all records so far.

        Readers have to be iterative: see :class:`RecordReader`.
        """
        self._native.end_of_superstep()

    def flush(self) -> None:
        """Show everything emitted so far to the consumers, in pages that are not full."""
        self._partition.process_task_events()
        self._native.flush()

    def finish(self) -> None:
        """End all subpartitions; a second call does nothing.

        Raises:
            SpillError: the last of a blocking partition does not fit the disk; the partition has
                failed.
        """
        self._partition.process_task_events()
        self._native.finish()

    def fail(self, cause: BaseException | str) -> None:
        """Fail the partition and its consumers with this cause."""
        self._native.fail(str(cause))

    def stats(self) -> WriterStats:
        """Return what was emitted so far; open pages count once they are sent."""
        return WriterStats(*self._native.stats())

    @property
    def is_available(self) -> bool:
        """Whether :meth:`emit` would begin at once: no subpartition is full, a segment is free.

        True as well where it would raise at once, and in a finished writer.
        """
        return self._native.is_available()

    def wait_available(self, timeout: float | None = None) -> bool:
        """Wait until the consumers have made room, without emitting anything.

        Args:
            timeout: seconds; as long as it takes if not given.

        Returns:
            :attr:`is_available`: False only on timeout.

        Raises:
            HeadgateError: why the partition failed meanwhile.
        """
        return self._native.wait_available(timeout)

    def back_pressured_ns(self) -> int:
        """Return how long this writer has waited for segments, in ns, a wait that lasts included."""
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
        """Finish the partition, or fail it with what left the block."""
        if exc is None:
            self.finish()
        else:
            self.fail(f"{type(exc).__name__}: {exc}")


def _custom(selector: Selector) -> Callable[[Any], Any] | None:
    if isinstance(selector, BuiltIn):
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
