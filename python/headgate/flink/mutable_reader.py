"""Reading into memory of the caller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from headgate._arguments import one_of
from headgate.checkpoints import NOTICES
from headgate.errors import HeadgateError, OptionError, RecordTooLargeError
from headgate.reader import RecordReader

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.gate import DataInput

_ORDER = "<" if sys.byteorder == "little" else ">"


class MutableRecordReader:
    """Fills arrays of the caller again and again, and allocates nothing per record.

    Rows go into a one-dimensional numpy structured array, or into a dict of column names and numpy
    arrays of one length. Other columns are skipped. Types of fixed width can be read: integers,
    floats, booleans (numpy's ``bool``), timestamps and durations (``datetime64[us]`` and the like,
    or ``int64``), dates (``datetime64[D]`` or ``int32``; date64 as ``int64``), times of day
    (``int32`` or ``int64``), fixed-size binary (``S16``, ``V16``). Nothing is cast, so the types
    must match. Booleans are unpacked through a temporary array of the chunk's length. Source:
    Flink's ``MutableRecordReader``.

    >>> import headgate as hg, numpy as np, pyarrow as pa
    >>> from headgate.flink import MutableRecordReader
    >>> schema = pa.schema([("user", pa.int64()), ("score", pa.float32())])
    >>> env = hg.ShuffleEnvironment(memory="1m", segment_size="32k")
    >>> partition = env.create_result_partition(1, schema=schema)
    >>> reader = MutableRecordReader(env.create_input_gate([partition.address(0)]))
    >>> with hg.RecordWriter(partition) as writer:
    ...     writer.emit(pa.record_batch([[7, 8, 9], [0.5, 1.5, 2.5]], schema=schema))
    >>> rows = np.zeros(2, [("user", "i8"), ("score", "f4")])
    >>> while count := reader.read_into(rows):
    ...     print(rows[:count].tolist())
    [(7, 0.5), (8, 1.5)]
    [(9, 2.5)]
    >>> env.close()

    Args:
        gate: an :class:`~headgate.InputGate`, or a :class:`UnionInputGate`, without another reader.
        schema: schema of the batches; the gate's if not given.
        serializer: ``"arrow"``, or ``"bytes"`` for writers of bytes records.
        on_event: as in :class:`~headgate.RecordReader`.

    Raises:
        OptionError: an Arrow reader without a schema.
    """

    def __init__(
        self,
        gate: DataInput,
        *,
        schema: pa.Schema | None = None,
        serializer: Literal["arrow", "bytes"] = "arrow",
        on_event: Callable[[Any], object] | None = None,
    ) -> None:
        one_of("arrow", "bytes")("serializer", serializer)
        #: Handles events; its native reader is read from here.
        self._reader = RecordReader(gate, schema=schema, serializer=serializer, on_event=on_event)
        self._native = self._reader._native  # noqa: SLF001 - one package
        self._handle = self._reader._handle  # noqa: SLF001 - one package
        self._schema = self._reader._schema  # noqa: SLF001 - one package
        #: Rows of the last batch that found no room.
        self._rest: pa.RecordBatch | None = None
        #: Raised by the next call, because the last one had filled some rows.
        self._error: HeadgateError | None = None
        #: Of a checkpoint; handled by the next call, because the last one had filled some rows.
        self._notice: tuple[Any, ...] | None = None

    @property
    def is_finished(self) -> bool:
        """True once everything was read: all channels have ended, and no row is left."""
        waits = (self._rest, self._error, self._notice) != (None, None, None)
        return not waits and self._native.is_finished()

    def read_into(self, out: Any, *, masks: Any = None) -> int | None:
        """Fill `out` from its start; blocks until there is a record, or the end.

        Of rows, it fills as many as are available, at most all of `out`. The next call begins with
        the rows of the batch that found no room. Of bytes records, it fills in one.

        Args:
            out: a structured array or a dict of arrays; with ``serializer="bytes"`` writable bytes
                such as a ``bytearray`` or a ``memoryview``.
            masks: boolean arrays for the columns that may have nulls, as a dict or a structured
                array. As in ``numpy.ma``, True marks a null, whose value in `out` is undefined.

        Returns:
            The number of rows, or bytes, filled in; None at the end of all channels. A bytes record
            may have 0 bytes.

        Raises:
            OptionError: arrays of other types, lengths or names than can be filled; or a null in a
                column without a mask. That batch is not read: the next call may bring a mask.
            RecordTooLargeError: a bytes record longer than `out`. The next call reads it.
            PeerLostError: the connection to a producer was lost; and the other errors of
                :class:`RecordReader`.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._notice is not None:
            notice, self._notice = self._notice, None
            self._handle(notice)
        if self._schema is None:
            return self._read_bytes(out)
        columns, room = _columns(out, self._schema)
        masked = _masks(masks, columns, room)
        filled = 0
        while filled < room:
            try:
                batch = self._rest
                if batch is None and (batch := self._next_batch(block=not filled)) is None:
                    break
                self._rest = batch
                count = min(batch.num_rows, room - filled)
                _copy(batch.slice(0, count), columns, masked, filled)
            except HeadgateError as error:
                if not filled:
                    raise
                # This call returns the rows it has filled; the next call raises.
                self._error = error
                break
            filled += count
            self._rest = batch.slice(count) if count < batch.num_rows else None
        return filled or None

    def _next_batch(self, *, block: bool) -> pa.RecordBatch | None:
        """Return the next batch that has rows; None at an end, or if reading would block."""
        read = self._native.next if block else self._native.poll_next
        while (record := read()) is not None:
            if isinstance(record, tuple):
                if not block and isinstance(record, NOTICES):
                    # The caller must have the rows that were filled in before it takes a snapshot.
                    self._notice = record
                    return None
                self._handle(record)
            elif record.num_rows:
                return record
        return None

    def _read_bytes(self, out: Any) -> int | None:
        while isinstance(read := self._native.next_into(out), tuple):
            self._handle(read)
        length: int | None = read
        if length is not None and length < 0:
            raise RecordTooLargeError(
                f"a record of {-length} bytes does not fit {memoryview(out).nbytes} bytes",
                remedy="call read_into() with a larger buffer: the record waits",
            )
        return length

    def totals(self) -> tuple[int, int]:
        """Return rows (or records) and bytes read so far."""
        return self._reader.totals()

    def take_channel_state(self, checkpoint_id: int) -> list[tuple[int, bytes]]:
        """Take a complete checkpoint's records in flight; see :meth:`headgate.RecordReader.take_channel_state`."""
        return self._reader.take_channel_state(checkpoint_id)

    def close(self) -> None:
        """Close the gate, so that the producers stop sending. A union's gates stay open."""
        self._rest = None
        self._reader.close()


