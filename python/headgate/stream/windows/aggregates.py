"""Aggregates of windows: what they keep of the rows, and the columns that they make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.compute as pc

from headgate._arguments import refuse, text
from headgate._expressions import evaluated
from headgate._kinds import kind_of
from headgate.errors import StateError
from headgate.stream.state.column import cast_to
from headgate.stream.state.groups import check_keys
from headgate.stream.state.types import check_reduce, column_index
from headgate.stream.windows.distinct import lists_of
from headgate.stream.windows.hyperloglog import SKETCH, check_hashable, estimates, sketches_of
from headgate.stream.windows.top import Top, TopRows

#: Gets a batch of closed windows: the key columns, ``window_start``, ``window_end``, and ``rows``, a list of structs
#: with the rows of each window. Returns any batch.
WindowFunction: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
AggregateKind: TypeAlias = Literal[
    "sum",
    "count",
    "min",
    "max",
    "mean",
    "avg",
    "first",
    "last",
    "count_distinct",
    "approx_count_distinct",
]

_KINDS: Final = get_args(AggregateKind)
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A column of a window's result. Nulls are left out.

    >>> Aggregate("mean", "price").result
    'mean_price'

    Attributes:
        kind: ``"sum"``, ``"count"``, ``"min"``, ``"max"``, ``"mean"`` or ``"avg"``, which are one; ``"first"`` and ``"last"``
            by arrival; ``"count_distinct"``, or ``"approx_count_distinct"``, whose standard error is 1.6 %.
        column: the aggregated column; None to count rows.
        name: name of the result, by default the kind and the column.
        where: an expression of ``pyarrow.compute``: other rows, also those for which it is null, are left out.
    """

    kind: AggregateKind
    column: str | None = None
    name: str | None = None
    where: pc.Expression | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown kind, no column where one is needed, and a filter that is none."""
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
        if self.where is not None and not isinstance(self.where, pc.Expression):
            raise refuse(
                "where",
                self.where,
                f"is {kind_of(self.where)}",
                "an expression of pyarrow.compute",
                'Aggregate("count", where=pc.field("price") > 3, name="dear")',
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
        reduce: how two values become one: as numbers, lists of distinct values, sketches, or lists of rows.
        type: type of the value.
        column: the column whose values it takes; None for one value per row.
        where: the rows whose values it takes; None for all.
    """

    name: str
    reduce: Literal["sum", "count", "min", "max", "first", "last", "distinct", "sketch"] | TopRows
    type: pa.DataType
    column: str | None
    where: pc.Expression | None

    @property
    def merging(self) -> Accumulator:
        """The one for values of several rows: a count adds up counts."""
        return replace(self, reduce="sum") if self.reduce == "count" else self


