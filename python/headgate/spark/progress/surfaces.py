"""Surfaces for progress: a terminal line, a notebook output, the log. One thread uses them."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate._text import plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from headgate.observe.record import Run
    from headgate.observe.runs import RunKey

    #: The runs that are drawn.
    Drawn = Mapping[RunKey, Run]

_LOG: Final = logging.getLogger("headgate.spark")
#: Seconds between two lines in the log about a run.
LOG_PERIOD: Final = 10.0
#: Maximum width of a terminal line and of a log line, in columns.
_MAX_WIDTH: Final = 140
_LOG_WIDTH: Final = 400
_DEFAULT_WIDTH: Final = 100


class Surface(Protocol):
    """A place where runs are drawn."""

    name: str

    def draw(self, live: Drawn, ended: Drawn, now: float) -> None:
        """Draw the live runs, and for the last time the runs that ended."""


class Terminal:
    """One line on a terminal. It is erased when no run is live.

    Args:
        stream: the terminal.
    """

    name = "the progress line"

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._written = 0

    def draw(self, live: Drawn, ended: Drawn, now: float) -> None:  # noqa: ARG002 - see Surface
        """Overwrite the line with the state of the newest run."""
        if not live:
            self._write("")
            return
        newest = min(live.values(), key=lambda run: (run.seconds, -run.number))
        more = f"  (+{len(live) - 1} more)" if len(live) > 1 else ""
        width = max(10, min(_MAX_WIDTH, self._columns() - 1))
        self._write(newest.line(max(10, width - len(more))) + more)

    def _write(self, text: str) -> None:
        if not text and not self._written:
            return
        text = plain(text)
        blank = " " * (self._written - len(text))
        self._stream.write(f"\r{text}{blank}" + ("" if text else "\r"))
        self._stream.flush()
        self._written = len(text)

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _DEFAULT_WIDTH
        except (AttributeError, ValueError, OSError):
            return _DEFAULT_WIDTH


class Notebook:
    """One output per run, updated in place. After the run it shows the final state.

    Args:
        display: the module ``IPython.display``.
    """

    name = "progress in the notebook"

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handles: dict[RunKey, Any] = {}

    def draw(self, live: Drawn, ended: Drawn, now: float) -> None:  # noqa: ARG002 - see Surface
        """Update the output of each run."""
        for key, run in {**live, **ended}.items():
            page = self._display.HTML(run._repr_html_())
            if key in self._handles:
                self._handles[key].update(page)
            else:
                self._handles[key] = self._display.display(page, display_id=True)
        for key in ended:
            del self._handles[key]


class Log:
    """A line in the log ``headgate.spark`` every ten seconds of a run, at INFO."""

    name = "progress in the log"

    def __init__(self) -> None:
        self._logged: dict[RunKey, float] = {}

    def draw(self, live: Drawn, ended: Drawn, now: float) -> None:
        """Write the lines that are due."""
        for key, run in live.items():
            if now - self._logged.get(key, now - run.seconds) >= LOG_PERIOD:
                self._logged[key] = now
                about = {"exchange": run.name, "run": run.number}
                _LOG.info("%s", run.line(_LOG_WIDTH), extra=about)
        for key in ended:
            self._logged.pop(key, None)


def surface_of_this_process() -> Surface:
    """Return the surface that ``auto`` selects here: notebook, terminal, or log."""
    # A notebook's kernel has loaded IPython already, so it is never imported only to ask.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is not None:
        return Notebook(importlib.import_module("IPython.display"))
    return Terminal(sys.stderr) if _is_terminal(sys.stderr) else Log()


def is_line() -> bool:
    """Return True if ``auto`` selects a terminal's line here."""
    return isinstance(surface_of_this_process(), Terminal)


def is_notebook() -> bool:
    """Return True if ``auto`` selects a notebook's output here, which lists the tasks."""
    return isinstance(surface_of_this_process(), Notebook)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
