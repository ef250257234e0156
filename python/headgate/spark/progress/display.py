"""Progress on the driver. Its own thread draws it, so that a slow terminal blocks no exchange."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from headgate.spark.progress.stats import snapshot
from headgate.spark.progress.surfaces import Log, Shown, of_this_process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.spark.driver.runs.run import Run
    from headgate.spark.progress.surfaces import Surface

    #: Run number -> the run and its drawn state.
    _Known = dict[int, tuple[Run, Shown]]

_LOG: Final = logging.getLogger("headgate.spark")
#: Seconds between two drawings.
PERIOD: Final = 0.5
#: Seconds a run must last before it is drawn.
_FIRST: Final = 1.0
#: Seconds without an update from the coordinator after which the thread ends.
_QUIET: Final = 2.0


class HasProgress(Protocol):
    """The part of a plan that progress uses."""

    @property
    def progress(self) -> str:
        """Value of the option ``progress``."""


class Screen:
    """Draws each run on the surface that its exchange chose.

    A surface that raises is not used again. Its failure is logged once.

    Args:
        plans: exchange id -> plan, whose ``progress`` is ``"auto"``, ``"log"`` or ``"off"``.
    """

    def __init__(self, plans: Mapping[bytes, HasProgress]) -> None:
        self._plans = plans
        self._surfaces: dict[str, Surface] = {}
        self._failed: set[str] = set()
        self._runs: dict[str, _Known] = {"auto": {}, "log": {}}

    def wants(self, run: Run, now: float) -> bool:
        """Return True if the run is old enough to be drawn and its exchange does not say "off"."""
        return now - run.started >= _FIRST and self._mode(run) in self._runs

    def draw(self, runs: list[Run], now: float) -> None:
        """Draw these runs, and once more the runs that were drawn before and have ended since."""
        for mode, known in self._runs.items():
            live = {r.number: r for r in runs if self._mode(r) == mode and self.wants(r, now)}
            if (not live and not known) or mode in self._failed:
                continue
            try:
                self._draw(mode, live, known, now)
            except Exception as error:  # noqa: BLE001 - a terminal or notebook raises what it likes
                self._failed.add(mode)
                surface = self._surfaces.get(mode)
                name = "progress" if surface is None else surface.name
                _LOG.warning("%s is off from now on, it failed: %r", name, error)

    def _draw(self, mode: str, live: dict[int, Run], known: _Known, now: float) -> None:
        if mode not in self._surfaces:
            self._surfaces[mode] = Log() if mode == "log" else of_this_process()
        for number, run in live.items():
            stats = snapshot(run, now)
            if number in known:
                known[number][1].update(stats, now)
            else:
                known[number] = run, Shown(stats, now)
        ended = [known.pop(number) for number in set(known) - set(live)]
        for run, shown in ended:
            shown.update(snapshot(run, now), now)
        self._surfaces[mode].draw([s for _, s in known.values()], [s for _, s in ended], now)

    def _mode(self, run: Run) -> str:
        plan = self._plans.get(run.exchange_id)
        return "off" if plan is None else plan.progress


class Progress:
    """Shows the progress of runs.

    The coordinator's thread only hands the runs over. Another thread draws them and ends when no
    run is left to draw.

    Args:
        plans: exchange id -> plan, whose ``progress`` is ``"auto"``, ``"log"`` or ``"off"``.
    """

    def __init__(self, plans: Mapping[bytes, HasProgress]) -> None:
        self._screen = Screen(plans)
        self._changed = threading.Condition()
        self._runs: list[Run] = []
        self._updated_at = 0.0
        self._is_running = False
        self._is_off = False

    def show(self, runs: list[Run], now: float) -> None:
        """Hand over the runs that are active. Never block and never raise."""
        wanted = [run for run in runs if self._screen.wants(run, now)]
        if not wanted and not self._runs:
            return
        with self._changed:
            self._runs, self._updated_at = wanted, now
            if not wanted:
                self._changed.notify_all()
            if not wanted or self._is_running or self._is_off:
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
                runs = self._runs if now - self._updated_at < _QUIET else []
            self._screen.draw(runs, now)
            with self._changed:
                if not runs:
                    self._is_running = False
                    return
                self._changed.wait_for(lambda: not self._runs, PERIOD)
