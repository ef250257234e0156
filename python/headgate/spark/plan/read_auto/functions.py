"""Functions of Spark whose values Arrow's functions give, each by the kind of its node.

A function returns None for types or arguments with which the values are not known to be the same. One that
can fail in Spark is left to Spark, so that no error is another one: whole numbers are added and multiplied
only if their bounds show that no result is too large.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.spark.filters import MATCHES, MIRRORED, compared, is_comparable, is_text, listed
from headgate.spark.filters import scalar as exact_scalar
from headgate.spark.plan.read_auto.skipping import negated, risks_of
from headgate.spark.plan.read_auto.values import Value, is_float, limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    import pyarrow.compute as pc

    from headgate.spark.plan.read_auto.values import Bounds

    Function = Callable[[str, Sequence[Value]], Value | None]

#: Test of a text -> the filter that it is.
_TEXT_MATCHES: Final = {
    "StartsWith": "StringStartsWith",
    "EndsWith": "StringEndsWith",
    "Contains": "StringContains",
}
_TRIMS: Final = {
    "StringTrim": "ascii_trim",
    "StringTrimLeft": "ascii_ltrim",
    "StringTrimRight": "ascii_rtrim",
}
_ARITHMETIC: Final = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply"}
#: Most digits of a decimal.
_DIGITS: Final = 38


def truth(expression: pc.Expression) -> Value:
    """Return a value that is true, false or null."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    return Value(expression, pa.bool_())


def are_comparable(values: Sequence[Value]) -> bool:
    """Return True if Arrow compares the values as Spark does."""
    return _alike(values) and is_comparable(values[0].type) and all(v.is_bytewise for v in values)


def contained(value: Value, values: Sequence[pa.Scalar]) -> Value:
    """Return IN."""
    computed = truth(listed(value.expression, values, value.type))
    return with_risks(computed, "EqualTo", value, values)


def with_risks(computed: Value, kind: str, value: Value, values: Sequence[pa.Scalar]) -> Value:
    """Add the risks of a comparison with values."""
    if not value.float_column:
        return computed
    return replace(computed, risks=risks_of(kind, value.float_column, values))


def contains_like(text: Value, pattern: Value, escape: str) -> Value | None:
    """Return LIKE."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    wanted = _pattern([text, pattern])
    if wanted is None or escape in wanted or "\\" in wanted:
        return None
    # Without "_" bytes are compared; with it, characters are counted.
    searched = _utf8(text.expression) if "_" in wanted else text.expression.cast(pa.binary())
    return truth(pc.match_like(searched, pattern=wanted))


def cast(value: Value, want: pa.DataType) -> Value | None:
    """Return a cast that never fails."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    types = pa.types
    have = value.type
    if have.equals(want):
        return value
    computed = value.expression.cast(want)
    if value.bounds is not None:
        return _cast_whole(value, computed, want, value.bounds)
    if types.is_boolean(have) and types.is_signed_integer(want):
        return Value(computed, want, bounds=(0, 1))
    if is_float(have) and is_float(want):
        return Value(value.expression.cast(want, safe=False), want)
    keeps_all = types.is_boolean(have) and is_text(want)
    if types.is_decimal(have) and types.is_decimal(want):
        whole = want.precision - want.scale
        keeps_all = want.scale >= have.scale and whole >= have.precision - have.scale
    return Value(computed, want) if keeps_all else None


def _cast_whole(
    value: Value, computed: pc.Expression, want: pa.DataType, bounds: Bounds
) -> Value | None:
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    if pa.types.is_signed_integer(want):
        return _bounded(computed, want, bounds)
    if is_float(want):
        # Rounds to the nearest, as Spark does.
        return Value(value.expression.cast(want, safe=False), want)
    fits = is_text(want)
    if pa.types.is_decimal(want):
        fits = max(map(abs, bounds)) < 10 ** (want.precision - want.scale)
    return Value(computed, want) if fits else None


def _both(kind: str, children: Sequence[Value]) -> Value | None:
    left, right = (child.expression for child in children)
    return truth(left & right if kind == "And" else left | right)


def _not(kind: str, children: Sequence[Value]) -> Value | None:  # noqa: ARG001 - as all
    return replace(truth(~children[0].expression), risks=negated(children[0].risks))


def _is_null(kind: str, children: Sequence[Value]) -> Value | None:
    child = children[0].expression
    return truth(child.is_null() if kind == "IsNull" else child.is_valid())


