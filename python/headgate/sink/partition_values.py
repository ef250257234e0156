"""The folders of rows by their values in some columns, with each value written as Spark casts it to text. ADR 0053.

Spark writes decimals so since version 4, with ``spark.sql.ansi.enabled``, and floats so with Java 19 and later.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headgate._partition_names import LONGEST, NULL, partition_name
from headgate.errors import SchemaMismatchError, UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Iterable

_TEXTS: Final = (pt.is_string, pt.is_large_string)
_OTHERS: Final = (
    *(pt.is_boolean, pt.is_integer, pt.is_float32, pt.is_float64),
    *(pt.is_decimal128, pt.is_decimal256, pt.is_date, pt.is_timestamp),
)
#: Smaller and larger floats have an exponent in Java's notation.
_PLAIN: Final = range(-3, 7)


def check_type(field: pa.Field, zone: str | None) -> None:
    """Check that folders can have the values of a column.

    Args:
        field: the column.
        zone: the time zone of timestamps in the names of folders.

    Raises:
        UnsupportedTypeError: they cannot: a reader would not find the same values.
    """
    of = field.type.value_type if pt.is_dictionary(field.type) else field.type
    if pt.is_timestamp(of) and of.tz and zone is None:
        raise UnsupportedTypeError(
            f"the names of folders have times of a day, and no time zone is given for column {field.name}",
            asked=f"partition_by: {field.name}, {of}",
            remedy='time_zone="UTC", or the time zone of those who read them · a date in a column of its own',
            details={"column": field.name, "type": str(of)},
        )
    if not any(is_kind(of) for is_kind in (*_TEXTS, *_OTHERS)):
        raise UnsupportedTypeError(
            f"the names of folders cannot have the values of column {field.name}",
            asked=f"partition_by: {field.name}, {of}",
            have="text, booleans, numbers, decimals, dates and timestamps",
            remedy="cast the column to text · partition by another column",
            details={"column": field.name, "type": str(of)},
        )


def folders_of(
    batch: pa.RecordBatch, columns: Iterable[str], zone: str | None
) -> tuple[pa.Int64Array, list[str]]:
    """Return the places of the folders of all rows, and the folders: relative paths.

    Args:
        batch: the rows.
        columns: columns of the batch that :func:`check_type` takes.
        zone: the time zone of timestamps.

    Raises:
        SchemaMismatchError: no folder can have a value.
    """
    places, paths = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows), [""]
    for column in columns:
        values, indices = _encoded(batch.column(column))
        names = [_name(column, text) for text in [*_texts(column, values, zone), None]]
        codes = pc.fill_null(indices.cast(pa.int64()), len(names) - 1)
        both = pc.add(pc.multiply(places, len(names)), codes).dictionary_encode()
        places = both.indices.cast(pa.int64())
        pairs = (divmod(code, len(names)) for code in both.dictionary.to_pylist())
        paths = [f"{paths[above]}/{names[code]}".lstrip("/") for above, code in pairs]
    return places, paths


def _encoded(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the values of a column, each once, and the place of each row's; null for a null."""
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    of = column.type
    if pt.is_floating(of):
        # By their bits: 0.0 and -0.0 are equal, and have two folders.
        encoded = column.view(pa.int32() if pt.is_float32(of) else pa.int64()).dictionary_encode()
        return encoded.dictionary.view(of), encoded.indices
    encoded = column.dictionary_encode()
    return encoded.dictionary, encoded.indices


def _name(column: str, text: str | None) -> str:
    """Return the name of a folder.

    Raises:
        SchemaMismatchError: no file system has it, or it means another value.
    """
    name = partition_name(column, text)
    size = len(name.encode())
    wrong = (
        "is what a null has there"
        if text == NULL
        else "has a character 0"
        if "\0" in name
        else f"makes a name of {size} bytes, and file systems take {LONGEST}"
        if size > LONGEST
        else ""
    )
    if wrong:
        raise _refused(column, repr(text), wrong)
    return name


def _refused(column: str, value: str, wrong: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"no folder can have a value of column {column}: it {wrong}",
        have=value[:200],
        remedy="leave such rows out · partition by another column",
        details={"column": column},
    )


def _texts(column: str, values: pa.Array, zone: str | None) -> list[str]:
    """Return values without nulls as Spark casts them to text."""
    of = values.type
    try:
        if pt.is_timestamp(of):
            values = _wall_times(column, values.cast(pa.timestamp("us", of.tz)), zone)
        plain: list[Any] = values.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise _refused(column, str(values)[:200], f"cannot be written as text: {error}") from error
    if pt.is_boolean(of):
        return ["true" if value else "false" for value in plain]
    if pt.is_floating(of):
        return [_java_float(value, is_double=pt.is_float64(of)) for value in plain]
    if pt.is_decimal(of):
        return [format(value, "f") for value in plain]
    if pt.is_timestamp(of):
        return [_timestamp(str(value)) for value in plain]
    return list(map(str, plain))


def _wall_times(column: str, values: pa.Array, zone: str | None) -> pa.Array:
    """Return timestamps as those on the clocks of a time zone.

    Raises:
        SchemaMismatchError: clocks that were set back show a time twice, and this is the second one.
    """
    if values.type.tz is None:
        return values
    local = pc.local_timestamp(values.cast(pa.timestamp("us", zone)))
    read = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    is_same = pc.equal(read.cast(pa.int64()), values.cast(pa.int64()))
    if pc.all(is_same).as_py() is False:
        lost = values.filter(pc.invert(is_same))[0]
        wrong = (
            f"comes after clocks of {zone} were set back, so readers take it for an earlier time"
        )
        raise _refused(column, str(lost), wrong)
    return local


def _timestamp(text: str) -> str:
    """Return a time with its fraction of a second without zeros at the end."""
    return text.rstrip("0") if "." in text else text


def _java_float(value: float, *, is_double: bool) -> str:
    """Return a float in Java's notation: the fewest digits that mean it, but two at least."""
    special = {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value)
    if special is not None or value != value:  # noqa: PLR0124 - NaN
        return special or "NaN"
    text = repr(value) if is_double else pa.scalar(value, pa.float32()).cast(pa.string()).as_py()
    sign, digits, _ = Decimal(text).normalize().as_tuple()
    exponent = Decimal(text).adjusted() if value else 0
    if len(digits) == 1 and value:
        # Of two digits another number may be nearer, as 4.9E-324 to the smallest.
        shortest = f"{abs(value):.1e}"
        if is_double or _as_float32(float(shortest)) == abs(value):
            mantissa, _, power = shortest.partition("e")
            digits, exponent = tuple(map(int, mantissa.replace(".", ""))), int(power)
    return ("-" if sign else "") + _java_digits("".join(map(str, digits)), exponent)


def _java_digits(digits: str, exponent: int) -> str:
    if exponent not in _PLAIN:
        return f"{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"0.{'0' * (-exponent - 1)}{digits.rstrip('0') or '0'}"
    digits = digits.ljust(exponent + 1, "0")
    return f"{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"


def _as_float32(value: float) -> float:
    number: float = struct.unpack("f", struct.pack("f", value))[0]
    return number
