"""Writes a report, and reads the JSON of one."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import OptionError
from headgate.observe.state import state_in

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAGES: Final = (".html", ".htm")


def write(state: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a state, as :meth:`headgate.observe.runs.Runs.state` returns it.

    A file of this name is replaced at once, when the new one is complete.

    Args:
        state: what to write.
        path: of the file; ``.html`` or ``.htm`` for the report, ``.json`` for the state itself.

    Returns:
        The absolute path.

    Raises:
        OptionError: the path has another suffix.
        PackageNotFound: the extra "ui" is not installed, which a page needs.
        OSError: the file cannot be written.
    """
    place = Path(path).absolute()
    suffix = place.suffix.lower()
    if suffix in _PAGES:
        from headgate.observe.report.page import html  # noqa: PLC0415 - needs an extra

        text = html(state)
    elif suffix == ".json":
        text = json.dumps(state)
    else:
        raise OptionError(
            f"a report is a page or JSON, and path={os.fspath(path)!r} is neither by its suffix",
            asked=f"path={os.fspath(path)!r} (argument)",
            remedy='"report.html" · "run.json"',
        )
    _replace(place, text)
    return place


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state in a JSON file that :func:`write` wrote.

    Raises:
        OptionError: the file holds something else, or a state of another version of Headgate.
        OSError: the file cannot be read.
    """
    return state_in(Path(path).read_bytes(), path)


def _replace(place: Path, text: str) -> None:
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    try:
        # Exclusive: nobody's link is followed.
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
