"""Progress on the driver. Its own thread draws it, so that a slow terminal blocks no exchange."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.spark.progress.surfaces import Log, surface_of_this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.observe.record import Run
    from headgate.observe.runs import RunKey
    from headgate.spark.progress.surfaces import Surface

_LOG: Final = logging.getLogger("headgate.spark")
#: Seconds between two drawings.
PERIOD: Final = 0.5
#: Seconds a run must last before it is drawn.
_FIRST: Final = 1.0
#: Seconds without an update from a feeder after which its runs are not drawn any more.
_QUIET: Final = 2.0


@dataclass(frozen=True, slots=True)
class DrawnRun:
    """A run whose progress can be drawn.

    Attributes:
        key: the run, among all of this process.
        started: when it began, in seconds of the monotonic clock.
        progress: value of its option ``progress``: ``"auto"``, ``"log"`` or ``"off"``.
        look: returns the run at a time of the monotonic clock; any thread may call it.
    """

    key: RunKey
    started: float
    progress: str
    look: Callable[[float], Run]


class Screen:
    """Draws each run on the surface that its exchange chose.

    A surface that raises is not used again. Its failure is logged once.
    """

    def __init__(self) -> None:
        self._surfaces: dict[str, Surface] = {}
        self._failed: set[str] = set()
        #: Value of the option -> the runs that were drawn last.
        self._runs: dict[str, dict[RunKey, DrawnRun]] = {"auto": {}, "log": {}}

    def wants(self, run: DrawnRun, now: float) -> bool:
        """Return True if the run is old enough to be drawn and its exchange does not say "off"."""
        return now - run.started >= _FIRST and run.progress in self._runs

    def draw(self, runs: Sequence[DrawnRun], now: float) -> None:
        """Draw these runs, and once more the runs that were drawn before and have ended since."""
        for mode, before in list(self._runs.items()):
            live = {r.key: r for r in runs if r.progress == mode and self.wants(r, now)}
            if (not live and not before) or mode in self._failed:
                continue
            self._runs[mode] = live
            try:
                self._draw(mode, live, before, now)
            except Exception as error:  # noqa: BLE001 - a terminal or notebook raises what it likes
                self._failed.add(mode)
                surface = self._surfaces.get(mode)
                name = "progress" if surface is None else surface.name
                _LOG.warning("%s is off from now on, it failed: %r", name, error)

    def _draw(
        self, mode: str, live: dict[RunKey, DrawnRun], before: dict[RunKey, DrawnRun], now: float
    ) -> None:
        if mode not in self._surfaces:
            self._surfaces[mode] = Log() if mode == "log" else surface_of_this_process()
        runs = {key: run.look(now) for key, run in live.items()}
        ended = {key: run.look(now) for key, run in before.items() if key not in live}
        self._surfaces[mode].draw(runs, ended, now)
        if not live:
            del self._surfaces[mode]  # the next run may have another stderr


class Progress:
    """Shows the progress of runs.

    Its feeders only hand the runs over. Another thread draws them and ends when no run is left to draw.
    """

    def __init__(self) -> None:
        self._screen = Screen()
        self._changed = threading.Condition()
        #: Feeder -> its runs, and the time of its last update.
        self._fed: dict[object, tuple[list[DrawnRun], float]] = {}
        self._is_running = False
        self._is_off = False

    def show(self, feeder: object, runs: Sequence[DrawnRun], now: float) -> None:
        """Hand over the active runs of a feeder. Never block and never raise.

        Args:
            feeder: repeats the call at least each second, until it has no runs.
            runs: all of its runs.
            now: seconds on the clock of ``started``.
        """
        wanted = [run for run in runs if self._screen.wants(run, now)]
        if not wanted and feeder not in self._fed:
            return
        with self._changed:
            if not wanted:
                self._fed.pop(feeder, None)
                self._changed.notify_all()
                return
            self._fed[feeder] = wanted, now
            if self._is_running or self._is_off:
                return
            self._is_running = True
        try:
            name = "headgate-progress"
            threading.Thread(target=self._show, name=name, daemon=True).start()
        except RuntimeError as error:
            self._is_running, self._is_off = False, True
            _LOG.warning("progress is off from now on, it failed: %r", error)

    def _show(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                for feeder, (_, updated_at) in list(self._fed.items()):
                    if now - updated_at >= _QUIET:
                        del self._fed[feeder]
                runs = [run for fed, _ in self._fed.values() for run in fed]
            self._screen.draw(runs, now)
            with self._changed:
                if not runs:
                    self._is_running = False
                    return
                self._changed.wait_for(lambda: not self._fed, PERIOD)


#: Of this process: two would overwrite each other's line.
PROGRESS: Final = Progress()
