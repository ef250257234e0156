"""Two streams in one exchange, and the operator of a function of both.

Rows of both streams travel as rows of one schema: which side, the key columns, and a struct per side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.stream.graph.operator import Operator
from headgate.stream.operators.process import FunctionOperator

_SIDES: Final = ("first", "second")


def key_names(keys: Sequence[str]) -> list[str]:
    """Return the names of the key columns on the way."""
    return [f"key_{at}" for at in range(len(keys))]


def side_schema(first: pa.Schema, keys: Sequence[str], second: pa.Schema) -> pa.Schema:
    """Return the schema of rows of both streams on their way.

    Args:
        first: schema of the first stream.
        keys: its key columns.
        second: schema of the second stream.
    """
    key_fields = [(n, first.field(k).type) for n, k in zip(key_names(keys), keys, strict=True)]
    sides = [(_SIDES[0], pa.struct(list(first))), (_SIDES[1], pa.struct(list(second)))]
    return pa.schema([("side", pa.int8()), *key_fields, *sides])


class SideOperator(Operator):
    """Makes rows of the common schema from those of one stream.

    Args:
        side: 0 or 1.
        keys: the key columns.
        schema: the common schema.
    """

    def __init__(self, side: int, keys: Sequence[str], schema: pa.Schema) -> None:
        self._side, self._keys, self._schema = side, keys, schema

    def process(self, batch: pa.RecordBatch) -> None:
        """Emit the rows with nulls for the other side."""
        number = pa.array(np.full(batch.num_rows, self._side, np.int8))
        sides = [pa.nulls(batch.num_rows, self._schema.field(name).type) for name in _SIDES]
        side_type = self._schema.field(_SIDES[self._side]).type
        sides[self._side] = pa.StructArray.from_arrays(batch.columns, fields=list(side_type))
        columns = [number, *(batch[key] for key in self._keys), *sides]
        self._context.emit(pa.RecordBatch.from_arrays(columns, schema=self._schema), None)


class CoProcessOperator(FunctionOperator):
    """The operator of a :class:`~headgate.stream.CoProcessFunction`. The keys have the first stream's names."""

    def process(self, batch: pa.RecordBatch) -> None:
        """Call the function for the rows of each side."""
        for side, name in enumerate(_SIDES):
            rows = batch.filter(pc.equal(batch["side"], side))
            if rows.num_rows and self._backend is not None:
                self._backend.set_keys(rows.columns[1 : 1 + len(self._key_schema)])
                self._call(f"process_{name}", pa.RecordBatch.from_struct_array(rows[name]))
