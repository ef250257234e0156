"""Types of the columns of text files that keep each value: a number of many digits is no double."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headgate._nested import with_inner

#: Texts of numbers that change as a number: leading zeros, and numbers that Arrow reads as hexadecimal.
_NOT_A_NUMBER: Final = r"^\s*[-+]?0[0-9xX]"
#: Texts of numbers that may change as a double: by a large exponent, as a long whole number, or by more digits than a
#: double has in its shortest form.
_LONG: Final = r"[eE][-+]?[0-9]{3}|\b[0-9]{16}|(?:[0-9]\.?){18}"
#: Significant digits that each double has at most in its shortest form.
_DIGITS: Final = 17
_MOST_DIGITS: Final = 38
#: Largest whole number below which doubles hold all others.
_EXACT: Final = 2**53


class _Number(str):
    """The text of a number in JSON."""

    __slots__ = ()


_DECODER: Final = json.JSONDecoder(parse_float=_Number, parse_int=_Number)


def inferred(schema: pa.Schema) -> pa.Schema:
    """Return an inferred schema in which columns of nulls are columns of strings, as in Spark."""
    return pa.schema(
        pa.field(field.name, pa.string() if pt.is_null(field.type) else field.type)
        for field in schema
    )


def is_number(kind: pa.DataType) -> bool:
    """Return True for the types that are inferred for numbers."""
    return bool(pt.is_integer(kind) or pt.is_floating(kind))


def exact_type(texts: pa.Array, kind: pa.DataType) -> pa.DataType:
    """Return the type that keeps the values of a column.

    Args:
        texts: the column as strings.
        kind: the inferred type, of integers or doubles.

    Returns:
        ``kind`` if no value changes, a decimal for numbers with more digits than a double has, and
        else string, as for numbers with leading zeros.
    """
    texts = texts.drop_null()
    if pc.any(pc.match_substring_regex(texts, _NOT_A_NUMBER)).as_py():
        return pa.string()
    if not pt.is_floating(kind):
        return kind
    long = texts.filter(pc.match_substring_regex(texts, _LONG)).to_pylist()
    if not any(map(_changes, long)):
        return kind
    numbers = [_decimal(text) for text in texts.to_pylist()]
    if not all(number.is_finite() for number in numbers):
        return pa.string()
    scale = max(max(0, -int(number.as_tuple().exponent)) for number in numbers)
    whole = max(max(0, number.adjusted() + 1) for number in numbers)
    return pa.decimal128(_MOST_DIGITS, scale) if whole + scale <= _MOST_DIGITS else pa.string()


def exact_numbers(texts: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Return a column of numbers.

    Args:
        texts: the column as strings.
        kind: of integers or doubles.
        name: of the column, for errors.

    Raises:
        ValueError: a text is no number, or changes as one.
    """
    texts = pc.ascii_trim_whitespace(texts)
    if exact_type(texts, kind) != kind:
        raise changing(name, kind)
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid as error:
        # Arrow's text names the value.
        raise ValueError(f"{name} is {_guessed(kind)}: {error}") from error


def changing(name: str, kind: pa.DataType) -> ValueError:
    """Return the error for a value that changes as the type that was inferred for its column."""
    return ValueError(
        f"{name} is {_guessed(kind)}, and has numbers that would change, such as with more digits or with leading zeros"
    )


def _guessed(kind: pa.DataType) -> str:
    return f"{kind} by the first MiB of the first file"


def exact_json(text: str, schema: pa.Schema) -> pa.Schema:
    """Return a schema inferred from objects, with decimals for numbers that change as doubles.

    Raises:
        ValueError: a number has more digits than a decimal.
    """
    if not pc.match_substring_regex(pa.scalar(text), _LONG).as_py():
        return schema
    rows = list(_objects(text))
    return pa.schema(
        field.with_type(
            _exact_inside(field.type, [row.get(field.name) for row in rows], field.name)
        )
        for field in schema
    )


def _objects(text: str) -> Iterator[dict[str, Any]]:
    at, end = 0, len(text)
    while True:
        while at < end and text[at].isspace():
            at += 1
        if at == end:
            return
        value, at = _DECODER.raw_decode(text, at)
        yield value


def _exact_inside(kind: Any, values: list[Any], name: str) -> pa.DataType:
    values = [value for value in values if value is not None]
    if pt.is_nested(kind):
        is_list = pt.is_list(kind)
        items = [item for value in values for item in value] if is_list else []

        def exact_field(field: pa.Field) -> pa.Field:
            inner = items if is_list else [value.get(field.name) for value in values]
            path = name if is_list else f"{name}.{field.name}"
            return field.with_type(_exact_inside(field.type, inner, path))

        return with_inner(kind, exact_field)
    if not pt.is_floating(kind):
        return kind
    exact = exact_type(pa.array(map(str, values), pa.string()), kind)
    if pt.is_string(exact):
        raise ValueError(
            f"{name} has numbers that no double and no decimal holds; "
            f'schema="{name} double" rounds them'
        )
    return exact


def _changes(text: str) -> bool:
    """Return True if a number changes as a double, other than by a rounding of its last digits."""
    exact = _decimal(text)
    if not exact.is_finite():
        return False
    double = Decimal(float(text))
    if not double.is_finite() or double.is_zero() != exact.is_zero():
        return True
    if text.strip().lstrip("+-").isdecimal():  # such as an id
        return abs(exact) > _EXACT
    return len(exact.as_tuple().digits) > _DIGITS


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("nan")
