"""Spark's pushed filters as Arrow expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql.datasource import Filter


def expression(pushed: Filter, schema: pa.Schema) -> pc.Expression | None:
    """Return the Arrow expression that is true for exactly the rows for which ``pushed`` is true.

    Returns None if there is no such expression, and Spark evaluates the filter itself. This is so
    for a nested column, for a type with another order or equality in Arrow (for floats, Spark's NaN
    equals NaN and is the largest value), and for an unknown filter.

    Args:
        pushed: a filter of ``pyspark.sql.datasource``.
        schema: schema of the rows that the source reads.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    kind = type(pushed).__name__
    if kind == "Not":
        inner = expression(pushed.child, schema)  # type: ignore[attr-defined]
        return None if inner is None else ~inner
    path = pushed.attribute  # type: ignore[attr-defined]
    if len(path) != 1 or path[0] not in schema.names or schema.names.count(path[0]) != 1:
        return None
    field, type_ = pc.field(path[0]), schema.field(path[0]).type
    if kind == "IsNull":
        return field.is_null()
    if kind == "IsNotNull":
        return field.is_valid()
    if not _agrees(type_):
        return None
    return _comparison(kind, field, pushed.value, type_)  # type: ignore[attr-defined]


def _agrees(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    types = pa.types
    return any(
        is_kind(kind)
        for is_kind in (
            types.is_boolean,
            types.is_signed_integer,
            types.is_string,
            types.is_large_string,
            types.is_date,
            types.is_timestamp,
            types.is_decimal,
        )
    )


def _comparison(kind: str, field: pc.Expression, value: Any, type_: pa.DataType) -> Any:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        if kind == "In":
            values = pa.array([v for v in value if v is not None], type_)
            # SQL: IN is null, not false, if no value matches and the list or the row has a null.
            missing = pa.scalar(None if len(values) < len(value) else False, pa.bool_())
            found = pc.if_else(field.isin(values), pa.scalar(True), missing)
            return pc.if_else(field.is_valid(), found, pa.scalar(None, pa.bool_()))
        if kind in {"StringStartsWith", "StringEndsWith", "StringContains"}:
            match = {
                "StringStartsWith": pc.starts_with,
                "StringEndsWith": pc.ends_with,
                "StringContains": pc.match_substring,
            }[kind]
            return match(field, pattern=value)
        scalar = pa.scalar(value, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None  # the column's type cannot hold the value, so Spark evaluates the filter
    compare = {
        "EqualTo": field == scalar,
        "GreaterThan": field > scalar,
        "GreaterThanOrEqual": field >= scalar,
        "LessThan": field < scalar,
        "LessThanOrEqual": field <= scalar,
    }
    if kind == "EqualNullSafe":
        return field.is_null() if value is None else (field == scalar) & field.is_valid()
    return compare.get(kind)
