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
from headgate.observe.runs import RUNS, STREAM_OVER
from headgate.observe.view import key_of, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from headgate.observe.metrics import Named, Samples
    from headgate.observe.view import Source, State

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
    """What is handed to the providers until it is closed. As a context manager it closes at the end.

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
        self._found: tuple[float, Samples] | None = None
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
                otel_name(metric.name), callbacks=[self._callback(metric)], description=metric.words
            )

    def _callback(self, metric: Named) -> Callable[[CallbackOptions], Iterable[Observation]]:
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
            if self._found is None or now - self._found[0] > _FRESH:
                self._found = now, samples(self._source())
            return self._found[1]

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
    """Spans of runs and streaming jobs that have ended, each handed over once.

    Args:
        tracer: the user's.
        state: of now; what has ended in it has no spans.
    """

    def __init__(self, tracer: Tracer, state: State) -> None:
        self._tracer = tracer
        self._done = {key_of(run) for run in _ended(state)} | set(_ended_streams(state))
        self._known = _keys(state)

    def hand_over(self, state: State) -> int:
        """Hand over what has ended since; return how many left the record before."""
        present = _keys(state)
        lost = len(self._known - self._done - present)
        self._known = present
        self._done &= present
        for run in _ended(state):
            if key_of(run) not in self._done:
                self._done.add(key_of(run))  # first: one that raises is not tried for ever
                _trace(self._tracer, run)
        for key, stream in _ended_streams(state).items():
            if key not in self._done:
                self._done.add(key)
                _trace_stream(self._tracer, stream, state["now"])
        return lost


def otel_name(name: str) -> str:
    """Return the name that a metric has in OpenTelemetry: ``headgate.num_records_out`` for the counter of Prometheus."""
    return name.replace("headgate_", "headgate.", 1).removesuffix("_total")


def _ended(state: State) -> list[State]:
    return [run for run in reversed(state["runs"]) if run["state"] != "running"]


def _ended_streams(state: State) -> dict[str, State]:
    return {_key_of(one): one for one in state["streams"] if one["state"] in STREAM_OVER}


def _key_of(stream: State) -> str:
    return f"stream {stream['name']} of {stream['started_at']}"


def _keys(state: State) -> set[str]:
    return {key_of(run) for run in state["runs"]} | {_key_of(one) for one in state["streams"]}


def _trace(tracer: Tracer, run: State) -> None:
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    begin, length = run["started_at"], 1000 * run["seconds"]
    tasks = sorted(run.get("tasks") or [], key=load, reverse=True)
    attributes = {
        "headgate.mode": run["mode"],
        "headgate.state": run["state"],
        "headgate.rows": run["rows"],
        "headgate.bytes": run["bytes"],
        "headgate.failed_attempts": run.get("failed_attempts", 0),
        "headgate.tasks_left_out": max(0, len(tasks) - MAX_TASKS),
    }
    if verdict := run.get("verdict"):
        attributes["headgate.verdict"] = verdict["text"]
    name = {"headgate.exchange": run["exchange_id"], "headgate.run": run["run"]}

    def span(
        title: str, start: float, more: Mapping[str, Any], parent: Context | None
    ) -> tuple[Span, Context]:
        made = tracer.start_span(
            title, parent, attributes={**name, **more}, start_time=_ns(begin, start)
        )
        return made, trace.set_span_in_context(made)

    whole, inside = span("headgate run", 0.0, attributes, None)
    for one in run.get("failures") or []:
        about = {f"headgate.{part}": one[part] for part in ("role", "task", "attempt", "host")}
        cause = {**about, "headgate.error": one["error"], "headgate.cause": one["summary"]}
        whole.add_event("attempt failed", cause, _ns(begin, length))
    if run["error"]:
        said = f"[{run['error']}] {run.get('error_summary', '')}"
        whole.set_status(trace.StatusCode.ERROR, said)
    for stage in run.get("stages") or []:
        role = "reduce" if stage["name"] in {"reduce", "sink"} else "map"
        mine = [task for task in tasks if task["role"] == role]
        first = min((t["started_ms"] for t in mine if t.get("started_ms") is not None), default=0.0)
        last = max((t["ended_ms"] for t in mine if t.get("ended_ms") is not None), default=length)
        made, within = span(f"headgate stage {stage['name']}", first, _times(stage), inside)
        if stage["name"] == role:  # a task works for several stages, and has one span
            for task in [task for task in tasks[:MAX_TASKS] if task["role"] == role]:
                start = first if task.get("started_ms") is None else task["started_ms"]
                end = last if task.get("ended_ms") is None else task["ended_ms"]
                one, _ = span(f"headgate task {role}", start, _of_task(task), within)
                one.end(_ns(begin, max(start, end)))
        made.end(_ns(begin, max(first, last)))
    whole.end(_ns(begin, length))


def _trace_stream(tracer: Tracer, stream: State, now: float) -> None:
    """Hand over a streaming job that ended before ``now``, and its tasks."""
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    begin, end = _ns(stream["started_at"], 0), _ns(now, 0)
    name = {"headgate.stream": stream["name"]}
    attributes = {
        **name,
        "headgate.state": stream["state"],
        "headgate.attempt": stream["attempt"],
        "headgate.restarts": stream["restarts"],
        "headgate.tasks_left_out": max(0, len(stream["tasks"]) - MAX_TASKS),
    }
    whole = tracer.start_span("headgate stream", None, attributes=attributes, start_time=begin)
    for ended in stream.get("ended_attempts") or []:
        cause = {
            "headgate.attempt": ended["attempt"],
            "headgate.error": ended["code"],
            "headgate.cause": ended["summary"],
        }
        whole.add_event("attempt ended", cause, end)
    if stream["failure"]:
        whole.set_status(trace.StatusCode.ERROR, stream["failure"])
    inside = trace.set_span_in_context(whole)
    tasks = sorted(stream["tasks"], key=lambda task: task["busy"], reverse=True)
    for task in tasks[:MAX_TASKS]:
        about = {
            "headgate.operators": task["name"],
            "headgate.task": task["index"],
            "headgate.rows": task["rows"],
            "headgate.busy_ms": task["busy"],
            "headgate.blocked_ms": task["blocked"],
        }
        one = tracer.start_span(
            "headgate stream task", inside, attributes={**name, **about}, start_time=begin
        )
        one.end(end)
    whole.end(end)


def _times(stage: State) -> dict[str, Any]:
    times = ("idle_ms", "busy_ms", "back_pressured_ms")
    return {f"headgate.{time}": stage.get(time, 0) for time in times}


def _of_task(task: State) -> dict[str, Any]:
    names = ("task", "state", "host", "attempt", "rows", "bytes", "input_ms", "function_ms")
    more = ("emit_ms", "blocked_ms", "peak_bytes")
    found = {f"headgate.{name}": task.get(name) for name in (*names, *more)}
    return {name: value for name, value in found.items() if value is not None}


def _ns(begin: float, ms: float) -> int:
    """Return ns since 1970 for a time in a run."""
    return int(begin * 1e9) + int(ms * 1e6)
