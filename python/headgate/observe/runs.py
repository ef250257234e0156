"""The record: the newest runs of this process and its newest streaming jobs, as plain values.

It is read by everything that shows runs. Whoever runs something tells it of the beginning, and hands it
a function that returns the run so far. It calls that function only when somebody looks, and never again
once the run has ended.

Decision: ADR 0040.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

#: Version of what :meth:`Runs.state` returns. It grows with each change of its form.
SCHEMA_VERSION: Final = 1
#: Most runs in the record, and most streaming jobs. The oldest are dropped.
MOST_RUNS: Final = 32
#: Most slots of a run's history.
MOST_SLOTS: Final = 60
#: Minimum seconds of a slot.
SLOT: Final = 1.0

#: States of a streaming job that does nothing any more.
STREAM_OVER: Final = frozenset({"finished", "stopped", "cancelled", "failed"})

_LOG: Final = logging.getLogger("headgate.observe")

#: Id of the exchange, and number of the run.
RunKey: TypeAlias = tuple[str, int]
#: Returns a run, or a streaming job, so far.
Look: TypeAlias = Callable[[], dict[str, Any]]


class _Stream:
    def __init__(self, look: Look) -> None:
        #: None once the job has ended.
        self.look: Look | None = look
        self.seen: dict[str, Any] = {}


class _Run:
    def __init__(self, look: Look, now: float) -> None:
        #: None once the run has ended.
        self.look: Look | None = look
        self.seen: dict[str, Any] = {}
        self.slots: deque[dict[str, Any]] = deque(maxlen=MOST_SLOTS)
        self._since = now
        self._counts: tuple[int, int] = (0, 0)
        self._times: dict[str, tuple[int, int, int]] = {}

    def add(self, stats: Mapping[str, Any], now: float) -> None:
        """Add a slot, if the newest one is old enough or the run has ended."""
        length = now - self._since
        if length < (SLOT if stats["state"] == "running" else 0.001):
            return
        counts = stats["rows"], stats["bytes"]
        times = {
            s["name"]: (s["idle_ms"], s["busy_ms"], s["back_pressured_ms"]) for s in stats["stages"]
        }
        # Numbers fall if a task that has reported runs again.
        rows, size = (max(0, a - b) for a, b in zip(counts, self._counts, strict=True))
        spent = {}
        for name, new in times.items():
            old = self._times.get(name, (0, 0, 0))
            idle, busy, blocked = (max(0, a - b) for a, b in zip(new, old, strict=True))
            spent[name] = {"idle": idle, "busy": busy, "back_pressured": blocked}
        self.slots.append(
            {
                "at": round(now, 3),
                "seconds": round(length, 3),
                "rows": rows,
                "bytes": size,
                "stages": spent,
            }
        )
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
        self._runs: dict[RunKey, _Run] = {}
        self._streams: dict[str, _Stream] = {}

    def began(self, key: RunKey, look: Look) -> None:
        """Take in a run that has begun. A run that is known stays as it is.

        Args:
            key: the run, among all of this process.
            look: returns the run so far in the form of ``ExchangeStats.to_json()``. It may block, as it
                is called only by :meth:`look` and :meth:`state`.
        """
        with self._lock:
            if key not in self._runs:
                self._runs[key] = _Run(look, self._now())
                while len(self._runs) > MOST_RUNS:
                    del self._runs[next(iter(self._runs))]

    def saw(self, key: RunKey, stats: Mapping[str, Any]) -> None:
        """Add to the history of a run, of which somebody else has just made the statistics.

        Args:
            key: the run. One that is not in the record is ignored.
            stats: ``state``, ``rows``, ``bytes`` and ``stages`` of the run so far.
        """
        with self._lock:
            run = self._runs.get(key)
            if run is not None and run.look is not None:
                run.add(stats, self._now())

    def look(self, key: RunKey) -> dict[str, Any] | None:
        """Return a run so far, with its history; None if it is not in the record.

        Once the run has ended, what it was then is kept, and everything else of it is dropped.
        """
        with self._lock:
            run = self._runs.get(key)
            look = None if run is None else run.look
        if run is None:
            return None
        if look is not None:
            try:
                seen = look()
            except Exception as error:  # noqa: BLE001 - Spark may be stopping; what was seen last stays
                words = "run %d of exchange %s cannot be looked at: %s"
                about = {"exchange": key[0], "run": key[1]}
                _LOG.warning(words, key[1], key[0], error, extra=about)
                seen = run.seen
            with self._lock:
                if seen and run.look is not None:
                    run.add(seen, self._now())
                    run.seen = seen
                    if _is_over(seen):
                        run.look = None
        with self._lock:
            return {**run.seen, "history": list(run.slots)} if run.seen else None

    def stream(self, name: str, look: Look) -> Callable[[dict[str, Any]], None]:
        """Take in a streaming job that begins; return a function that takes its last status.

        Args:
            name: of the job; one of the same name before it is dropped.
            look: returns its status so far.
        """
        job = _Stream(look)
        with self._lock:
            self._streams.pop(name, None)
            self._streams[name] = job
            while len(self._streams) > MOST_RUNS:
                over = (name for name, one in self._streams.items() if one.look is None)
                del self._streams[next(over, next(iter(self._streams)))]

        def ended(seen: dict[str, Any]) -> None:
            with self._lock:
                job.look, job.seen = None, seen

        return ended

    def state(self) -> dict[str, Any]:
        """Return everything, as values that JSON has: the newest run first. Asks Spark.

        ``history`` of a run has up to 60 slots, the oldest first. A slot says what was added in the
        ``seconds`` before ``at``: rows and bytes sent, and ms of its tasks for each stage.
        """
        with self._lock:
            keys, streams = list(reversed(self._runs)), list(self._streams.items())
        runs = [run for key in keys if (run := self.look(key)) is not None]
        found = [status for name, job in streams if (status := self._status(name, job))]
        return self._state(runs, found)

    def _status(self, name: str, job: _Stream) -> dict[str, Any]:
        with self._lock:
            look = job.look
        if look is not None:
            try:
                seen = look()
            except Exception as error:  # noqa: BLE001 - the job may be ending; what was seen last stays
                _LOG.warning("streaming job %s cannot be looked at: %s", name, error)
            else:
                with self._lock:
                    if job.look is not None:
                        job.seen = seen
        return job.seen

    def state_of(self, seen: Mapping[str, Any]) -> dict[str, Any]:
        """Return a state as :meth:`state` does, with one run only.

        Args:
            seen: the run in the form of ``ExchangeStats.to_json()``. If the record knows the run, it adds the
                history.
        """
        with self._lock:
            known = self._runs.get((seen["exchange_id"], seen["run"]))
            slots = [] if known is None else list(known.slots)
        return self._state([{**seen, "history": slots}], [])

    def _state(self, runs: list[dict[str, Any]], streams: list[dict[str, Any]]) -> dict[str, Any]:
        from headgate import __version__  # noqa: PLC0415 - loads the native module

        return {
            "schema_version": SCHEMA_VERSION,
            "headgate": __version__,
            "now": round(self._now(), 3),
            "runs": runs,
            "streams": streams,
        }


def _is_over(seen: Mapping[str, Any]) -> bool:
    """Return True if nothing can come any more.

    An action on an RDD looks done between its stages, also if its consumers have not begun.
    """
    lacks = seen.get("consumers", 0) < (seen.get("consumers_total") or 0)
    return seen["state"] != "running" and not (seen["state"] == "done" and lacks)


#: Of this process.
RUNS: Final = Runs()