def _columns(out: Any, schema: pa.Schema) -> tuple[dict[str, Any], int]:
    """Return the arrays to fill by name, checked against the schema, and their length."""
    columns, room = _named(out, "out")
    for name, array in columns.items():
        if schema.get_field_index(name) < 0:
            raise OptionError(
                f"out names a column {name!r} that the records do not have",
                have=", ".join(schema.names),
            )
        arrow = schema.field(name).type
        fitting = _dtypes(arrow)
        if not fitting:
            raise OptionError(
                f"column {name!r} is {arrow}: it has no fixed width",
                remedy="leave it out of out · RecordReader",
            )
        if array.dtype.str not in fitting:
            raise OptionError(
                f"column {name!r} is {arrow}, its array in out is {array.dtype}",
                remedy=" · ".join(f"dtype={text!r}" for text in fitting),
            )
        if not array.flags.writeable:
            raise OptionError(f"the array of column {name!r} in out is read-only")
    return columns, room


def _masks(masks: Any, columns: Mapping[str, Any], room: int) -> dict[str, Any]:
    if masks is None:
        return {}
    named, length = _named(masks, "masks")
    for name, mask in named.items():
        if name not in columns or mask.dtype.str != "|b1" or length < room:
            raise OptionError(
                f"the mask of {name!r} is {mask.dtype} of length {length}",
                asked="boolean arrays of columns of out, at least as long",
                have=f"out of length {room}: {', '.join(columns)}",
            )
    return named


