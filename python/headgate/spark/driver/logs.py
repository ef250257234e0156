"""Headgate's log on the driver. A handler that raises must not end the thread that logs."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.spark.driver.runs.run import Run

_LOG: Final = logging.getLogger("headgate.spark")


def of_run(run: Run, epoch: int | None = None) -> dict[str, Any]:
    """Return the attributes of a log record about a run; about its epoch of now if no other one is given."""
    return {
        "exchange": run.exchange_id.hex(),
        "run": run.number,
        "epoch": run.epoch if epoch is None else epoch,
    }


def say(level: int, text: str, *values: object, about: dict[str, Any] | None = None) -> None:
    """Log a line as :meth:`logging.Logger.log` does; print the error of a handler that raises.

    Args:
        level: of the line.
        text: with places for the values.
        values: for the places.
        about: attributes of the record.
    """
    try:
        _LOG.log(level, text, *values, extra=about)
    except Exception as error:  # noqa: BLE001 - handlers are the user's, and raise anything
        # With a closed stderr there is no place left to report this.
        print(f"headgate: a log handler raised {error!r} at: {text}", file=sys.stderr)  # noqa: T201
