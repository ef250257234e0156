"""Texts from outside, shown where a terminal obeys characters and a line is a record: in the log, and in lines of progress."""

from __future__ import annotations

import logging
from numbers import Number
from typing import Any, Final

#: All loggers of Headgate.
LOGGERS: Final = (
    "headgate.environment",
    "headgate.kafka",
    "headgate.observe",
    "headgate.observe.http",
    "headgate.source",
    "headgate.spark",
    "headgate.stream",
)


def plain(text: str) -> str:
    """Return a text in one line, with all that does not print as Python's escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class _Plain:
    """A value of a record that is shown plainly, if it is shown at all."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return plain(str(self._value))

    def __repr__(self) -> str:
        return plain(repr(self._value))


class _PlainRecords(logging.Filter):
    """Makes the values of records plain, and the text of a traceback except for its lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; return True."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(_shown, record.args))
        if record.exc_info and not record.exc_text:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text = "\n".join(map(plain, text.split("\n")))
        return True


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    return value if isinstance(value, Number) else _Plain(value)


def make_logs_plain() -> None:
    """Have all loggers of Headgate write plain records, whatever users and strangers have in their texts."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_PLAIN)  # which it has once, however often it is added


_PLAIN: Final = _PlainRecords()
