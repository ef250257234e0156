"""OpenTelemetry: the metrics and spans that the providers of a user get, and one that fails."""

import logging
import threading

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.kit.runs import EXCHANGE, HOSTILE, state, wide
from tests.kit.waiting import wait_until

from headgate.errors import PackageNotFound
from headgate.observe import _extras
from headgate.observe.metrics import METRICS
from headgate.observe.otel import MAX_TASKS, Telemetry, otel_name

#: No look in the background: close() looks once more.
NEVER = 1000.0


class Recorded:
    """A record whose run, the first of a state or another, a test ends."""

    def __init__(self, now=None, place=0):
        self.now = now or state()
        self.now["runs"] = [self.now["runs"][place]]
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return self.now

    def end(self, **about):
        """End the run."""
        self.now["runs"][0].update({"state": "done", **about})


@pytest.fixture
def spans():
    return InMemorySpanExporter()


@pytest.fixture
def tracers(spans):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


def by_name(spans, name):
    return [span for span in spans.get_finished_spans() if span.name == name]


def test_a_run_that_has_ended_is_a_span_of_stages_and_tasks(spans, tracers):
    record = Recorded()
    with Telemetry(record, tracer_provider=tracers, period=NEVER) as telemetry:
        record.end()
    (whole,) = by_name(spans, "headgate run")
    begin = 1_790_000_000 * 10**9
    assert (whole.start_time, whole.end_time) == (begin, begin + 42_500_000_000)
    assert whole.attributes["headgate.exchange"] == EXCHANGE
    assert whole.attributes["headgate.rows"] == 5_100_000
    assert whole.attributes["headgate.verdict"] == "reduce 3 is busy 97 %"
    assert whole.status.status_code is StatusCode.UNSET
    (event,) = whole.events
    assert event.name == "attempt failed"
    assert dict(event.attributes) == {
        "headgate.role": "map",
        "headgate.task": 3,
        "headgate.attempt": 9,
        "headgate.host": "node-b",
        "headgate.error": "HG-3001",
        "headgate.cause": "executor 2 was lost",
    }
    stages = {
        span.name.removeprefix("headgate stage "): span
        for span in spans.get_finished_spans()
        if span.name.startswith("headgate stage ")
    }
    assert set(stages) == {"source", "map", "exchange", "reduce", "sink"}
    assert {span.parent.span_id for span in stages.values()} == {whole.context.span_id}
    assert stages["map"].attributes["headgate.back_pressured_ms"] == 2500
    tasks = by_name(spans, "headgate task reduce")
    assert {task.attributes["headgate.task"] for task in tasks} == {0, 1, 2, 3}
    assert {task.parent.span_id for task in tasks} == {stages["reduce"].context.span_id}
    assert {task.start_time for task in tasks} == {begin + 100_000_000}
    assert telemetry.dropped == 0


def test_a_failed_run_is_an_error_with_its_text(spans, tracers):
    record = Recorded()
    with Telemetry(record, tracer_provider=tracers, period=NEVER):
        record.end()
        record.now["runs"][0].update(state="failed", error="HG-6001", error_summary=HOSTILE)
    (whole,) = by_name(spans, "headgate run")
    assert whole.status.status_code is StatusCode.ERROR
    assert whole.status.description == f"[HG-6001] {HOSTILE}"


def test_a_run_that_had_ended_before_and_one_that_goes_on_have_no_spans(spans, tracers):
    record = Recorded(state())
    record.now = state()
    with Telemetry(record, tracer_provider=tracers, period=NEVER) as telemetry:
        pass
    assert spans.get_finished_spans() == ()
    assert telemetry.dropped == 0


def test_tasks_of_a_wide_run_are_those_that_did_most(spans, tracers):
    record = Recorded(wide(2000))
    with Telemetry(record, tracer_provider=tracers, period=NEVER):
        record.end()
    tasks = [s for s in spans.get_finished_spans() if s.name.startswith("headgate task")]
    assert len(tasks) == MAX_TASKS
    (whole,) = by_name(spans, "headgate run")
    assert whole.attributes["headgate.tasks_left_out"] == 4000 - MAX_TASKS


