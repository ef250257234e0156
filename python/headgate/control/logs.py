"""Lines in a log of Headgate's. A handler that raises must not end the thread that logs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def log_safely(log: logging.Logger, level: int, text: str, *values: object) -> None:
    """Log a line as :meth:`logging.Logger.log` does; print the error of a handler that raises.

    Args:
        log: gets the line.
        level: of the line.
        text: with places for the values.
        values: for the places.
    """
    try:
        log.log(level, text, *values)
    except Exception as error:  # noqa: BLE001 - handlers are the user's, and raise anything
        # With a closed stderr there is no place left to report this.
        print(f"headgate: a log handler raised {error!r} at: {text}", file=sys.stderr)  # noqa: T201
