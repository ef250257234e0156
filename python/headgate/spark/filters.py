"""Spark's filters as Arrow expressions: one translation for scans that workers read and for the data source.

An expression is null where Spark's filter is null, so it stays right below NOT, AND and OR, which follow
Kleene's logic in Arrow as in SQL. For floats, Spark's NaN equals NaN and is larger than all other numbers.
"""

from __future__ import annotations

import functools
import operator
from datetime import date
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql.datasource import Filter

#: Filter of text -> Arrow's function.
MATCHES: Final = {
    "StringStartsWith": "starts_with",
    "StringEndsWith": "ends_with",
    "StringContains": "match_substring",
}
#: Comparison -> the one with its sides exchanged.
MIRRORED: Final = {
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
_LAST_JULIAN_DAY: Final = date(1582, 10, 4)
_FIRST_GREGORIAN_DAY: Final = date(1582, 10, 15)
#: The last year in which some zone has times before 1900 in UTC.
_LAST_MOVED_YEAR: Final = 1900
_OPERATORS: Final = {
    "EqualTo": operator.eq,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
}


def pushed_expression(pushed: Filter, schema: pa.Schema) -> pc.Expression | None:
    """Return the Arrow expression for a filter that Spark pushes to a data source.

    Returns None if there is none (see :func:`condition`), and Spark evaluates the filter itself.

    Args:
        pushed: a filter of ``pyspark.sql.datasource``.
        schema: schema of the rows that the source reads.
    """
    kind = type(pushed).__name__
    if kind == "Not":
        inner = pushed_expression(pushed.child, schema)  # type: ignore[attr-defined]
        return None if inner is None else ~inner
    path: Sequence[str] = getattr(pushed, "attribute", ())
    if len(path) != 1 or schema.names.count(path[0]) != 1:
        return None
    return condition(kind, path[0], schema.field(path[0]).type, getattr(pushed, "value", None))


def condition(kind: str, name: str, type_: pa.DataType, value: Any) -> pc.Expression | None:
    """Return the Arrow expression that is true, false or null for the same rows as a filter of Spark.

    Returns None if there is none: for a type that Arrow compares otherwise, for a value that the type
    cannot hold, and for an unknown filter.

    Args:
        kind: name of a filter of ``pyspark.sql.datasource`` that has a column and at most one value.
        name: the column.
        type_: its type.
        value: the value that it is compared with; a sequence of them for ``In``.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    field = pc.field(name)
    if kind in {"IsNull", "IsNotNull"}:
        return field.is_null() if kind == "IsNull" else field.is_valid()
    if kind in MATCHES:
        fits = is_text(type_) and isinstance(value, str)
        return getattr(pc, MATCHES[kind])(field, pattern=value) if fits else None
    if not is_comparable(type_) or kind not in {*MIRRORED, "In"}:
        return None
    scalars = [scalar(item, type_) for item in (value if kind == "In" else [value])]
    exact = [item for item in scalars if item is not None]
    if len(exact) < len(scalars) or any(is_moved_by_java(item) for item in exact):
        return None
    return listed(field, exact, type_) if kind == "In" else compared(kind, field, exact[0], type_)


def is_moved_by_java(value: pa.Scalar) -> bool:
    """Return True for a time that Spark, and its reader of Parquet, may take for another one in a filter.

    They compare with java.sql.Date and java.sql.Timestamp. These have 15 October 1582 for each of the ten days before it, and the
    zone of the JVM repeats or skips times before 1900.
    """
    import pyarrow as pa  # noqa: PLC0415

    if not value.is_valid or not pa.types.is_temporal(value.type):
        return False
    if pa.types.is_date(value.type):
        return bool(_LAST_JULIAN_DAY < value.as_py() <= _FIRST_GREGORIAN_DAY)
    return value.type.tz is not None and bool(value.as_py().year <= _LAST_MOVED_YEAR)


def compared(
    kind: str, left: pc.Expression, right: pc.Expression | pa.Scalar, type_: pa.DataType
) -> pc.Expression:
    """Return a comparison, which has a name of :data:`MIRRORED`.

    Args:
        kind: its name.
        left: an expression.
        right: an expression or a value.
        type_: the type of both, for which :func:`is_comparable` is true.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if kind == "EqualNullSafe":
        other = pc.scalar(right) if isinstance(right, pa.Scalar) else right
        both = left.is_valid() & other.is_valid()
        return pc.if_else(
            both, compared("EqualTo", left, right, type_), left.is_null() & other.is_null()
        )
    if not pa.types.is_floating(type_):
        return _OPERATORS[kind](left, right)
    if isinstance(right, pa.Scalar):
        return _with_float(kind, left, right)
    if kind == "EqualTo":
        return (left == right) | (pc.is_nan(left) & pc.is_nan(right))
    first, second = (right, left) if kind.startswith("GreaterThan") else (left, right)
    if kind.endswith("OrEqual"):
        return ~_less(second, first)
    return _less(first, second)


def _less(left: pc.Expression, right: pc.Expression) -> pc.Expression:
    """Return True for floats of which the first is less than the second, as Spark orders them."""
    import pyarrow.compute as pc  # noqa: PLC0415

    return (left < right) | (~pc.is_nan(left) & pc.is_nan(right))


def _with_float(kind: str, left: pc.Expression, value: pa.Scalar) -> pc.Expression:
    """Return the comparison of a float with a value: simple ones let statistics rule out row groups."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    number = value.as_py()
    if number is None or number == number:  # noqa: PLR0124 - false for NaN
        plain: pc.Expression = _OPERATORS[kind](left, value)
        return plain | pc.is_nan(left) if kind.startswith("GreaterThan") else plain
    always = {"LessThanOrEqual": True, "GreaterThan": False}.get(kind)
    if always is not None:
        unknown = pa.scalar(None, pa.bool_())
        return pc.if_else(left.is_valid(), pa.scalar(always), unknown)
    return ~pc.is_nan(left) if kind == "LessThan" else pc.is_nan(left)


def listed(field: pc.Expression, values: Sequence[pa.Scalar], type_: pa.DataType) -> pc.Expression:
    """Return SQL's IN: null, not false, if no value matches and the list or the row has a null.

    Args:
        field: an expression.
        values: the list.
        type_: the type of all, for which :func:`is_comparable` is true.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    unknown = pa.scalar(None, pa.bool_())
    valid = [value for value in values if value.is_valid]
    if pa.types.is_floating(type_):
        # Arrow's own list tells -0.0 from 0.0.
        each = [compared("EqualTo", field, value, type_) for value in valid]
        is_listed = functools.reduce(operator.or_, each, pc.scalar(value=False))
    else:
        is_listed = field.isin(pa.array([value.as_py() for value in valid], type_))
    missing = unknown if len(valid) < len(values) else pa.scalar(value=False)
    matches = pc.if_else(is_listed, pa.scalar(value=True), missing)
    return pc.if_else(field.is_valid(), matches, unknown)


def scalar(value: Any, type_: pa.DataType) -> pa.Scalar | None:
    """Return a value as a scalar of the type; None if the type cannot hold it without a change."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        exact = pa.scalar(value, type_)
        # Arrow cuts the fraction of a number, and the time of a day, without an error.
        back = exact.as_py()
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
        return None
    if back is None or (isinstance(back, type(value)) and back == value):
        return exact
    both_nan = isinstance(value, float) and value != value and back != back  # noqa: PLR0124
    return exact if both_nan else None


def is_text(kind: pa.DataType) -> bool:
    """Return True if values of the type are text."""
    import pyarrow as pa  # noqa: PLC0415

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_comparable(kind: pa.DataType) -> bool:
    """Return True if :func:`compared` compares values of the type as Spark does."""
    import pyarrow as pa  # noqa: PLC0415

    types = pa.types
    return is_text(kind) or any(
        is_kind(kind)
        for is_kind in (
            types.is_boolean,
            types.is_signed_integer,
            types.is_float32,
            types.is_float64,
            types.is_date,
            types.is_timestamp,
            types.is_decimal,
        )
    )
