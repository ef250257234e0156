"""The record of a process: its newest runs, of exchanges and streaming jobs alike.

Everything that shows runs reads it. Whoever runs something tells it of the beginning, and hands it
a function that returns the run so far. It calls that function only when somebody looks, and never again
once the run has ended.

Decision: ADR 0040.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.observe.state import state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.observe.record import Run

    #: Returns a run so far.
    Look = Callable[[], Run]

#: Most runs of exchanges in the record, and most streaming jobs. The oldest are dropped, those that have ended first.
MOST_RUNS: Final = 32
#: Most slots of a run's history.
MOST_SLOTS: Final = 60
#: Minimum seconds of a slot.
SLOT: Final = 1.0

_LOG: Final = logging.getLogger("headgate.observe")

#: Mode, name, and number of the run of an exchange; 0 for a streaming job.
RunKey: TypeAlias = tuple[str, str, int]


class _Recorded:
    def __init__(self, look: Look, now: float) -> None:
        #: None once the run has ended.
        self.look: Look | None = look
        #: The run when somebody looked last.
        self.run: dict[str, Any] = {}
        self.slots: deque[dict[str, Any]] = deque(maxlen=MOST_SLOTS)
        self._since = now
        self._counts: tuple[int, int] = (0, 0)
        self._times: dict[str, tuple[int, int, int]] = {}

    def add(self, run: Run, now: float) -> None:
        """Add a slot, if the newest one is old enough or the run has ended."""
        length = now - self._since
        if length < (0.001 if run.is_over else SLOT):
            return
        counts = run.rows, run.bytes
        times = {s.name: (s.idle_ms, s.busy_ms, s.back_pressured_ms) for s in run.stages}
        # Numbers fall if a task that has reported runs again.
        rows, size = (max(0, a - b) for a, b in zip(counts, self._counts, strict=True))
        spent = {}
        for name, new in times.items():
            old = self._times.get(name, (0, 0, 0))
            idle, busy, blocked = (max(0, a - b) for a, b in zip(new, old, strict=True))
            spent[name] = {"idle": idle, "busy": busy, "back_pressured": blocked}
        slot = {"at": round(now, 3), "seconds": round(length, 3), "rows": rows, "bytes": size}
        self.slots.append({**slot, "stages": spent})
        self._since, self._counts, self._times = now, counts, times


class Runs:
    """The newest runs of a process. Any thread may call any method.

    Args:
        now: seconds since 1970.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        #: Held for no longer than it takes to copy a reference or a slot.
        self._lock = threading.Lock()
        self._runs: dict[RunKey, _Recorded] = {}
        #: Mode -> the newest run.
        self._newest: dict[str, tuple[RunKey, Look]] = {}

    def began(self, key: RunKey, look: Look) -> None:
        """Take in a run that has begun, and drop one of the same key.

        Args:
            key: the run, among all of this process.
            look: returns the run so far. It may block, as it is called only if somebody looks.
        """
        with self._lock:
            self._newest[key[0]] = key, look
            self._runs.pop(key, None)
            self._runs[key] = _Recorded(look, self._now())
            alike = [other for other in self._runs if other[0] == key[0]]
            if len(alike) > MOST_RUNS:
                over = (other for other in alike if self._runs[other].look is None)
                del self._runs[next(over, alike[0])]

    def newest(self, mode: str) -> Run | None:
        """Return the newest run of a mode, with its history; None before the first one."""
        with self._lock:
            if mode not in self._newest:
                return None
            key, look = self._newest[mode]
        run = look()
        with self._lock:
            recorded = self._runs.get(key)
            return replace(run, history=tuple(recorded.slots) if recorded is not None else ())

    def saw(self, key: RunKey, run: Run) -> Run:
        """Add a run, at which somebody else has just looked, to its history; return it.

        Args:
            key: the run. One that is not in the record is ignored.
            run: the run so far.
        """
        with self._lock:
            recorded = self._runs.get(key)
            if recorded is not None and recorded.look is not None:
                recorded.add(run, self._now())
        return run

    def look(self, key: RunKey) -> dict[str, Any] | None:
        """Return a run so far, as ``Run.plain()`` does; None if it is not in the record.

        Once the run has ended, what it was then is kept, and everything else of it is dropped.
        """
        with self._lock:
            recorded = self._runs.get(key)
            look = None if recorded is None else recorded.look
        if recorded is None:
            return None
        if look is not None:
            try:
                run = look()
            except Exception as error:  # noqa: BLE001 - Spark may be stopping; what was seen last stays
                mode, name, number = key
                what = f"run {number} of exchange" if mode == "kept" else f"{mode} run"
                about = {"exchange": name, "run": number} if mode == "kept" else {"job": name}
                _LOG.warning("%s %s cannot be looked at: %s", what, name, error, extra=about)
            else:
                plain = run.plain()
                with self._lock:
                    if recorded.look is not None:
                        recorded.add(run, self._now())
                        recorded.run = plain
                        if run.is_over:
                            recorded.look = None
                            if self._newest[key[0]][0] == key:
                                self._newest[key[0]] = key, lambda: run
        with self._lock:
            return {**recorded.run, "history": list(recorded.slots)} if recorded.run else None

    def state(self) -> dict[str, Any]:
        """Return everything, as values that JSON has: the newest run first. Asks Spark.

        ``history`` of a run has up to 60 slots, the oldest first. A slot says what was added in the
        ``seconds`` before ``at``: rows and bytes sent, and ms of its tasks for each stage.
        """
        with self._lock:
            keys = list(reversed(self._runs))
        runs = [run for key in keys if (run := self.look(key)) is not None]
        return state_of(runs, self._now())


#: Of this process.
RUNS: Final = Runs()
