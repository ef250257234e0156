"""Arguments of sources of tables: the choice of a version, by number or time."""

from __future__ import annotations

from datetime import datetime
from importlib.util import find_spec
from typing import Any

from headgate.errors import PackageNotFound
from headgate.source.arguments import refuse


def need(package: str, extra: str, source: object) -> None:
    """Check that a package is installed where a source is made; its readers do without.

    Raises:
        PackageNotFound: it is not.
    """
    if find_spec(package) is None:
        name = type(source).__name__
        raise PackageNotFound(
            f"{name} needs {package}, which is not installed",
            asked=f"{name}(...)",
            remedy=f'pip install "headgate[{extra}]" · pip install {package}',
        )


def after_of(text: str) -> int | str:
    """Return a version, or "latest".

    Raises:
        ValueError: the text is neither.
    """
    return text if text == "latest" else int(text)


def time_of(value: Any) -> datetime:
    """Return a point in time.

    Raises:
        OptionError: the value is none, or has no zone.
    """
    takes = 'a datetime with a zone, or "2026-01-31T12:00:00Z"'
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise refuse("timestamp", value, "is no time", takes) from None
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise refuse("timestamp", value, "is no time with a zone", takes)
    return time
