"""The partitions of rows in a run without Spark: by the writers and readers of Headgate, or without the native module."""

from __future__ import annotations

from itertools import cycle, islice
from random import Random
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from headgate._matches import close_matches
from headgate._missing import has_native
from headgate.environment import ShuffleEnvironment
from headgate.errors import SelectorError, UnknownColumnError
from headgate.reader import RecordReader
from headgate.selectors import native_choice
from headgate.writer import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PLACES: Final = "one partition number for each row, as a list of int"


def placed(
    batches: Sequence[pa.RecordBatch], schema: pa.Schema, selector: Any, partitions: int
) -> list[list[pa.RecordBatch]]:
    """Return the rows of each partition, in one batch; without a batch if it has none.

    They are where Headgate places them. Without the native module all rows of a key are in one partition too, but it
    may be another one.
    """
    if not has_native():
        table = pa.Table.from_batches(batches, schema)
        places = _places(batches, table, selector, partitions)
        return [whole(table.take(pa.array(rows, pa.int64()))) for rows in places]
    with ShuffleEnvironment() as environment:
        partition = environment.create_result_partition(partitions, kind="blocking", schema=schema)
        with RecordWriter(partition, schema, selector=selector) as writer:
            for batch in batches:
                writer.emit(batch)
        contents = []
        for index in range(partitions):
            gate = environment.create_input_gate([partition.address(index)], schema=schema)
            read = pa.Table.from_batches(RecordReader(gate, schema=schema), schema)
            gate.close()
            contents.append(whole(_copied(read)))
        return contents


def whole(table: pa.Table) -> list[pa.RecordBatch]:
    """Return all rows in one batch; no batch if there are no rows."""
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    return [batch for batch in batches if batch.num_rows]


def _copied(table: pa.Table) -> pa.Table:
    """Return a copy that outlives the environment whose pages the table holds."""
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, table.schema) as stream:
        stream.write_table(table)
    return pa.ipc.open_stream(written.getvalue()).read_all()


def _places(
    batches: Sequence[pa.RecordBatch], table: pa.Table, selector: Any, partitions: int
) -> list[list[int]]:
    """Return the numbers of the rows of each partition."""
    if callable(selector):
        numbers = [number for batch in batches for number in _chosen(selector, batch, partitions)]
        return _by_number(numbers, partitions)
    kind, values = native_choice(selector, partitions)
    if kind == "broadcast":
        return [list(range(table.num_rows))] * partitions
    if kind in {"hash", "key_group"}:
        paths = values[0] if kind == "hash" else [(values[0],)]
        keys = zip(*(_column(table, path).to_pylist() for path in paths), strict=True)
        return _by_number(
            (crc32(repr(_plain(key)).encode()) % partitions for key in keys), partitions
        )
    by_rows = bool(values[-1]) and kind != "one"
    sizes = [1] * table.num_rows if by_rows else [batch.num_rows for batch in batches]
    turns: Iterable[int] = iter(lambda: 0, 1)
    if kind == "round_robin":
        start, first, end, _ = values
        turns = islice(cycle(range(first, end)), start, None)
    elif kind == "shuffle":
        random = Random(values[0])  # noqa: S311 - a test repeats it
        turns = iter(lambda: random.randrange(partitions), -1)
    numbers = [number for size, number in zip(sizes, turns, strict=False) for _ in range(size)]
    return _by_number(numbers, partitions)


def _by_number(numbers: Iterable[int], partitions: int) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(partitions)]
    for row, number in enumerate(numbers):
        rows[number].append(row)
    return rows


def _chosen(selector: Any, batch: pa.RecordBatch, partitions: int) -> list[int]:
    """Return what a function returns for a batch.

    Raises:
        SelectorError: it is not a number of a partition for each row.
    """
    try:
        numbers: list[Any] = pa.array(selector(batch)).cast(pa.int64()).to_pylist()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise SelectorError("by did not return partition numbers", remedy=_PLACES) from None
    wrong = [number for number in numbers if number is None or not 0 <= number < partitions]
    if wrong or len(numbers) != batch.num_rows:
        have = f"{len(numbers)} numbers for {batch.num_rows} rows"
        raise SelectorError(
            f"by returned {wrong[0]}, which is not from 0 to {partitions - 1}"
            if wrong
            else f"by returned {have}",
            have=have,
            remedy=_PLACES,
        )
    return numbers


def _column(table: pa.Table, path: tuple[str, ...]) -> pa.Array:
    """Return a column, or a field of one.

    Raises:
        UnknownColumnError: the rows have none of the name.
    """
    names, column = table.schema.names, None
    for name in path:
        if name not in names:
            near = close_matches(name, names) or names[:3]
            raise UnknownColumnError(
                f"there is no column {'.'.join(path)!r} in the rows",
                asked=f"by={'.'.join(path)!r}",
                have=", ".join(names),
                remedy=" · ".join(f"by={other!r}" for other in near),
            )
        column = table[name].combine_chunks() if column is None else pc.struct_field(column, name)
        names = [field.name for field in column.type] if pa.types.is_struct(column.type) else []
    return column


def _plain(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of a key with one zero of floats, as Spark has it."""
    return tuple(value + 0.0 if isinstance(value, float) else value for value in key)
