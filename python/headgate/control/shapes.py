"""Shapes of values in messages: each is a function that returns True for a value of the shape."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Shape: TypeAlias = Callable[[Any], bool]

#: Most characters of a name: of a host, an operator, a split or an event.
_NAME: Final = 1 << 16
_INT64: Final = 1 << 63
_HEX: Final = frozenset("0123456789abcdef")


def whole(value: Any, least: int = -_INT64, below: int = _INT64) -> bool:
    """Return True for a whole number of 64 bits."""
    return type(value) is int and least <= value < below


def count(value: Any) -> bool:
    """Return True for a whole number from 0."""
    return whole(value, 0)


def amount(value: Any) -> bool:
    """Return True for a finite number from 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < _INT64


def number(value: Any) -> bool:
    """Return True for a finite number."""
    return amount(abs(value)) if isinstance(value, int | float) else False


def port(value: Any) -> bool:
    """Return True for the number of a port."""
    return whole(value, 1, 1 << 16)


def flag(value: Any) -> bool:
    """Return True for true and false."""
    return isinstance(value, bool)


def text(value: Any) -> bool:
    """Return True for any text."""
    return isinstance(value, str)


def name(value: Any) -> bool:
    """Return True for a text that names something."""
    return isinstance(value, str) and 0 < len(value) <= _NAME


def identity(value: Any) -> bool:
    """Return True for 16 bytes in hexadecimal."""
    return isinstance(value, str) and len(value) == 32 and set(value) <= _HEX


def encoded(value: Any) -> bool:
    """Return True for bytes as text."""
    try:
        return isinstance(value, str) and base64.b64decode(value, validate=True) is not None
    except (ValueError, binascii.Error):
        return False


def maybe(shape: Shape) -> Shape:
    """Return the shape of null, or a value of a shape."""
    return lambda value: value is None or shape(value)


def one_of(*shapes: Shape) -> Shape:
    """Return the shape of a value of one of several shapes."""
    return lambda value: any(shape(value) for shape in shapes)


def many(shape: Shape) -> Shape:
    """Return the shape of a list of any length."""
    return lambda value: isinstance(value, list) and all(map(shape, value))


def row(*shapes: Shape) -> Shape:
    """Return the shape of a list with a value of each shape."""

    def fits(value: Any) -> bool:
        if not isinstance(value, list) or len(value) != len(shapes):
            return False
        return all(shape(item) for shape, item in zip(shapes, value, strict=True))

    return fits


def by_name(shape: Shape) -> Shape:
    """Return the shape of an object whose values are of one shape."""
    return lambda value: isinstance(value, dict) and all(map(shape, value.values()))


def fields(required: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Shape:
    """Return the shape of an object with these fields and no others."""
    shapes = {**required, **(optional or {})}

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or not required.keys() <= value.keys() <= shapes.keys():
            return False
        return all(shapes[key](item) for key, item in value.items())

    return fits


task: Final = row(count, count)