class Aggregates:
    """The accumulators of aggregates over batches of one schema.

    Args:
        schema: schema of the batches.
        aggregates: the columns of the result.
        top: the rows to keep, in place of aggregates.
        partials_of: schema of the rows that were aggregated before; a batch then has a column for each accumulator.

    Raises:
        UnknownColumnError: the schema has no column of a name.
        UnsupportedTypeError: a column of a type that has no such aggregate.
        StateError: a filter that does not fit the schema.
    """

    def __init__(
        self,
        schema: pa.Schema,
        aggregates: Sequence[Aggregate],
        *,
        top: Top | None = None,
        partials_of: pa.Schema | None = None,
    ) -> None:
        self._aggregates = aggregates
        self._are_partial = partials_of is not None
        self.accumulators: dict[str, Accumulator] = {}
        for aggregate in aggregates:
            for accumulator in _accumulators(partials_of or schema, aggregate):
                self.accumulators[accumulator.name] = accumulator
        if top is not None:
            of = partials_of or schema
            top.check(of)
            rows = pa.list_(pa.struct(list(of)))
            self.accumulators[top.name] = Accumulator(top.name, TopRows(top), rows, None, None)
        if self._are_partial:
            self.accumulators = {n: item.merging for n, item in self.accumulators.items()}
            return
        filters = [a.where for a in self.accumulators.values() if a.where is not None]
        #: The filters, each once: of expressions only the texts can be compared.
        self._filters = {str(where): where for where in filters}
        for name, where in self._filters.items():
            _check_filter(name, where, schema)

    def inputs(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return what each accumulator takes of each row; null for nothing."""
        if self._are_partial:
            return {name: batch[name] for name in self.accumulators}
        values = evaluated(list(self._filters.values()), pa.Table.from_batches([batch]))
        masks = {
            name: column.combine_chunks()
            for name, column in zip(self._filters, values.columns, strict=True)
        }
        return {
            name: _input(batch, item, None if item.where is None else masks[str(item.where)])
            for name, item in self.accumulators.items()
        }

    def results(self, values: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the columns of the result from the values of the accumulators."""
        return {item.result: _result(item, values) for item in self._aggregates}


def _check_filter(name: str, where: pc.Expression, schema: pa.Schema) -> None:
    try:
        kind = evaluated([where], schema.empty_table()).schema.types[0]
        reason = None if pa.types.is_boolean(kind) else f"it has values of type {kind}"
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        reason = next(iter(str(error).splitlines()), "")
    if reason is not None:
        raise StateError(
            f"where={name} does not fit the rows: {reason}",
            have=", ".join(f"{field.name} {field.type}" for field in schema),
            remedy="name columns of the stream · compare them with values of their types",
        )


def _name(kind: str, aggregate: Aggregate) -> str:
    """Return the name of an accumulator, which is also that of its state in checkpoints."""
    name = f"{kind}:{aggregate.column}" if aggregate.column else kind
    return name if aggregate.where is None else f"{name} where {aggregate.where}"


def _accumulators(schema: pa.Schema, aggregate: Aggregate) -> list[Accumulator]:
    column, where = aggregate.column, aggregate.where
    kind = "mean" if aggregate.kind == "avg" else aggregate.kind

    def of(name: str, reduce: Any, data_type: pa.DataType) -> Accumulator:
        return Accumulator(_name(name, aggregate), reduce, data_type, column, where)

    count = of("count", "count", pa.int64())
    call = f"Aggregate({aggregate.kind!r}, {{}})"
    data_type = None if column is None else schema.field(column_index(schema, column, call)).type
    if data_type is None or kind == "count":
        return [count]
    what = f"column {column!r}"
    if kind in {"min", "max", "first", "last"}:
        check_reduce(kind, data_type, what)
        return [of(kind, kind, data_type)]
    if kind == "count_distinct":
        check_keys(pa.schema([(column, data_type)]))
        return [of(kind, "distinct", pa.list_(data_type))]
    if kind == "approx_count_distinct":
        check_hashable(data_type, what)
        return [of(kind, "sketch", SKETCH)]
    check_reduce("sum", data_type, what)
    if kind == "mean":
        return [of("double", "sum", pa.float64()), count]
    return [of("sum", "sum", _sum_type(data_type))]


def _sum_type(of: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_integer(of):
        return pa.uint64() if t.is_uint64(of) else pa.int64()
    if t.is_floating(of):
        return pa.float64()
    if t.is_decimal256(of):
        return pa.decimal256(76, of.scale)
    return pa.decimal128(38, of.scale) if t.is_decimal(of) else of


def _input(batch: pa.RecordBatch, accumulator: Accumulator, mask: pa.Array | None) -> pa.Array:
    column, reduce = accumulator.column, accumulator.reduce
    if isinstance(reduce, TopRows):
        return lists_of(batch.to_struct_array())
    if column is None or reduce == "count":
        values = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
        if column is not None:
            mask = (
                batch[column].is_valid()
                if mask is None
                else pc.and_(batch[column].is_valid(), mask)
            )
        return values if mask is None else pc.if_else(mask, values, None)
    values = batch[column]
    if mask is not None:
        values = pc.if_else(mask, values, pa.scalar(None, values.type))
    if reduce == "sketch":
        return sketches_of(values)
    if reduce == "distinct":
        return lists_of(values)
    if pa.types.is_float64(accumulator.type):
        # A mean, also one of integers that a double rounds.
        options = pc.CastOptions(accumulator.type, allow_float_truncate=True)
        return pc.cast(values, options=options)
    return cast_to(values, accumulator.type)


def _result(aggregate: Aggregate, values: Mapping[str, pa.Array]) -> pa.Array:
    kind = aggregate.kind
    if kind == "count":
        return values[_name("count", aggregate)].fill_null(0)
    if kind in {"mean", "avg"}:
        counts = values[_name("count", aggregate)].cast(pa.float64())
        return pc.divide(values[_name("double", aggregate)], counts)
    of = values[_name(kind, aggregate)]
    if kind == "count_distinct":
        numbers = of if pa.types.is_integer(of.type) else pc.list_value_length(of)
        return numbers.cast(pa.int64()).fill_null(0)
    return estimates(of) if kind == "approx_count_distinct" else of
