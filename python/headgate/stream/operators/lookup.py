"""The join of a stream with rows that do not change while the job runs, or that a function finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate.stream.graph.operator import Operator, OperatorContext
from headgate.stream.operators.results import Results, calling
from headgate.stream.state.row_index import RowIndex, by_group, distinct, with_nulls
from headgate.stream.state.rows import Matches
from headgate.stream.state.values import frozen_values

if TYPE_CHECKING:
    from headgate.stream.operators.joining import How, JoinedColumns
    from headgate.stream.operators.sides import Sides
    from headgate.stream.state.table import Slots


class LookupOperator(Operator):
    """Joins each batch with the rows of its keys.

    Args:
        load: returns all rows, when a task starts; None if the function finds them.
        function: returns the rows of distinct keys.
        sides: the stream, and the rows that are looked up, each with the names of its keys.
        columns: of the result.
        how: ``"inner"`` or ``"left"``.
    """

    def __init__(
        self,
        load: Callable[[], Iterable[pa.RecordBatch]] | None,
        function: Callable[[pa.RecordBatch], Any] | None,
        sides: Sides,
        columns: JoinedColumns,
        how: How,
    ) -> None:
        self._load, self._function = load, function
        self._sides, self._columns, self._is_left = sides, columns, how == "left"
        self._index: _Index | None = None

    def open(self, context: OperatorContext) -> None:
        """Read the rows, unless a function finds them."""
        super().open(context)
        self._results = Results(context.uid, self._sides.schemas[1])
        if self._load is not None:
            self._index = self._index_of(self._load())

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
        different = keys.take(pa.array(distinct(keys)[1]))
        with calling(self._context.uid, "function"):
            result = self._function(different) if self._function is not None else []
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
        self._rows = frozen_values([b.select(others).to_struct_array() for b in batches if others])
        self._index: RowIndex | None = None
        slots = [np.zeros(0, np.int64)]
        # A batch per 2 GiB of text; the numbers of keys count on.
        for batch in batches:
            columns = batch.select(keys)
            self._index = self._index or RowIndex(columns.schema)
            numbers, without = self._index.add(columns), with_nulls(columns)
            slots.append(numbers if without is None else np.where(without, -1, numbers))
        of_rows = np.concatenate(slots)
        # -1 at the end is for the rows without a match.
        self._order = np.append(by_group(of_rows)[0], -1)
        self._counts = np.bincount(of_rows[of_rows >= 0])
        self._begins = np.cumsum(self._counts) - self._counts + np.count_nonzero(of_rows < 0)

    def matches(self, keys: pa.RecordBatch, *, with_all: bool) -> Matches:
        """Return the rows of each key; with ``with_all`` -1 for a key without any."""
        slots = np.full(keys.num_rows, -1)
        if self._index is not None:
            slots = self._index.find(keys)
        without = with_nulls(keys)
        is_there = slots >= 0 if without is None else (slots >= 0) & ~without
        begins = np.full(len(slots), len(self._order) - 1)
        counts = np.full(len(slots), int(with_all))
        begins[is_there] = self._begins[slots[is_there]]
        counts[is_there] = self._counts[slots[is_there]]
        return Matches(begins, counts, self._order)

    def rows(self, numbers: Slots) -> list[pa.Array] | None:
        """Return the columns of rows, null for -1; None if there are no others."""
        if self._rows is None or not self._others or (numbers < 0).all():
            return None if (numbers < 0).all() else []
        # The first row has position 1, and 0 is none.
        return list(self._rows.take(numbers + 1).flatten())
