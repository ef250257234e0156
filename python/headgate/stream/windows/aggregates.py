"""Aggregates of windows: what they keep of the rows, and the columns that they make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate._arguments import text
from headgate.errors import StateError
from headgate.stream.state.column import cast_to
from headgate.stream.state.types import check_reduce, column_index

#: Gets a batch of closed windows: the key columns, ``window_start``, ``window_end``, and ``rows``, a list of structs
#: with the rows of each window. Returns any batch.
WindowFunction: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
AggregateKind: TypeAlias = Literal["sum", "count", "min", "max", "mean", "first", "last"]

_KINDS: Final = ("sum", "count", "min", "max", "mean", "first", "last")
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A column of a window's result. Nulls are left out.

    >>> Aggregate("mean", "price").result
    'mean_price'

    Attributes:
        kind: ``"sum"``, ``"count"``, ``"min"``, ``"max"`` or ``"mean"``; ``"first"`` and ``"last"`` are by arrival.
        column: the aggregated column; None to count rows.
        name: name of the result, by default the kind and the column.
    """

    kind: AggregateKind
    column: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown kind, and no column where one is needed."""
        if self.kind not in _KINDS:
            raise StateError(f"the aggregate {self.kind!r} is not known", remedy=" · ".join(_KINDS))
        for option in ("column", "name"):
            value = getattr(self, option)
            if value is not None:
                text(option, value, "the name of a column")
        if self.column is None and self.kind != "count":
            raise StateError(
                f"{self.kind} of no column", remedy=f'Aggregate("{self.kind}", "price")'
            )

    @property
    def result(self) -> str:
        """Name of the result."""
        return self.name or (self.kind if self.column is None else f"{self.kind}_{self.column}")


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A value that is kept per window.

    Attributes:
        name: unique in the operator.
        reduce: how two values become one.
        type: type of the value.
        column: the column whose values it takes; None for one value per row.
    """

    name: str
    reduce: Literal["sum", "count", "min", "max", "first", "last"]
    type: pa.DataType
    column: str | None


class Aggregates:
    """The accumulators of aggregates over batches of one schema.

    Args:
        schema: schema of the batches.
        aggregates: the columns of the result.

    Raises:
        UnknownColumnError: the schema has no column of a name.
        UnsupportedTypeError: a column of a type that has no such aggregate.
    """

    def __init__(self, schema: pa.Schema, aggregates: Sequence[Aggregate]) -> None:
        self._aggregates = aggregates
        self.accumulators: dict[str, Accumulator] = {}
        for aggregate in aggregates:
            for accumulator in _accumulators(schema, aggregate):
                self.accumulators[accumulator.name] = accumulator

    def inputs(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return what each accumulator takes of each row."""
        return {name: _input(batch, item) for name, item in self.accumulators.items()}

    def results(self, values: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the columns of the result from the values of the accumulators."""
        return {item.result: _result(item, values) for item in self._aggregates}


def _accumulators(schema: pa.Schema, aggregate: Aggregate) -> list[Accumulator]:
    column = aggregate.column
    count = Accumulator(f"count:{column}" if column else "count", "count", pa.int64(), column)
    if column is None:
        return [count]
    data_type = schema.field(column_index(schema, column)).type
    if aggregate.kind == "count":
        return [count]
    if aggregate.kind in {"min", "max", "first", "last"}:
        check_reduce(aggregate.kind, data_type, f"column {column!r}")
        return [Accumulator(f"{aggregate.kind}:{column}", aggregate.kind, data_type, column)]
    check_reduce("sum", data_type, f"column {column!r}")
    if aggregate.kind == "mean":
        return [Accumulator(f"double:{column}", "sum", pa.float64(), column), count]
    return [Accumulator(f"sum:{column}", "sum", _sum_type(data_type), column)]


def _sum_type(of: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_integer(of):
        return pa.uint64() if t.is_uint64(of) else pa.int64()
    if t.is_floating(of):
        return pa.float64()
    if t.is_decimal256(of):
        return pa.decimal256(76, of.scale)
    return pa.decimal128(38, of.scale) if t.is_decimal(of) else of


def _input(batch: pa.RecordBatch, accumulator: Accumulator) -> pa.Array:
    if accumulator.column is None:
        return pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
    values = batch[accumulator.column]
    if accumulator.reduce == "count":
        return pc.if_else(pc.is_valid(values), pa.scalar(1, pa.int64()), None)
    if pa.types.is_float64(accumulator.type):
        # A mean, also one of integers that a double rounds.
        options = pc.CastOptions(accumulator.type, allow_float_truncate=True)
        return pc.cast(values, options=options)
    return cast_to(values, accumulator.type)


def _result(aggregate: Aggregate, values: Mapping[str, pa.Array]) -> pa.Array:
    kind, column = aggregate.kind, aggregate.column
    count = f"count:{column}" if column else "count"
    if kind == "count":
        return values[count].fill_null(0)
    if kind == "mean":
        return pc.divide(values[f"double:{column}"], values[count].cast(pa.float64()))
    return values[f"{kind}:{column}"]
