"""Makes the page: fills the template with what is drawn of each run."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.observe._extras import require
from headgate.observe.numbers import count, seconds, share, size
from headgate.observe.report.drawing import drawn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import jinja2

_FOLDER: Final = Path(__file__).parent / "templates"


def html(state: Mapping[str, Any]) -> str:
    """Return the page for a state, as :meth:`headgate.observe.runs.Runs.state` returns it.

    Raises:
        PackageNotFound: the extra "ui" is not installed.
    """
    require("a report in HTML", "ui", "jinja2")
    script = (_FOLDER / "report.js").read_text(encoding="utf-8")
    template = _environment().get_template("report.html")
    page: str = template.render(
        state=state,
        runs=[drawn(run, number) for number, run in enumerate(state["runs"], 1)],
        script=script,
        # The browser runs this script and no other.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=(_FOLDER / "report.css").read_text(encoding="utf-8"),
        embedded=embedded(state),
    )
    return page


def embedded(state: Mapping[str, Any]) -> str:
    """Return a state as JSON in which nothing can end the element that holds it."""
    text = json.dumps(state)  # ASCII only
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 - an extra

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(count=count, size=size, seconds=seconds, share=share, time=_time)
    return environment


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
