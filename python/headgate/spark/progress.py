"""Progress on the driver: one line on a terminal, a log line each ten seconds elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final, Protocol

from headgate.spark.stats import snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.spark.run import Run

_LOG: Final = logging.getLogger("headgate.spark")
_LINE: Final = 0.5
_LOG_LINE: Final = 10.0
_WIDTH: Final = 100


class HasProgress(Protocol):
    """A plan, as far as progress needs it."""

    @property
    def progress(self) -> str:
        """The option's value."""


class Progress:
    """Shows how far the runs of the exchanges that want it have come.

    Args:
        plans: exchange id -> plan, whose ``progress`` is ``"auto"``, ``"log"`` or ``"off"``.
    """

    def __init__(self, plans: Mapping[bytes, HasProgress]) -> None:
        self._plans = plans
        self._shown = 0.0
        self._logged = 0.0
        self._line_is_there = False

    def show(self, runs: list[Run], now: float) -> None:
        """Show the runs that go on; clear the line when there is none."""
        wanted = [run for run in runs if self._mode(run) != "off" and now - run.started > 1.0]
        lines = [run for run in wanted if self._mode(run) == "auto" and sys.stderr.isatty()]
        if lines and now - self._shown >= _LINE:
            self._shown = now
            text = " | ".join(describe(run, now) for run in lines)[:_WIDTH]
            sys.stderr.write("\r" + text.ljust(_WIDTH))
            sys.stderr.flush()
            self._line_is_there = True
        elif not lines and self._line_is_there:
            sys.stderr.write("\r" + " " * _WIDTH + "\r")
            sys.stderr.flush()
            self._line_is_there = False
        logs = [run for run in wanted if run not in lines and now - run.started >= _LOG_LINE]
        if logs and now - self._logged >= _LOG_LINE:
            self._logged = now
            for run in logs:
                _LOG.info("%s", describe(run, now))

    def _mode(self, run: Run) -> str:
        plan = self._plans.get(run.exchange_id)
        return "off" if plan is None else plan.progress


def describe(run: Run, now: float) -> str:
    """Return one line about a run."""
    stats = snapshot(run, now)
    running = sum(p.is_present for p in run.producers.values())
    rate = stats.bytes / 1e6 / stats.seconds if stats.seconds > 0 else 0.0
    return (
        f"headgate {stats.exchange_id[:4]}/{stats.run} {run.state.name.lower()}"
        f"  producers {stats.producers} done, {running} running"
        f"  consumers {stats.consumers}  {stats.rows:,} rows"
        f"  {stats.bytes / 1e6:,.0f} MB  {rate:,.0f} MB/s"
    )
