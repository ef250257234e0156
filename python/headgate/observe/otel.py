"""OpenTelemetry: the metrics of docs/metrics.md, and spans of runs, stages, tasks and streaming jobs, by providers of the user's.

It runs in the driver only: exporters do not survive a fork. A run never waits for it.

Decision: ADR 0041.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from headgate._closing import Closing
from headgate.observe._extras import require
from headgate.observe.metrics import METRICS, samples
from headgate.observe.runs import RUNS
from headgate.observe.state import STAGE_TIMES, by_worth, is_running, is_stream, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from headgate.observe.metrics import Metric, Samples
    from headgate.observe.state import Source, State

_LOG: Final = logging.getLogger("headgate.observe")
#: Spans of tasks that a run gets at most: of those that worked and waited longest.
MAX_TASKS: Final = 256
#: Seconds between two looks at the record.
_PERIOD: Final = 1.0
#: Seconds for which all instruments of a reader share a state.
_FRESH: Final = 0.5
#: Seconds that close() waits for the spans of the last runs.
_CLOSING: Final = 5.0


class Telemetry(Closing):
    """Hands metrics and spans to providers until it is closed. As a context manager it closes at the end.

    Args:
        source: returns the state; the record of this process if not given.
        meter_provider: gets the metrics; there are none if it is not given.
        tracer_provider: gets the spans of each run and streaming job that has ended; there are none if it is not given.
        period: seconds between two looks at the record.

    Attributes:
        dropped: runs and streaming jobs whose spans were not handed over: they had left the record before, or the provider
            raised.

    Raises:
        PackageNotFound: opentelemetry-sdk is not installed.
    """

    def __init__(
        self,
        source: Source = RUNS.state,
        *,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        period: float = _PERIOD,
    ) -> None:
        require("OpenTelemetry", "otel", "opentelemetry.sdk")
        self.dropped = 0
        self._source = source
        self._period = period
        self._lock = threading.Lock()
        self._latest: tuple[float, Samples] | None = None
        self._is_open = True
        self._has_warned = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if meter_provider is not None:
            self._observe(meter_provider)
        if tracer_provider is not None:
            self._spans = _Spans(tracer_provider.get_tracer("headgate"), source())
            self._thread = threading.Thread(target=self._run, name="headgate-otel", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def close(self) -> None:
        """Hand over the runs that have ended, for at most 5 s. The providers stay open."""
        self._is_open = False
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSING)
            atexit.unregister(self.close)

    def _observe(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("headgate")
        for metric in METRICS:
            if metric.name.startswith("headgate_page"):
                continue
            is_counter = metric.kind == "counter"
            make = meter.create_observable_counter if is_counter else meter.create_observable_gauge
            make(
                otel_name(metric.name),
                callbacks=[self._callback(metric)],
                description=metric.description,
            )

    def _callback(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation  # noqa: PLC0415 - an extra

        def observe(_: CallbackOptions) -> list[Observation]:
            return [
                Observation(value, dict(zip(metric.labels, map(str, labels), strict=True)))
                for labels, value in self._samples()[metric.name]
            ]

        return observe

    def _samples(self) -> Samples:
        if not self._is_open:  # an instrument cannot be taken back
            return {metric.name: [] for metric in METRICS}
        with self._lock:
            now = time.monotonic()
            if self._latest is None or now - self._latest[0] > _FRESH:
                self._latest = now, samples(self._source())
            return self._latest[1]

    def _run(self) -> None:
        while True:
            is_last = self._stop.wait(self._period)
            try:
                self.dropped += self._spans.hand_over(self._source())
            except Exception as error:  # noqa: BLE001 - the provider is the user's, and raises anything
                self.dropped += 1
                if not self._has_warned:
                    self._has_warned = True
                    _LOG.warning("spans of runs were dropped: %r", error)
            if is_last:
                return


class _Spans:
    """Spans of runs that have ended, each handed over once.

    Args:
        tracer: the user's.
        state: of now; what has ended in it has no spans.
    """

    def __init__(self, tracer: Tracer, state: State) -> None:
        self._tracer = tracer
        runs = _by_key(state)
        self._done = {key for key, run in runs.items() if not is_running(run)}
        self._recorded = set(runs)

    def hand_over(self, state: State) -> int:
        """Hand over what has ended since; return how many left the record before."""
        runs = _by_key(state)
        lost = len(self._recorded - self._done - runs.keys())
        self._recorded = set(runs)
        self._done &= self._recorded
        for key, run in reversed(runs.items()):
            if key not in self._done and not is_running(run):
                self._done.add(key)  # first: one that raises is not tried for ever
                _trace(self._tracer, run)
        return lost


def otel_name(name: str) -> str:
    """Return the name that a metric has in OpenTelemetry: ``headgate.num_records_out`` for the counter of Prometheus."""
    return name.replace("headgate_", "headgate.", 1).removesuffix("_total")


def _by_key(state: State) -> dict[tuple[str, float], State]:
    """Return the runs by their keys. A streaming job that begins again under its name is another run."""
    return {(key_of(run), run["started_at"] * is_stream(run)): run for run in state["runs"]}


def _trace(tracer: Tracer, run: State) -> None:
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    begin, length = run["started_at"], 1000 * run["seconds"]
    tasks = by_worth(run["tasks"])
    if is_stream(run):
        kind, name = "headgate stream", {"headgate.stream": run["name"]}
        attributes = {"headgate.attempt": run["number"], "headgate.restarts": run["restarts"]}
    else:
        kind, name = "headgate run", {"headgate.exchange": run["name"]}
        name["headgate.run"] = run["number"]
        attributes = {"headgate.failed_attempts": run["failed_attempts"]}
    attributes |= {f"headgate.{part}": run[part] for part in ("mode", "state", "rows", "bytes")}
    attributes["headgate.tasks_left_out"] = max(0, len(tasks) - MAX_TASKS)
    if run["verdict"]:
        attributes["headgate.verdict"] = run["verdict"]["text"]

    def span(
        title: str, start: float, more: Mapping[str, Any], parent: Context | None
    ) -> tuple[Span, Context]:
        opened = tracer.start_span(
            title, parent, attributes={**name, **more}, start_time=_ns(begin, start)
        )
        return opened, trace.set_span_in_context(opened)

    whole, inside = span(kind, 0.0, attributes, None)
    for failure in run["failures"]:
        parts = ("role", "task", "attempt", "host") if failure["task"] is not None else ("attempt",)
        about = {f"headgate.{part}": failure[part] for part in parts}
        about |= {"headgate.error": failure["error"], "headgate.cause": failure["summary"]}
        whole.add_event("attempt failed", about, _ns(begin, length))
    if run["error"]:
        status = f"[{run['error']}] {run['error_summary']}"
        whole.set_status(trace.StatusCode.ERROR, status)
    for stage in run["stages"]:
        role = stage["name"]
        if not is_stream(run):
            role = "reduce" if role in {"reduce", "sink"} else "map"
        mine = [task for task in tasks if task["role"] == role]
        first = min((t["started_ms"] for t in mine if t["started_ms"] is not None), default=0.0)
        last = max((t["ended_ms"] for t in mine if t["ended_ms"] is not None), default=length)
        stage_span, within = span(f"headgate stage {stage['name']}", first, _times(stage), inside)
        if (
            stage["name"] == role
        ):  # a task of an exchange works for several stages, and has one span
            for task in [task for task in tasks[:MAX_TASKS] if task["role"] == role]:
                start = first if task["started_ms"] is None else task["started_ms"]
                end = last if task["ended_ms"] is None else task["ended_ms"]
                task_span, _ = span(f"headgate task {role}", start, _of_task(task), within)
                task_span.end(_ns(begin, max(start, end)))
        stage_span.end(_ns(begin, max(first, last)))
    whole.end(_ns(begin, length))


def _times(stage: State) -> dict[str, Any]:
    return {f"headgate.{time}": stage[time] for time in STAGE_TIMES}


def _of_task(task: State) -> dict[str, Any]:
    names = ("task", "state", "host", "attempt", "rows", "bytes", "input_ms", "function_ms")
    more = ("emit_ms", "blocked_ms", "peak_bytes", "peak_resident_bytes")
    attributes = {f"headgate.{name}": task[name] for name in (*names, *more)}
    return {name: value for name, value in attributes.items() if value is not None}


def _ns(begin: float, ms: float) -> int:
    """Return ns since 1970 for a time in a run."""
    return int(begin * 1e9) + int(ms * 1e6)