def test_a_streaming_job_that_has_ended_is_a_span_of_the_same_form(spans, tracers):
    record = Recorded(place=2)
    cause = {"role": "", "task": None, "host": "", "attempt": 1, "error": "HG-3001"}
    with Telemetry(record, tracer_provider=tracers, period=NEVER):
        lost = {**cause, "summary": "worker 2 was lost"}
        record.end(state="failed", error="HG-6001", error_summary="no", failures=[lost])
    (whole,) = by_name(spans, "headgate stream")
    begin = 1_790_000_000 * 10**9 + 500_000_000
    assert (whole.start_time, whole.end_time) == (begin, begin + 42_000_000_000)
    assert whole.attributes["headgate.stream"] == "clicks"
    assert whole.attributes["headgate.restarts"] == 1
    status = whole.status
    assert (status.status_code, status.description) == (StatusCode.ERROR, "[HG-6001] no")
    (event,) = whole.events
    assert dict(event.attributes) == {
        "headgate.attempt": 1,
        "headgate.error": "HG-3001",
        "headgate.cause": "worker 2 was lost",
    }
    (stage,) = by_name(spans, "headgate stage source")
    (task,) = by_name(spans, "headgate task source")
    assert stage.parent.span_id == whole.context.span_id
    assert task.parent.span_id == stage.context.span_id
    assert task.attributes["headgate.function_ms"] == 25


def test_a_streaming_job_has_one_span_also_if_nobody_saw_it_run(spans, tracers):
    record = Recorded(place=2)
    (job,) = record.now["runs"]
    record.now["runs"] = [{**job, "started_at": 1_790_000_020.0, "state": "finished"}]
    with Telemetry(record, tracer_provider=tracers, period=NEVER):
        pass
    assert not by_name(spans, "headgate stream"), "it had ended before"
    with Telemetry(record, tracer_provider=tracers, period=0.01) as telemetry:
        looks = record.asked
        record.now["runs"] = [{**job, "state": "finished"}]
        wait_until(lambda: by_name(spans, "headgate stream"), "its span", 10)
        wait_until(lambda: record.asked > looks + 3, "more looks", 10)
        assert len(by_name(spans, "headgate stream")) == 1
        assert telemetry.dropped == 0, "the other one left the record, but had ended before"


@pytest.mark.parametrize("place", [0, 2])
def test_a_run_that_left_the_record_is_counted(tracers, place):
    record = Recorded(place=place)
    with Telemetry(record, tracer_provider=tracers, period=NEVER) as telemetry:
        record.now = {"runs": []}
    assert telemetry.dropped == 1


def test_a_provider_that_raises_costs_counted_drops_and_one_warning(caplog):
    class Broken:
        def get_tracer(self, _):
            return self

        def start_span(self, *_, **__):
            raise ConnectionError("the collector is down")

    record = Recorded(state())
    other = {**state()["runs"][0], "number": 3}
    record.now["runs"].append(other)
    with Telemetry(record, tracer_provider=Broken(), period=0.001) as telemetry:
        for run in record.now["runs"]:
            seen = telemetry.dropped
            run["state"] = "done"
            until = threading.Event()
            while telemetry.dropped == seen:
                until.wait(0.001)
    assert telemetry.dropped == 2
    said = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert ["the collector is down" in record.getMessage() for record in said] == [True]


def test_the_meter_gets_the_same_metrics_under_names_of_opentelemetry():
    record, reader = Recorded(), InMemoryMetricReader()
    with Telemetry(record, meter_provider=MeterProvider([reader], shutdown_on_exit=False)):
        asked = record.asked
        found = {
            metric.name: metric.data.data_points
            for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics
            for metric in scope.metrics
        }
        assert record.asked == asked + 1, "all instruments share a state"
    (point,) = found["headgate.num_records_out"]
    assert (point.value, dict(point.attributes)) == (
        5_100_000,
        {"exchange": EXCHANGE, "run": "2"},
    )
    names = {otel_name(metric.name) for metric in METRICS if "_page" not in metric.name}
    assert set(found) <= names
    assert len(found) >= 15
    # After close() they are silent.
    assert reader.get_metrics_data() is None


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(_extras, "_is_installed", lambda _: False)
    with pytest.raises(PackageNotFound, match=r"headgate\[otel\]"):
        Telemetry(state)
