"""Headgate's log on the driver. A handler that raises must not end the thread that says something."""

from __future__ import annotations

import logging
import sys
from typing import Final

_LOG: Final = logging.getLogger("headgate.spark")


def say(level: int, text: str, *values: object) -> None:
    """Log a line, as :meth:`logging.Logger.log` does; where a handler raises, print that and go on."""
    try:
        _LOG.log(level, text, *values)
    except Exception as error:  # noqa: BLE001 - handlers are the user's, and raise what they like
        # A closed stderr swallows this line: there is nobody left to tell.
        print(f"headgate: a log handler raised {error!r} at: {text}", file=sys.stderr)  # noqa: T201
