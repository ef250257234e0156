"""Surfaces for progress: a terminal line, a notebook output, the log. One thread uses them."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate._text import plain
from headgate.spark.progress.render import html, line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from headgate.spark.progress.stats import ExchangeStats

#: Id of the exchange, in hex, and number of the run.
RunKey = tuple[str, int]

_LOG: Final = logging.getLogger("headgate.spark")
#: Seconds between two lines in the log about a run.
LOG_PERIOD: Final = 10.0
#: Maximum width of a terminal line and of a log line, in columns.
_MAX_WIDTH: Final = 140
_LOG_WIDTH: Final = 400
_DEFAULT_WIDTH: Final = 100


class Shown:
    """The drawn state of a run: its latest snapshot.

    Args:
        stats: the snapshot.
    """

    def __init__(self, stats: ExchangeStats) -> None:
        self.stats = stats

    @property
    def key(self) -> RunKey:
        """The run, among all of this process."""
        return self.stats.exchange_id, self.stats.run

    def line(self, width: int) -> str:
        """Return the run's line of at most ``width`` characters."""
        return line(self.stats, width)


class Surface(Protocol):
    """A place where runs are drawn."""

    name: str

    def draw(self, live: Iterable[Shown], ended: Iterable[Shown], now: float) -> None:
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

    def draw(self, live: Iterable[Shown], ended: Iterable[Shown], now: float) -> None:  # noqa: ARG002 - see Surface
        """Overwrite the line with the state of the newest run."""
        shown = list(live)
        if not shown:
            self._write("")
            return
        newest = min(shown, key=lambda run: (run.stats.seconds, -run.stats.run))
        more = f"  (+{len(shown) - 1} more)" if len(shown) > 1 else ""
        width = max(10, min(_MAX_WIDTH, self._columns() - 1))
        self._write(newest.line(max(10, width - len(more))) + more)

    def _write(self, words: str) -> None:
        if not words and not self._written:
            return
        words = plain(words)
        blank = " " * (self._written - len(words))
        self._stream.write(f"\r{words}{blank}" + ("" if words else "\r"))
        self._stream.flush()
        self._written = len(words)

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

    def draw(self, live: Iterable[Shown], ended: Iterable[Shown], now: float) -> None:  # noqa: ARG002 - see Surface
        """Update the output of each run."""
        for shown in live:
            self._update(shown)
        for shown in ended:
            self._update(shown)
            del self._handles[shown.key]

    def _update(self, shown: Shown) -> None:
        page = self._display.HTML(html(shown.stats))
        handle = self._handles.get(shown.key)
        if handle is None:
            self._handles[shown.key] = self._display.display(page, display_id=True)
        else:
            handle.update(page)


class Log:
    """A line in the log ``headgate.spark`` every ten seconds of a run, at INFO."""

    name = "progress in the log"

    def __init__(self) -> None:
        self._logged: dict[RunKey, float] = {}

    def draw(self, live: Iterable[Shown], ended: Iterable[Shown], now: float) -> None:
        """Write the lines that are due."""
        for shown in live:
            begin = now - shown.stats.seconds
            if now - self._logged.get(shown.key, begin) >= LOG_PERIOD:
                self._logged[shown.key] = now
                _LOG.info("%s", shown.line(_LOG_WIDTH), extra=_about(shown.stats))
        for shown in ended:
            self._logged.pop(shown.key, None)


def _about(stats: ExchangeStats) -> dict[str, Any]:
    return {"exchange": stats.exchange_id, "run": stats.run}


def of_this_process() -> Surface:
    """Return the surface that ``auto`` selects here: notebook, terminal, or log."""
    # A notebook's kernel has loaded IPython already, so it is never imported only to ask.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is not None:
        return Notebook(importlib.import_module("IPython.display"))
    return Terminal(sys.stderr) if _is_terminal(sys.stderr) else Log()


def is_line() -> bool:
    """Return True if ``auto`` selects a terminal's line here."""
    return isinstance(of_this_process(), Terminal)


def is_notebook() -> bool:
    """Return True if ``auto`` selects a notebook's output here, which lists the tasks."""
    return isinstance(of_this_process(), Notebook)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
