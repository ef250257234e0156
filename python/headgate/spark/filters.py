"""Spark's filters as Arrow expressions: one translation for scans that workers read and for the data source.

An expression is null where Spark's filter is null, so it stays right below NOT, AND and OR, which follow
Kleene's logic in Arrow as in SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql.datasource import Filter

#: Filter of text -> Arrow's function.
_MATCHES: Final = {
    "StringStartsWith": "starts_with",
    "StringEndsWith": "ends_with",
    "StringContains": "match_substring",
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

    Returns None if there is none: for a type with another order or equality in Arrow (for floats,
    Spark's NaN equals NaN and is the largest value), for a value that the type cannot hold, and for an
    unknown filter.

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
    if not _agrees(type_):
        return None
    if kind in _MATCHES:
        fits = _is_text(type_) and isinstance(value, str)
        return getattr(pc, _MATCHES[kind])(field, pattern=value) if fits else None
    scalars = [_scalar(item, type_) for item in (value if kind == "In" else [value])]
    exact = [scalar for scalar in scalars if scalar is not None]
    if len(exact) < len(scalars):
        return None
    return _in(field, exact, type_) if kind == "In" else _comparison(kind, field, exact[0])


def _comparison(kind: str, field: pc.Expression, value: pa.Scalar) -> pc.Expression | None:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    compare = {
        "EqualTo": field == value,
        "GreaterThan": field > value,
        "GreaterThanOrEqual": field >= value,
        "LessThan": field < value,
        "LessThanOrEqual": field <= value,
    }
    if kind != "EqualNullSafe":
        return compare.get(kind)
    if not value.is_valid:
        return field.is_null()
    # A null on one side alone is false, not null.
    return pc.if_else(field.is_valid(), field == value, pa.scalar(value=False))


def _in(field: pc.Expression, values: Sequence[pa.Scalar], type_: pa.DataType) -> pc.Expression:
    """Return SQL's IN: null, not false, if no value matches and the list or the row has a null."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    unknown = pa.scalar(None, pa.bool_())
    listed = pa.array([value.as_py() for value in values if value.is_valid], type_)
    missing = unknown if len(listed) < len(values) else pa.scalar(value=False)
    matches = pc.if_else(field.isin(listed), pa.scalar(value=True), missing)
    return pc.if_else(field.is_valid(), matches, unknown)


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar | None:
    """Return a value as a scalar of the type; None if the type cannot hold it without a change."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        scalar = pa.scalar(value, type_)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
        return None
    # Arrow cuts the fraction of a number, and the time of a day, without an error.
    back = scalar.as_py()
    return scalar if back is None or (isinstance(back, type(value)) and back == value) else None


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _agrees(kind: pa.DataType) -> bool:
    """Return True if Arrow compares values of the type as Spark does."""
    import pyarrow as pa  # noqa: PLC0415

    types = pa.types
    return _is_text(kind) or any(
        is_kind(kind)
        for is_kind in (
            types.is_boolean,
            types.is_signed_integer,
            types.is_date,
            types.is_timestamp,
            types.is_decimal,
        )
    )
