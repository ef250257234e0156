"""Sorts batches by columns, in files if they exceed the memory that may be used.

Decision: ADR 0027.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate._directories import local_directories
from headgate.errors import UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Bytes of a sorted batch, unless a single row has more.
_BYTES: Final = 1 << 20
#: Runs that are merged to one as soon as there are so many: each has an open file.
_RUNS: Final = 128
#: Blocks that fit into the memory: a merge holds one or two blocks of each run, and as much again in order.
_BLOCKS: Final = 4 * _RUNS
#: Bytes of a block, at least.
_LEAST_BLOCK: Final = 64 << 10
#: Bytes that the sort of a row takes for its place in the order.
_PLACE: Final = 16


def sort_batches(
    batches: Iterable[pa.RecordBatch], by: Sequence[str | tuple[str, ...]], memory: int
) -> Iterator[pa.RecordBatch]:
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
        self._files = contextlib.ExitStack()
        self._runs: list[_Run] = []
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch."""
        more = _bytes_to_sort(batch)
        if self._waiting and self._size + more > self._memory:
            self._write_run()
            if len(self._runs) == _RUNS:
                merged = _Run(self._files, _merged(self._runs, self._by), batch.schema, 0)
                for run in self._runs:
                    run.close()
                self._runs = [merged]
        self._waiting.append(batch)
        self._size += more

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, once."""
        if self._runs:
            self._write_run()
            yield from _merged(self._runs, self._by)
        elif self._waiting:
            table = _sorted(self._waiting, self._by)
            self._waiting.clear()  # their copy is enough
            yield from _cut(table)

    def close(self) -> None:
        """Delete the files. May be called twice."""
        self._files.close()

    def _write_run(self) -> None:
        table = _sorted(self._waiting, self._by)
        self._waiting, self._size = [], 0
        self._runs.append(_run_of(self._files, table, self._memory, len(self._runs)))


def _bytes_to_sort(batch: pa.RecordBatch) -> int:
    """Return the bytes of rows and their sorted copy. Arrow joins the chunks of a column before it copies it."""
    largest: int = max((column.nbytes for column in batch.columns), default=0)
    return 2 * int(batch.nbytes) + largest + _PLACE * int(batch.num_rows)


def _sorted(batches: Sequence[pa.RecordBatch], by: Sequence[str | tuple[str, ...]]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return table.take(_order(table, by))


def _cut(table: pa.Table) -> Iterator[pa.RecordBatch]:
    rows = max(1, table.num_rows * _BYTES // max(1, table.nbytes))
    for batch in table.to_batches(max_chunksize=rows):
        if batch.num_rows:
            yield batch


class _Run:
    """Sorted rows in a file, read block by block."""

    def __init__(
        self,
        files: contextlib.ExitStack,
        blocks: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        number: int,
    ) -> None:
        folders = [folder for folder in map(Path, local_directories()) if folder.is_dir()]
        folder = folders[number % len(folders)] if folders else None
        self._file = files.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 - it closes it
        self._rows = 1
        with pa.ipc.new_stream(self._file, schema) as stream:
            for block in blocks:
                stream.write_batch(block)
                self._rows = max(self._rows, block.num_rows)
        self._file.seek(0)
        self._blocks = pa.ipc.open_stream(self._file)
        self.held: pa.Table = schema.empty_table()
        self.has_more = True

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

    def fill(self) -> None:
        """Hold at least a block of rows, unless fewer are left."""
        while self.has_more and self.held.num_rows < self._rows:
            block = next(self._blocks, None)
            self.has_more = block is not None
            if block is not None:
                self.held = pa.concat_tables([self.held, pa.Table.from_batches([block])])


def _run_of(files: contextlib.ExitStack, table: pa.Table, memory: int, number: int) -> _Run:
    """Write a sorted table as a run."""
    block = max(memory // _BLOCKS, _LEAST_BLOCK)
    rows = max(1, table.num_rows * block // max(1, table.nbytes))
    return _Run(files, table.to_batches(max_chunksize=rows), table.schema, number)


def _merged(runs: Sequence[_Run], by: Sequence[str | tuple[str, ...]]) -> Iterator[pa.RecordBatch]:
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
        yield from _cut(table.take(order))
        start = 0
        for run in going:
            end = start + run.held.num_rows
            inside = pc.and_(pc.greater_equal(order, start), pc.less(order, end))
            run.held = run.held.slice(pc.sum(inside).as_py())
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
    heads = [*(run.held.slice(0, 1) for run in runs), lasts.slice(first_of_lasts, 1)]
    order = _order(pa.concat_tables(heads), by).to_pylist()
    going = sorted(order[: order.index(len(runs))])
    return [runs[number] for number in going], open_runs[first_of_lasts]


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
