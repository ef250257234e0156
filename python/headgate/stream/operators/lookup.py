"""The join of a stream with rows that do not change while the job runs, or that a function finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headgate import _native
from headgate.source import Source
from headgate.source.local import read
from headgate.stream.graph.operator import Operator, OperatorContext
from headgate.stream.operators.results import Results, calling
from headgate.stream.state.rows import Matches
from headgate.stream.state.values import take
from headgate.stream.state.zeros import normalized

if TYPE_CHECKING:
    from headgate.stream.operators.joining import How, JoinedColumns
    from headgate.stream.operators.sides import Sides
    from headgate.stream.state.table import Slots

#: Rows to look up: a table, a source that ends, or a function of distinct keys.
Looked: TypeAlias = "pa.Table | Source[Any, Any, Any] | Callable[[pa.RecordBatch], Any]"


class LookupOperator(Operator):
    """Joins each batch with the rows of its keys.

    Args:
        sides: the stream, and the rows that are looked up, each with the names of its keys.
        columns: of the result.
        how: ``"inner"`` or ``"left"``.
        rows: a table; a source, which is read when the task starts; or a function.
    """

    def __init__(self, sides: Sides, columns: JoinedColumns, how: How, rows: Looked) -> None:
        self._sides, self._columns, self._is_left = sides, columns, how == "left"
        self._rows = rows
        self._index: _Index | None = None

    def open(self, context: OperatorContext) -> None:
        """Read the rows, unless a function finds them."""
        super().open(context)
        self._results = Results(context.uid, self._sides.schemas[1])
        if isinstance(self._rows, pa.Table):
            self._index = self._index_of(self._rows.to_batches())
        elif isinstance(self._rows, Source):
            with read(self._rows) as batches:
                self._index = self._index_of(batches)

    def process(self, batch: pa.RecordBatch) -> None:
        """Emit the pairs of a batch."""
        keys = batch.select(self._sides.keys[0])
        index = self._index or self._index_by_function(keys)
        columns = [batch[name] for name in self._columns.stored[0].names]
        for numbers, elements in index.matches(keys, with_all=self._is_left).parts():
            at = pa.array(numbers)
            values = [[column.take(at) for column in columns], index.rows(elements)]
            joined = self._columns.batch([key.take(at) for key in keys.columns], values)
            self._context.emit(joined, None)

    def _index_by_function(self, keys: pa.RecordBatch) -> _Index:
        """Return the rows that the function finds for the distinct keys of a batch."""
        uid, function = self._context.uid, self._rows
        distinct = keys.take(_native.KeyIndex(keys.schema).resolve(normalized(keys).columns)[2])
        with calling(uid, "function"):
            result = function(distinct)  # type: ignore[operator]
        return self._index_of(self._results.batches("function", result))

    def _index_of(self, batches: Iterable[pa.RecordBatch]) -> _Index:
        schema, names = self._sides.schemas[1], self._sides.keys[1]
        table = pa.Table.from_batches(batches, schema).combine_chunks()
        return _Index(table.to_batches(), names, self._columns.stored[1].names)


class _Index:
    """Rows by key.

    Args:
        batches: the rows.
        keys: their key columns.
        others: the columns to return.
    """

    def __init__(
        self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], others: Sequence[str]
    ) -> None:
        self._others = others
        self._parts = [batch.select(others).to_struct_array() for batch in batches if others]
        # A batch per 2 GiB of text; slots count on.
        self._index: Any = None
        slots = [np.zeros(0, np.int64)]
        for batch in batches:
            columns = normalized(batch.select(keys))
            self._index = self._index or _native.KeyIndex(columns.schema)
            rows, distinct, _, _ = map(_numbers, self._index.resolve(columns.columns))
            slots.append(np.where(_without_key(columns), -1, distinct[rows]))
        of_rows = np.concatenate(slots)
        # -1 at the end is for the rows without a match.
        self._order = np.append(np.argsort(of_rows, kind="stable"), -1)
        self._counts = np.bincount(of_rows[of_rows >= 0])
        self._begins = np.cumsum(self._counts) - self._counts + np.count_nonzero(of_rows < 0)

    def matches(self, keys: pa.RecordBatch, *, with_all: bool) -> Matches:
        """Return the rows of each key; with ``with_all`` -1 for a key without any."""
        columns = normalized(keys)
        slots = np.full(columns.num_rows, -1)
        if self._index is not None:
            slots = _numbers(self._index.find(columns.columns))
        is_there = (slots >= 0) & ~_without_key(columns)
        begins = np.full(len(slots), len(self._order) - 1)
        counts = np.full(len(slots), int(with_all))
        begins[is_there] = self._begins[slots[is_there]]
        counts[is_there] = self._counts[slots[is_there]]
        return Matches(begins, counts, self._order)

    def rows(self, numbers: Slots) -> list[pa.Array] | None:
        """Return the columns of rows, null for -1; None if there are no others."""
        hidden = numbers < 0
        if hidden.all() or not self._others:
            return None if hidden.all() else []
        return list(take(self._parts, numbers, hidden).flatten())


def _without_key(columns: pa.RecordBatch) -> Any:
    """Return True for each row with a null key, which matches nothing."""
    without = np.zeros(columns.num_rows, np.bool_)
    for column in columns.columns:
        if column.null_count:
            without |= np.asarray(column.is_null().to_numpy(zero_copy_only=False))
    return without


def _numbers(array: pa.Array) -> Slots:
    return np.asarray(array.to_numpy())
