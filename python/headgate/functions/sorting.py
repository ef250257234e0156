"""Sorts batches by columns, in files if they exceed the memory that may be used.

Decision: ADR 0027.
"""

from __future__ import annotations

import contextlib
import tempfile
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate._directories import local_directories
from headgate.errors import UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

#: Bytes of a sorted batch, or up to twice as many, unless a single row has more.
_BYTES: Final = 1 << 20
#: Runs that are merged to one as soon as there are so many: each has an open file.
_RUNS: Final = 128
#: Runs that are merged at least, however wide their rows are: fewer would write all rows too often.
_LEAST_RUNS: Final = 8
#: Blocks that fit into the memory: a merge holds one or two blocks of each run, and as much again in order.
_BLOCKS: Final = 4 * _RUNS
#: Bytes of a block, at least.
_LEAST_BLOCK: Final = 64 << 10
#: Bytes that the sort of a row takes for its place in the order.
_PLACE: Final = 16


def sort_batches(
    batches: Iterable[pa.RecordBatch], by: Sequence[str | tuple[str, ...]], memory: int
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows in ascending order of the columns; rows that are equal there keep their order.

    As in Spark, nulls come first and NaN last. Rows wait in memory until they and their sorted copy take
    ``memory`` bytes; then they are sorted and written to a file, and all files are merged at the end. The files are in Spark's local directories in a task, and where temporary files are elsewhere.

    Args:
        batches: the rows, of one schema.
        by: columns that Arrow can sort; a tuple names a field of a column.
        memory: bytes that waiting rows and their sort may take.
    """
    with contextlib.closing(Sorter(by, memory)) as sorter:
        for batch in batches:
            sorter.add(batch)
        yield from sorter.in_order()


class Sorter:
    """Takes rows and gives them back in order; see :func:`sort_batches`.

    Args:
        by: columns that Arrow can sort.
        memory: bytes that waiting rows and their sort may take.
    """

    def __init__(self, by: Sequence[str | tuple[str, ...]], memory: int) -> None:
        self._by = by
        self._memory = memory
        self._block = max(memory // _BLOCKS, _LEAST_BLOCK)
        self._files = contextlib.ExitStack()
        self._runs: list[_Run] = []
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch."""
        more = _bytes_to_sort(batch)
        if self._waiting and self._size + more > self._memory:
            self._write_run()
            if _are_enough(self._runs, self._block):
                tables = _merged(self._runs, self._by)
                merged = _Run(self._files, tables, batch.schema, self._block, 0)
                for run in self._runs:
                    run.close()
                self._runs = [merged]
        self._waiting.append(batch)
        self._size += more

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, once."""
        if self._runs:
            self._write_run()
            yield from _cut_all(_merged(self._runs, self._by), _BYTES)
        elif self._waiting:
            table = _sorted(self._waiting, self._by)
            self._waiting.clear()  # their copy is enough
            yield from _cut(table, _BYTES)

    def close(self) -> None:
        """Delete the files. May be called twice."""
        self._files.close()

    def _write_run(self) -> None:
        table = _sorted(self._waiting, self._by)
        self._waiting, self._size = [], 0
        run = _Run(self._files, [table], table.schema, self._block, len(self._runs))
        self._runs.append(run)


def _bytes_to_sort(batch: pa.RecordBatch) -> int:
    """Return the bytes of rows and their sorted copy. Arrow joins the chunks of a column before it copies it."""
    largest: int = max((column.nbytes for column in batch.columns), default=0)
    return 2 * int(batch.nbytes) + largest + _PLACE * int(batch.num_rows)


def _sorted(batches: Sequence[pa.RecordBatch], by: Sequence[str | tuple[str, ...]]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return table.take(_order(table, by))


def _cut(table: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of so many bytes, or up to twice as many, unless a single row has more."""
    rows = max(1, table.num_rows * size // max(1, table.nbytes))
    for batch in table.to_batches(max_chunksize=rows):
        yield from _halved(batch, 2 * size)


def _cut_all(tables: Iterable[pa.Table], size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows as :func:`_cut` does. No table is held when the next one is made."""
    return chain.from_iterable(map(partial(_cut, size=size), tables))


def _halved(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most so many bytes, unless a single row has more."""
    if batch.num_rows > 1 and batch.nbytes > most:
        half = batch.num_rows // 2
        yield from _halved(batch.slice(0, half), most)
        yield from _halved(batch.slice(half), most)
    elif batch.num_rows:
        yield batch


class _Run:
    """Sorted rows in a file, read block by block.

    Args:
        files: closes the file.
        tables: the rows.
        schema: of the rows.
        block: bytes of a block, or up to twice as many, unless a single row has more.
        number: of the run, which chooses the folder.
    """

    def __init__(
        self,
        files: contextlib.ExitStack,
        tables: Iterable[pa.Table],
        schema: pa.Schema,
        block: int,
        number: int,
    ) -> None:
        folders = [folder for folder in map(Path, local_directories()) if folder.is_dir()]
        folder = folders[number % len(folders)] if folders else None
        self._file = files.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 - it closes it
        self._block = block
        #: Bytes of the largest block.
        self.largest = 0
        with pa.ipc.new_stream(self._file, schema) as stream:
            for batch in _cut_all(tables, block):
                stream.write_batch(batch)
                self.largest = max(self.largest, batch.nbytes)
        self._file.seek(0)
        self._blocks = pa.ipc.open_stream(self._file)
        self.held: pa.Table = schema.empty_table()
        self._held_bytes = 0
        self.has_more = True

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

    def fill(self) -> None:
        """Hold at least a block of rows, unless fewer are left."""
        while self.has_more and self._held_bytes < self._block:
            batch = next(self._blocks, None)
            self.has_more = batch is not None
            if batch is not None:
                self._hold(pa.concat_tables([self.held, pa.Table.from_batches([batch])]))

    def leave(self, rows: int) -> None:
        """Let go of the first rows that are held."""
        if rows:
            self._hold(self.held.slice(rows))

    def _hold(self, rows: pa.Table) -> None:
        self.held, self._held_bytes = rows, rows.nbytes


def _are_enough(runs: Sequence[_Run], block: int) -> bool:
    """Return True if a merge of more runs would open too many files, or hold too many bytes."""
    # The bytes are reached only if rows are wider than a block.
    is_large = sum(run.largest for run in runs) > 2 * _RUNS * block
    return len(runs) >= _RUNS or (is_large and len(runs) >= _LEAST_RUNS)


def _merged(runs: Sequence[_Run], by: Sequence[str | tuple[str, ...]]) -> Iterator[pa.Table]:
    """Yield the rows of all runs in order.

    Each run holds some of its first rows. The last of these that comes first in the order is the limit: no
    row that a file still has can come before it. So what is held up to the limit is sorted together and leaves.
    """
    while True:
        for run in runs:
            run.fill()
        runs = [run for run in runs if run.held.num_rows]
        if not runs:
            return
        going, limit = _up_to_limit(runs, by)
        table = pa.concat_tables(run.held for run in going)
        order = _order(table, by)
        if limit is not None:
            before = sum(run.held.num_rows for run in going[: going.index(limit) + 1])
            order = order.slice(0, pc.index(order, before - 1).as_py() + 1)
        yield table.take(order)
        start = 0
        for run in going:
            end = start + run.held.num_rows
            inside = pc.and_(pc.greater_equal(order, start), pc.less(order, end))
            run.leave(pc.sum(inside).as_py())
            start = end


def _up_to_limit(
    runs: Sequence[_Run], by: Sequence[str | tuple[str, ...]]
) -> tuple[list[_Run], _Run | None]:
    """Return the runs with rows up to the limit, and the run whose last row is it; None without a limit."""
    open_runs = [run for run in runs if run.has_more]
    if not open_runs:
        return list(runs), None
    lasts = pa.concat_tables(run.held.slice(run.held.num_rows - 1) for run in open_runs)
    first_of_lasts = _order(lasts, by)[0].as_py()
    limit = open_runs[first_of_lasts]
    # Rows of later runs that are equal to the limit come after it, so these runs need not be sorted with it.
    place = runs.index(limit) + 1
    heads = [run.held.slice(0, 1) for run in runs]
    heads.insert(place, lasts.slice(first_of_lasts, 1))
    order = _order(pa.concat_tables(heads), by).to_pylist()
    going = sorted(number - (number > place) for number in order[: order.index(place)])
    return [runs[number] for number in going], limit


def _order(table: pa.Table, by: Sequence[str | tuple[str, ...]]) -> pa.Array:
    """Return the numbers of the rows in order. Rows that are equal there keep their order."""
    columns: list[pa.ChunkedArray] = []
    for key in by:
        name, *fields = (key,) if isinstance(key, str) else key
        column = pc.struct_field(table[name], fields) if fields else table[name]
        if not pa.types.is_null(column.type):
            check_sortable(name, column.type)
        if column.null_count:
            columns.append(pc.is_valid(column))  # false comes first
        columns.append(column)
    names = [str(number) for number in range(len(columns))]
    keys = [(name, "ascending") for name in names]
    return pc.sort_indices(pa.table(columns, names), sort_keys=keys)


def check_sortable(name: str, of: pa.DataType) -> None:
    """Refuse a column that Arrow cannot sort, or whose sort ends the process.

    Raises:
        UnsupportedTypeError: it is none of numbers, texts and times.
    """
    t = pa.types
    kinds = (
        t.is_boolean,
        t.is_integer,
        t.is_float32,
        t.is_float64,
        t.is_decimal128,
        t.is_decimal256,
    )
    texts = (t.is_string, t.is_large_string, t.is_binary, t.is_large_binary, t.is_fixed_size_binary)
    times = (t.is_date, t.is_time, t.is_timestamp, t.is_duration)
    if not any(is_kind(of) for is_kind in (*kinds, *texts, *times)):
        raise UnsupportedTypeError(
            f"column {name!r} of type {of} cannot be sorted",
            asked=f"{name}: {of}",
            have="booleans, numbers, decimals, strings, binaries, dates, times, timestamps, durations",
            remedy="take its fields as columns of their own",
            details={"column": name, "type": str(of)},
        )
