"""Files that no row can be of, by the limits of their columns in the table's log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from headgate.source.files.partitions import can_be_true, guarantee

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from headgate.source.tables.table import ColumnBounds, TableFile


def has_bounds(kind: Any) -> bool:
    """Return True for types whose limits rule out rows: floats have NaN, which is above or beside all limits."""
    return bool(
        pt.is_integer(kind)
        or pt.is_string(kind)
        or pt.is_date(kind)
        or pt.is_timestamp(kind)
        or pt.is_decimal(kind)
    )


def may_have_rows(
    file: TableFile,
    row_filter: pc.Expression,
    fixed: Mapping[str, pa.Scalar],
    schema: pa.Schema,
) -> bool:
    """Return False if no row of a file passes a filter.

    Args:
        file: the file with the limits of its columns.
        row_filter: the filter.
        fixed: columns that have one value in all rows of the file.
        schema: the columns of the source.
    """
    terms = [
        term
        for name, bounds in file.bounds.items()
        if name not in fixed
        for term in _terms(schema.field(name), bounds)
    ]
    partition = guarantee(fixed)
    if partition is not None:
        terms.append(partition)
    return not terms or can_be_true(row_filter, reduce(and_, terms), schema)


def _terms(field: pa.Field, bounds: ColumnBounds) -> Iterable[pc.Expression]:
    """Yield conditions that are true for each row of a file."""
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and only filters need it

    if not has_bounds(field.type) or bounds.low is None or bounds.high is None:
        return
    column = pc.field(field.name)
    inside = (column >= pa.scalar(bounds.low, field.type)) & (
        column <= pa.scalar(bounds.high, field.type)
    )
    yield inside if bounds.nulls == 0 else inside | column.is_null()
