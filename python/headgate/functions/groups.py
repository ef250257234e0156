"""Cuts sorted rows into groups of equal keys.

Decision: ADR 0027.
"""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate.batches import Batches
from headgate.errors import ClosedError
from headgate.functions.sorting import sort_batches

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from headgate.functions.largest import LargestGroup

#: Sorted batches, each with the rows at which groups begin in it.
SortedRows: TypeAlias = "Generator[tuple[pa.RecordBatch, list[int]], None, None]"


def sorted_rows(
    batches: Iterable[pa.RecordBatch],
    keys: Sequence[str],
    by: Sequence[str | tuple[str, ...]],
    memory: int,
    largest: LargestGroup,
) -> SortedRows:
    """Yield the rows in order, in batches, each with the rows at which groups begin in it.

    Args:
        batches: the rows, in any order.
        keys: the columns that rows of a group have in common.
        by: the columns and fields to sort by, the keys first.
        memory: bytes of rows that may wait to be sorted.
        largest: measures the groups.
    """
    last: pa.RecordBatch | None = None
    with closing(sort_batches(batches, by, memory)) as ordered:
        for batch in ordered:
            begins = _begins(batch, last, keys)
            last = batch.slice(batch.num_rows - 1)
            largest.add(batch, begins)
            yield batch, begins
    largest.end()


def tables_of_groups(rows: SortedRows, least: int) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Yield whole groups, and the offsets of the groups.

    Rows are copied into one chunk, unless they are so many that a copy would matter: of a large group
    there is one copy, in chunks.

    Args:
        rows: sorted.
        least: bytes of rows to yield at a time, unless fewer are left.
    """
    #: Rows of groups that are not yielded yet, their number and bytes, and where their groups begin.
    waiting: list[pa.RecordBatch] = []
    count, size = 0, 0
    starts: list[int] = []
    for batch, begins in rows:
        if begins and size + batch.nbytes >= least:
            # A group begins there, so all rows before it are of whole groups.
            place = begins.pop()
            waiting.append(batch.slice(0, place))
            starts += [count + begin for begin in begins]
            count += place
            if count:
                yield _joined(waiting, starts, count, least)
            batch = batch.slice(place)  # noqa: PLW2901 - what is left of it
            waiting, starts, begins = [], [], [0]  # noqa: PLW2901
            count, size = 0, 0
        waiting.append(batch)
        starts += [count + begin for begin in begins]
        count += batch.num_rows
        size += batch.nbytes
    if count:
        yield _joined(waiting, starts, count, least)


def batches_of_groups(rows: SortedRows) -> Iterator[Group]:
    """Yield each group as an iterator of its batches, which ends when the next group is asked for.

    Batches of a group that were not taken are skipped, so memory is that of the sort.

    Raises:
        Exception: of the rows, also if a function has caught it.
    """
    pieces = _pieces(rows)
    piece = next(pieces, None)
    while piece is not None:
        group = Group(piece[0], pieces)
        try:
            yield group
        except GeneratorExit:
            group.close()
            raise
        piece = group.skip()
        group.close()


class Group(Batches):
    """The batches of one group. They can be taken until the next group is asked for.

    Args:
        first: the first batch.
        pieces: the batches that follow, of this and of the other groups.
    """

    def __init__(
        self, first: pa.RecordBatch, pieces: Iterator[tuple[pa.RecordBatch, bool]]
    ) -> None:
        super().__init__((), first.schema)
        self._piece: pa.RecordBatch | None = first
        self._pieces: Iterator[tuple[pa.RecordBatch, bool]] | None = pieces
        #: The first batch of the next group and True, once this group has ended and there is one.
        self._following: tuple[pa.RecordBatch, bool] | None = None
        self._has_ended = False
        self._error: Exception | None = None

    def skip(self) -> tuple[pa.RecordBatch, bool] | None:
        """Take the batches that are left; return the first one of the next group, None at the end of the rows."""
        while not self._has_ended:
            self._advance()
        return self._following

    def close(self) -> None:
        """Let go of the rows. The group cannot be read any more."""
        self._pieces = self._piece = self._first = self._following = None

    def _take(self) -> pa.RecordBatch:
        if self._pieces is None:
            raise ClosedError(
                "the batches of a group were asked for after the call for the group had ended",
                remedy="take them before the function returns, or in what it yields · read_all() returns a table to keep",
            )
        piece, self._piece = self._piece, None
        if piece is None:
            self._advance()
            piece, self._piece = self._piece, None
        if piece is None:
            raise StopIteration
        return piece

    def _advance(self) -> None:
        """Hold the next batch of the group, or none at its end."""
        self._piece = None
        if self._error is not None:
            raise self._error
        if self._has_ended or self._pieces is None:
            return
        try:
            following = next(self._pieces, None)
        except Exception as error:
            # The function may catch it, and the rest of the rows would be missing.
            self._error = error
            raise
        if following is None or following[1]:
            self._has_ended, self._following = True, following
        else:
            self._piece = following[0]


def _pieces(rows: SortedRows) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield the rows in batches of one group each, and True with the first one of a group."""
    for batch, begins in rows:
        places = [*begins, batch.num_rows]
        if places[0]:
            yield batch.slice(0, places[0]), False
        for start, end in pairwise(places):
            yield batch.slice(start, end - start), True


def _joined(
    waiting: list[pa.RecordBatch], starts: list[int], count: int, least: int
) -> tuple[pa.Table, pa.Array]:
    """Return the waiting rows and the offsets of their groups; nothing waits afterwards."""
    table = pa.Table.from_batches(waiting)
    waiting.clear()
    if table.nbytes <= 2 * least:
        table = table.combine_chunks()
    return table, pa.array([*starts, count], pa.int64())


def _begins(batch: pa.RecordBatch, before: pa.RecordBatch | None, keys: Sequence[str]) -> list[int]:
    """Return the rows whose keys differ from those of the row before them, if there is one."""
    if before is None:
        return [0, *_begins(batch, batch.slice(0, 1), keys)]
    differs: pa.Array | None = None
    for name in keys:
        column = batch.column(name)
        earlier = pa.concat_arrays([before.column(name), column.slice(0, len(column) - 1)])
        other = _differs(earlier, column)
        differs = other if differs is None else pc.or_(differs, other)
    rows: list[int] = pc.indices_nonzero(differs).to_pylist()
    return rows


def _differs(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return where two columns differ; nulls are equal, and so are NaN."""
    differs = pc.fill_null(pc.not_equal(left, right), fill_value=True)
    same = pc.and_(pc.is_null(left), pc.is_null(right))
    if pa.types.is_floating(left.type):
        nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
        same = pc.or_(same, pc.fill_null(nan, fill_value=False))
    return pc.and_not(differs, same)