def _named(arrays: Any, argument: str) -> tuple[dict[str, Any], int]:
    """Return the arrays of a dict, or of the fields of a structured array, and their length."""
    names = getattr(getattr(arrays, "dtype", None), "names", None)
    named = {name: arrays[name] for name in names} if names else arrays
    if not isinstance(named, Mapping):
        raise OptionError(
            f"{argument} is {type(arrays).__name__}",
            remedy="a numpy structured array · a dict of numpy arrays",
        )
    shapes = {getattr(array, "shape", None) for array in named.values()}
    shape = shapes.pop() if len(shapes) == 1 else None
    if shape is None or len(shape) != 1 or shape[0] == 0:
        raise OptionError(
            f"{argument} has no rows to fill, or its arrays differ in shape",
            remedy="arrays of one dimension and one length, 1 or more",
        )
    return dict(named), shape[0]


def _dtypes(arrow: pa.DataType) -> list[str]:
    """Return the numpy types, as ``dtype.str``, that can hold an Arrow type of fixed width."""
    import pyarrow as pa

    if pa.types.is_boolean(arrow):
        return ["|b1"]
    if pa.types.is_fixed_size_binary(arrow) and not pa.types.is_decimal(arrow):
        return [f"|S{arrow.byte_width}", f"|V{arrow.byte_width}"]
    if pa.types.is_temporal(arrow):
        return _temporal(arrow)
    kinds = {
        "i": pa.types.is_signed_integer,
        "u": pa.types.is_unsigned_integer,
        "f": pa.types.is_floating,
    }
    for kind, belongs in kinds.items():
        if belongs(arrow):
            width = arrow.bit_width // 8
            return [f"{'|' if width == 1 else _ORDER}{kind}{width}"]
    return []


def _temporal(arrow: pa.DataType) -> list[str]:
    import pyarrow as pa

    if pa.types.is_interval(arrow):
        return []
    physical = f"{_ORDER}i{arrow.bit_width // 8}"
    if pa.types.is_timestamp(arrow):
        return [f"{_ORDER}M8[{arrow.unit}]", physical]
    if pa.types.is_duration(arrow):
        return [f"{_ORDER}m8[{arrow.unit}]", physical]
    if pa.types.is_date32(arrow):
        return [f"{_ORDER}M8[D]", physical]
    return [physical]


def _copy(
    batch: pa.RecordBatch, columns: Mapping[str, Any], masks: Mapping[str, Any], start: int
) -> None:
    """Copy a whole batch, or nothing, to the rows from `start` on."""
    end = start + batch.num_rows
    picked = {name: batch.column(name) for name in columns}
    for name, column in picked.items():
        if column.null_count and name not in masks:
            raise OptionError(
                f"column {name!r} holds {column.null_count} nulls and has no mask",
                remedy=f"masks={{{name!r}: numpy.zeros(len(out), bool)}} · fill_null before emit",
            )
    for name, column in picked.items():
        columns[name][start:end] = _values(column, columns[name].dtype)
        if name in masks:
            nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else False
            masks[name][start:end] = nulls


def _values(column: pa.Array, dtype: Any) -> Any:
    """Return the values, also of nulls, for an array of `dtype`; a view except for booleans."""
    import pyarrow as pa

    arrow, length, offset = column.type, len(column), column.offset
    data = column.buffers()[1]
    if pa.types.is_boolean(arrow):
        bits = pa.Array.from_buffers(arrow, length, [None, data], offset=offset)
        return bits.to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_binary(arrow):
        width = arrow.byte_width
        octets = pa.Array.from_buffers(
            pa.uint8(), length * width, [None, data], offset=offset * width
        )
        return octets.to_numpy().view(dtype)
    view = (
        {32: pa.int32(), 64: pa.int64()}[arrow.bit_width] if pa.types.is_temporal(arrow) else arrow
    )
    values = pa.Array.from_buffers(view, length, [None, data], offset=offset).to_numpy()
    if pa.types.is_timestamp(arrow) or pa.types.is_duration(arrow):
        return values.view(dtype)
    return values
