"""Times of all types as whole milliseconds since 1970, in UTC: the one place where a time becomes a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.errors import UnsupportedTypeError

if TYPE_CHECKING:
    import pyarrow as pa

#: unit -> the factor and the divisor that convert it to ms.
UNITS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_DAY: Final = 86_400_000


def scale_of(of: pa.DataType, unit: str = "ms") -> tuple[int, int] | None:
    """Return the factor and the divisor that make ms of the numbers of a type; None if it has no times.

    Args:
        of: a timestamp of any unit, a date, or int64.
        unit: the unit of int64.
    """
    import pyarrow as pa  # noqa: PLC0415 - `import headgate` loads nothing else

    t = pa.types
    if t.is_timestamp(of):
        return UNITS[of.unit]
    if t.is_date(of):
        return (_DAY, 1) if t.is_date32(of) else (1, 1)
    # Milliseconds since 1970 do not fit into fewer bits.
    return UNITS[unit] if t.is_int64(of) else None


def millis_of(times: Any, unit: str = "ms") -> pa.Int64Array:
    """Return times as milliseconds since 1970, rounded down. Nulls stay.

    Args:
        times: an Arrow array, a numpy array or a sequence of timestamps of any unit, dates, or integers. A
            timestamp without a time zone counts as UTC.
        unit: the unit of int64.

    Raises:
        UnsupportedTypeError: values that are no times, or a time whose milliseconds do not fit 64 bits.
    """
    import pyarrow as pa  # noqa: PLC0415 - `import headgate` loads nothing else
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        array = times if isinstance(times, (pa.Array, pa.ChunkedArray)) else pa.array(times)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _unsupported(f"{type(times).__name__}, which Arrow cannot read: {error}") from error
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_null(array.type):
        return array.cast(pa.int64())
    scale = scale_of(array.type, unit)
    if scale is None:
        raise _unsupported(str(array.type))
    factor, divisor = scale
    numbers = _numbers(array)
    if factor > 1:
        try:
            return pc.multiply_checked(numbers, factor)
        except pa.ArrowInvalid as error:
            raise UnsupportedTypeError(
                f"a time of type {array.type} is beyond what milliseconds in 64 bits can be",
                remedy="filter the rows with such times",
            ) from error
    return numbers if divisor == 1 else floor_divide(numbers, divisor)


def floor_divide(numbers: pa.Int64Array, divisor: int) -> pa.Int64Array:
    """Return the quotients of int64, rounded down also below 0, where Arrow's rounds towards 0."""
    import pyarrow.compute as pc  # noqa: PLC0415 - `import headgate` loads nothing else

    quotients = pc.divide(numbers, divisor)
    exceeds = pc.greater(pc.multiply(quotients, divisor), numbers)
    return pc.subtract(quotients, exceeds.cast(quotients.type))


def milli_of(time: Any) -> int:
    """Return one time, such as a datetime or a number of ms, as :func:`millis_of`.

    Raises:
        UnsupportedTypeError: it is no time.
    """
    millis = time if type(time) is int else millis_of([time])[0].as_py()
    if millis is None:
        raise _unsupported(type(time).__name__)
    return int(millis)


def _numbers(array: pa.Array) -> pa.Int64Array:
    import pyarrow as pa  # noqa: PLC0415 - `import headgate` loads nothing else

    if pa.types.is_date32(array.type):
        return array.view(pa.int32()).cast(pa.int64())
    return array.view(pa.int64())


def _unsupported(have: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"times of type {have}",
        have="timestamps of any unit, dates, or int64 of milliseconds since 1970",
        remedy='pc.cast(batch["at"], pa.timestamp("ms"))',
    )
