"""The rate of calls that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate._arguments import rate as checked_rate
from headgate._arguments import refuse, text
from headgate.stream.api.checks import check_call_column
from headgate.stream.graph.call_rates import CallRate

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

#: Part of a rate that is left of it at least, if nothing else is said.
_LEAST: Final = 0.01


def check_rate(
    rate: Any, rate_by: Any, rate_min: Any, rate_name: Any, rows: pa.Schema, *, is_batch: bool
) -> CallRate | None:
    """Return the rate of calls; None if they have none.

    Args:
        rate: as of ``map_async()``.
        rate_by: as there.
        rate_min: as there.
        rate_name: as there.
        rows: schema of the stream.
        is_batch: True if calls have several rows.

    Raises:
        OptionError: a value is none that it takes, or there is no rate.
        UnknownColumnError: no column is named as ``rate_by`` says.
    """
    if rate is None:
        further: Mapping[str, Any] = {
            "rate_by": rate_by,
            "rate_min": rate_min,
            "rate_name": rate_name,
        }
        for name, value in further.items():
            if value is not None:
                raise refuse(
                    name, value, "without rate=", "no value then", f'rate="500/s", {name}='
                )
        return None
    highest = checked_rate("rate", rate)
    lowest = highest * _LEAST if rate_min is None else checked_rate("rate_min", rate_min)
    if lowest > highest:
        raise refuse("rate_min", rate_min, f"is above rate={rate!r}", f"at most {rate!r}")
    if rate_by is not None:
        check_call_column("rate_by", rate_by, rows, is_batch=is_batch)
    if rate_name is not None:
        text("rate_name", rate_name)
    return CallRate(highest, lowest, rate_by, rate_name)