def _comparison(kind: str, children: Sequence[Value]) -> Value | None:
    left, right = children
    if not are_comparable(children):
        return None
    if left.literal is not None:
        kind, left, right = MIRRORED[kind], right, left
    if right.literal is None:
        return truth(compared(kind, left.expression, right.expression, left.type))
    computed = truth(compared(kind, left.expression, right.literal, left.type))
    return with_risks(computed, kind, left, [right.literal])


def _in(kind: str, children: Sequence[Value]) -> Value | None:  # noqa: ARG001
    first, *others = children
    values = [other.literal for other in others if other.literal is not None]
    if not are_comparable(children) or len(values) < len(others):
        return None
    return contained(first, values)


def _is_nan(kind: str, children: Sequence[Value]) -> Value | None:  # noqa: ARG001
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    return truth(pc.coalesce(pc.is_nan(children[0].expression), pc.scalar(value=False)))


def _match(kind: str, children: Sequence[Value]) -> Value | None:
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    pattern = _pattern(children)
    if pattern is None:
        return None
    match = getattr(pc, MATCHES[_TEXT_MATCHES[kind]])
    return truth(match(children[0].expression, pattern=pattern))


def _arithmetic(kind: str, children: Sequence[Value]) -> Value | None:
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    left, right = children
    computed: pc.Expression = getattr(pc, _ARITHMETIC[kind])(left.expression, right.expression)
    if pa.types.is_decimal(left.type) and pa.types.is_decimal(right.type):
        type_ = _decimal_of(kind, left.type, right.type)
        return None if type_ is None else Value(computed, type_)
    if not left.type.equals(right.type):
        return None
    if is_float(left.type):
        return Value(computed, left.type)
    if left.bounds is None or right.bounds is None:
        return None
    return _bounded(computed, left.type, _bounds(kind, left.bounds, right.bounds))


def _rest(kind: str, children: Sequence[Value]) -> Value | None:
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    number, other = children
    by = None if other.literal is None else other.literal.as_py()
    if number.bounds is None or not number.type.equals(other.type) or by is None or by < 1:
        return None
    low, high = number.bounds
    whole = pc.divide(number.expression, other.expression)
    if kind == "IntegralDivide":
        return Value(whole, number.type, bounds=(_cut(low, by), _cut(high, by)))
    rest = pc.subtract(number.expression, pc.multiply(whole, other.expression))
    if kind == "Remainder":
        return Value(rest, number.type, bounds=(max(low, 1 - by) if low < 0 else 0, by - 1))
    zero = pc.scalar(exact_scalar(0, number.type))
    positive = pc.if_else(rest < zero, pc.add(rest, other.expression), rest)
    return Value(positive, number.type, bounds=(0, by - 1))


def _divide(kind: str, children: Sequence[Value]) -> Value | None:  # noqa: ARG001
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    left, right = children
    are_floats = is_float(left.type) and left.type.equals(right.type)
    if not are_floats or right.literal is None or right.literal.as_py() in {None, 0.0}:
        return None
    return Value(pc.divide(left.expression, right.expression), left.type)


def _sign(kind: str, children: Sequence[Value]) -> Value | None:
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    (child,) = children
    computed = (pc.negate if kind == "UnaryMinus" else pc.abs)(child.expression)
    if child.bounds is not None:
        low, high = child.bounds
        least = 0 if low <= 0 <= high else min(abs(low), abs(high))
        bounds = (-high, -low) if kind == "UnaryMinus" else (least, max(-low, high))
        return _bounded(computed, child.type, bounds)
    # Spark's own ways to compute abs(-0.0) differ.
    is_same = pa.types.is_decimal(child.type) or (kind == "UnaryMinus" and is_float(child.type))
    return Value(computed, child.type) if is_same else None


