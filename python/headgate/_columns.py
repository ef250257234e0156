"""Makes Arrow columns of Python's and pandas' values: each value as it is, or an error that says which is not."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

#: Types of pandas' missing values, which Arrow does not take one by one.
_MISSING: Final = {"NAType", "NaTType"}
#: Types of which Arrow puts several into one column, and makes the values of one type of them.
_KINDS: Final = (
    (dt.date, "dates"),
    (dt.time, "times of a day"),
    (dt.timedelta, "spans of time"),
    (Integral, "numbers"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "bytes"),
)
#: Most digits of Spark's decimals, and of Arrow's.
_DIGITS, _MOST_DIGITS = 38, 76
_FEWER: Final = "return values of one type in each column"


def column_of(
    values: Sequence[Any], name: str, whose: str, *, nan_is_null: bool = False
) -> pa.Array:
    """Return a column of values.

    Whole numbers beyond 64 bits become decimals, and pandas' missing values nulls.

    Args:
        values: numbers, text, dates and others that Arrow knows; None for nulls.
        name: of the column, for errors.
        whose: the rows in words, for errors.
        nan_is_null: True for values of pandas, which has one missing value.

    Raises:
        SchemaMismatchError: the values have several types, or one that Arrow does not know.
    """
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    try:
        try:
            column = pa.array(values, from_pandas=nan_is_null)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            values = [None if _is_missing(value, nan_is_null) else value for value in values]
            column = pa.array(values, _decimal_type(values), from_pandas=nan_is_null)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise SchemaMismatchError(
            f"{whose} have values in {name!r} that make no column",
            have=str(error),
            remedy=_FEWER,
        ) from error
    _check_kinds(values, column.type, name, whose)
    return column


def table_of(frame: Any, whose: str) -> pa.Table:
    """Return the rows of a pandas DataFrame; an index is a column if it has a name.

    Args:
        frame: the DataFrame.
        whose: it in words, for errors.

    Raises:
        SchemaMismatchError: a column has values of several types, or of one that Arrow does not know; or
            several columns have one name.
    """
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    try:
        table = pa.Table.from_pandas(frame, preserve_index=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise SchemaMismatchError(
            f"{whose} returned a DataFrame with values that make no column",
            have="; ".join(map(str, error.args)),
            remedy=f"{_FEWER} · df.dtypes shows the types; object is any",
            details={"function": whose},
        ) from error
    for field in table.schema:
        if field.name in frame.columns and frame[field.name].dtype == object:
            present = frame[field.name].dropna()
            _check_kinds(present, field.type, field.name, f"the rows of {whose}")
    # An index without a name only numbers the rows.
    named = [name for name in table.column_names if not name.startswith("__index_level_")]
    return table.select(named)


def _is_missing(value: Any, nan_is_null: bool) -> bool:
    kind = type(value)
    if nan_is_null and isinstance(value, float) and math.isnan(value):
        return True
    return kind.__name__ in _MISSING and kind.__module__.partition(".")[0] == "pandas"


def _decimal_type(values: Iterable[Any]) -> pa.DataType | None:
    """Return a type for whole numbers and decimals of any size; None if there are others, or none."""
    import pyarrow as pa  # noqa: PLC0415

    whole, scale = 0, 0
    for value in values:
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            return None
        _, digits, exponent = Decimal(value).as_tuple()
        if not isinstance(exponent, int):
            return None  # infinity and NaN
        whole, scale = max(whole, len(digits) + exponent), max(scale, -exponent)
    if not 0 < whole + scale <= _MOST_DIGITS:
        return None
    make = pa.decimal128 if whole + scale <= _DIGITS else pa.decimal256
    return make(_DIGITS if whole + scale <= _DIGITS else _MOST_DIGITS, scale)


def _check_kinds(values: Iterable[Any], kind: pa.DataType, name: str, whose: str) -> None:
    """Refuse values that Arrow makes others of: a time as a date, a number as a time, text as bytes."""
    from pyarrow import types  # noqa: PLC0415

    if not (types.is_temporal(kind) or types.is_binary(kind)):
        return
    kinds = {_word_of(value) for value in values} - {""}
    if len(kinds) > 1:
        raise SchemaMismatchError(
            f"{whose} have {' and '.join(sorted(kinds))} in {name!r}",
            have=f"{kind}, if Arrow converts them",
            remedy=_FEWER,
        )


def _word_of(value: Any) -> str:
    """Return a word for values that Arrow puts into one column; empty for others."""
    if isinstance(value, dt.datetime):
        return "times without a zone" if value.tzinfo is None else "times with a zone"
    return next((word for kind, word in _KINDS if isinstance(value, kind)), "")