def _branches(kind: str, children: Sequence[Value]) -> Value | None:  # noqa: ARG001
    """Return IF and CASE: children are pairs of a condition and a value, then maybe one more value."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    pairs = list(zip(children[0::2], children[1::2], strict=False))
    values = [value for _, value in pairs]
    if len(children) % 2:
        values.append(children[-1])
        computed = children[-1].expression
    else:
        computed = pc.scalar(pa.scalar(None, values[0].type))
    for condition, value in reversed(pairs):
        is_true = pc.coalesce(condition.expression, pc.scalar(value=False))
        computed = pc.if_else(is_true, value.expression, computed)
    return _one_of(computed, values)


def _coalesce(kind: str, children: Sequence[Value]) -> Value | None:  # noqa: ARG001
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    return _one_of(pc.coalesce(*(child.expression for child in children)), children)


def _concat(kind: str, children: Sequence[Value]) -> Value | None:  # noqa: ARG001
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    if not children or not all(map(_is_plain_text, children)):
        return None
    texts = [child.expression for child in children]
    computed = pc.binary_join_element_wise(*texts, pc.scalar(""), null_handling="emit_null")
    return Value(computed, pa.string())


def _trim(kind: str, children: Sequence[Value]) -> Value | None:
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    if len(children) != 1 or not _is_plain_text(children[0]):
        return None
    computed = getattr(pc, _TRIMS[kind])(children[0].expression, characters=" ")
    return Value(computed, children[0].type)


def _length(kind: str, children: Sequence[Value]) -> Value | None:  # noqa: ARG001
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    (child,) = children
    if not is_text(child.type):
        return None
    return Value(pc.utf8_length(_utf8(child.expression)), pa.int32(), bounds=(0, 2**31 - 1))


def _substring(kind: str, children: Sequence[Value]) -> Value | None:  # noqa: ARG001
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    text, *numbers = children
    literals = [number.literal.as_py() for number in numbers if number.literal is not None]
    if not _is_plain_text(text) or len(literals) < 2 or None in literals or min(literals) < 1:
        return None
    start, length = literals
    stop = start - 1 + length
    computed = pc.utf8_slice_codeunits(_utf8(text.expression), start=start - 1, stop=stop)
    return Value(computed, text.type)


def _alias(kind: str, children: Sequence[Value]) -> Value | None:  # noqa: ARG001
    return children[0]


def _alike(values: Sequence[Value]) -> bool:
    return all(value.type.equals(values[0].type) for value in values)


def _one_of(computed: pc.Expression, values: Sequence[Value]) -> Value | None:
    """Return a value that is one of several of a type; None if they have others."""
    if not _alike(values):
        return None
    bounds = [value.bounds for value in values if value.bounds is not None]
    both = (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None
    is_bytewise = all(value.is_bytewise for value in values)
    return Value(computed, values[0].type, is_bytewise=is_bytewise, bounds=both)


def _bounded(computed: pc.Expression, type_: pa.DataType, bounds: Bounds) -> Value | None:
    return Value(computed, type_, bounds=bounds) if _holds(type_, bounds) else None


def _holds(type_: pa.DataType, bounds: Bounds) -> bool:
    low, high = limits(type_) or (0, 0)
    return low <= bounds[0] and bounds[1] <= high


def _bounds(kind: str, left: Bounds, right: Bounds) -> Bounds:
    if kind == "Add":
        return left[0] + right[0], left[1] + right[1]
    if kind == "Subtract":
        return left[0] - right[1], left[1] - right[0]
    products = [a * b for a in left for b in right]
    return min(products), max(products)


def _decimal_of(kind: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type of a sum or product of decimals; None if Spark would round it."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    if kind == "Multiply":
        scale, precision = left.scale + right.scale, left.precision + right.precision + 1
    else:
        scale = max(left.scale, right.scale)
        whole = max(left.precision - left.scale, right.precision - right.scale)
        precision = whole + scale + 1
    return pa.decimal128(precision, scale) if precision <= _DIGITS else None


def _cut(number: int, by: int) -> int:
    """Divide, and cut the fraction."""
    return number // by if number >= 0 else -(-number // by)


def _is_plain_text(value: Value) -> bool:
    return is_text(value.type) and value.is_bytewise


def _pattern(children: Sequence[Value]) -> str | None:
    """Return the text that a text is searched for; None if there is none that is the same for all rows."""
    text, pattern = children
    both_plain = _is_plain_text(text) and _is_plain_text(pattern)
    if not both_plain or pattern.literal is None or text.literal is not None:
        return None
    wanted: str | None = pattern.literal.as_py()
    return wanted


def _utf8(text: pc.Expression) -> pc.Expression:
    """Return a text, or an error if it is not UTF-8: of such, Arrow and Spark count other characters."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    return text.cast(pa.binary()).cast(pa.string())


#: Spark's expression -> its function.
FUNCTIONS: Final[dict[str, Function]] = {
    **dict.fromkeys(("And", "Or"), _both),
    "Not": _not,
    **dict.fromkeys(("IsNull", "IsNotNull"), _is_null),
    **dict.fromkeys(MIRRORED, _comparison),
    "In": _in,
    "IsNaN": _is_nan,
    **dict.fromkeys(_TEXT_MATCHES, _match),
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(("Remainder", "Pmod", "IntegralDivide"), _rest),
    "Divide": _divide,
    **dict.fromkeys(("UnaryMinus", "Abs"), _sign),
    **dict.fromkeys(("If", "CaseWhen"), _branches),
    "Coalesce": _coalesce,
    "Concat": _concat,
    **dict.fromkeys(_TRIMS, _trim),
    "Length": _length,
    "Substring": _substring,
    "Alias": _alias,
}
