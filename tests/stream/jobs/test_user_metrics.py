"""Counters, gauges and histograms of functions: sums over tasks, and where they are shown."""

import bisect
import json
import math
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families
from tests.kit import stream_jobs

from headgate.errors import StateError
from headgate.observe.metrics import samples
from headgate.observe.otel import Telemetry
from headgate.observe.prometheus import exposition
from headgate.observe.state import state_of
from headgate.sink import FunctionSink
from headgate.stream import Metrics, ProcessFunction
from headgate.stream.graph.metrics import merged
from headgate.stream.job.messages import FIELDS

BOUNDS = [10, 100, 1000]


class Measured(ProcessFunction):
    """Counts rows, and where they are."""

    def open(self, context):
        metrics = context.metrics
        self.rows, self.task = metrics.counter("rows"), metrics.gauge("task")
        self.ids = metrics.histogram("ids", BOUNDS)
        self.keys = metrics.tally("keys")

    def process(self, batch, context):
        self.rows.add(batch.num_rows)
        self.task.set(context.index)
        self.ids.observe(batch["id"])
        self.keys.add("even", pc.sum(pc.equal(pc.bit_wise_and(batch["id"], 1), 0)).as_py())
        self.keys.add("batches", 0, size=batch.num_rows)
        return []


def test_metrics_of_all_tasks_are_in_status_report_and_series():
    job = (
        stream_jobs.numbers(2000)
        .key_by("key")
        .process(Measured, schema=stream_jobs.COUNTED, name="measured")
        .sink(FunctionSink(len))
    )
    query = job.start(parallelism=3)
    assert query.await_termination(60)
    status = query.status
    assert status.metrics == {
        "measured": {
            "rows": {"kind": "counter", "value": 2000},
            "task": {"kind": "gauge", "values": {"0": 0.0, "1": 1.0, "2": 2.0}},
            "ids": {
                "kind": "histogram",
                "count": 2000,
                "sum": float(sum(range(2000))),
                "bounds": [10.0, 100.0, 1000.0],
                "counts": [11, 90, 900, 999],
            },
            "keys": {
                "kind": "tally",
                "values": {"even": [1000, 0.0], "batches": [0, pytest.approx(1000, abs=1000)]},
                "last": "even",
            },
        }
    }
    assert (
        "measured: rows 2,000, task 0 to 2, ids 2,000, mean 999.5, keys (even 1,000, batches 0)"
        in str(status)
    )
    running = json.loads(json.dumps({**status.plain(), "state": "running"}))
    series = samples(state_of([running]))
    of = (status.name, "measured")
    assert series["headgate_user_counter_total"] == [((*of, "rows"), 2000)]
    assert ((*of, "task", "2"), 2.0) in series["headgate_user_gauge"]
    assert ((*of, "keys", "even"), 1000) in series["headgate_user_tally_total"]
    _check_exporters(state_of([running]), dict(zip(("job", "operator"), of, strict=True)))
    buckets = [(labels[-1], n) for labels, n in series["headgate_user_histogram_bucket_total"]]
    assert buckets == [("10.0", 11), ("100.0", 101), ("1000.0", 1001), ("+Inf", 2000)]


def _check_exporters(state, of):
    """Check that Prometheus and OpenTelemetry have the numbers of all kinds of metrics, with their labels."""
    expected = {
        ("user_counter", ("metric", "rows")): 2000,
        ("user_gauge", ("metric", "task"), ("task", "2")): 2.0,
        ("user_histogram_count", ("metric", "ids")): 2000,
        ("user_tally", ("metric", "keys"), ("text", "even")): 1000,
    }
    scraped, observed = {}, {}
    for family in text_string_to_metric_families(exposition(lambda: state).decode()):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items() - of.items()))
            name = sample.name.removeprefix("headgate_").removesuffix("_total")
            scraped[name, *labels] = sample.value
    reader = InMemoryMetricReader()
    with Telemetry(lambda: state, meter_provider=MeterProvider([reader], shutdown_on_exit=False)):
        for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    labels = tuple(sorted(point.attributes.items() - of.items()))
                    observed[metric.name.removeprefix("headgate."), *labels] = point.value
    assert expected.items() <= scraped.items()
    assert expected.items() <= observed.items()


def test_a_histogram_against_a_naive_one():
    chance = random.Random(7)
    metrics, naive, total = Metrics(), [0] * (len(BOUNDS) + 1), 0.0
    for _ in range(200):
        values = [
            chance.choice([None, math.nan, math.inf, 10, 100.0, chance.uniform(-50, 2000)])
            for _ in range(chance.randrange(20))
        ]
        counted = [v for v in values if v is not None and math.isfinite(v)]
        for value in counted:
            naive[bisect.bisect_left(BOUNDS, value)] += 1
            total += value
        histogram = metrics.histogram("h", BOUNDS)
        array = pa.array(values, pa.float64())
        histogram.observe(chance.choice([array, pa.chunked_array([array]), np.array(counted)]))
    histogram.observe(5)
    naive[0] += 1
    plain = metrics.plain()["h"]
    assert (plain["counts"], plain["sum"]) == (naive, pytest.approx(total + 5))
    (_, shape) = next(item for item in FIELDS["METRICS"].items() if item[0] == "tasks")
    figures = dict.fromkeys(("elapsed_ms", "rows", "batches", "busy_ms", "blocked_ms"), 0)
    message = {"task": [0, 0], "watermark": None, "metrics": {"f": metrics.plain()}, **figures}
    assert shape([json.loads(json.dumps(message))])


def test_histograms_with_other_limits_keep_their_sums():
    tasks = []
    for index, bounds in enumerate(([1, 2], [5])):
        metrics = Metrics()
        metrics.histogram("h", bounds).observe([1, 4, 9])
        tasks.append((index, {"f": metrics.plain()}))
    figures = merged(tasks)["f"]["h"]
    assert figures == {"kind": "histogram", "count": 6, "sum": 28.0, "bounds": [], "counts": [6]}


def test_a_tally_has_twenty_texts_and_the_others():
    tasks = []
    for index in range(2):
        metrics = Metrics()
        tally = metrics.tally("errors")
        assert metrics.plain() == {}, "before its first text"
        for number in range(30):
            tally.add(f"error {number}", 1 + index, size=number / 10)
        tally.add("x" * 1000)
        assert len(tally.plain()["values"]) == 21
        tasks.append((index, {"f": metrics.plain()}))
    (_, shape) = next(item for item in FIELDS["METRICS"].items() if item[0] == "tasks")
    figures = dict.fromkeys(("elapsed_ms", "rows", "batches", "busy_ms", "blocked_ms"), 0)
    message = {"task": [0, 0], "watermark": None, "metrics": tasks[0][1], **figures}
    assert shape([json.loads(json.dumps(message))])
    errors = merged(tasks)["f"]["errors"]
    assert len(errors["values"]) == 21
    assert errors["values"]["error 3"] == [3, 0.3]
    assert errors["values"]["others"] == [3 * 10 + 2, 2.9]
    assert errors["last"] == "x" * 200
    for wrong in ({"number": -1}, {"size": math.inf}):
        with pytest.raises(StateError, match="a finite number from 0"):
            metrics.tally("errors").add("text", **wrong)


def test_what_is_no_metric_is_refused():
    metrics = Metrics()
    assert metrics.counter("n") is metrics.counter("n")
    assert metrics.plain() == {"n": {"kind": "counter", "value": 0}}
    metrics.gauge("g")
    assert "g" not in metrics.plain(), "before its first value"
    for call, problem in (
        (lambda: metrics.gauge("n"), "is a counter, not a gauge"),
        (lambda: metrics.counter(""), "has no name"),
        (lambda: metrics.counter("n").add(-1), "cannot take back -1"),
        (lambda: metrics.gauge("g").set(math.nan), "cannot be nan"),
        (lambda: metrics.histogram("h", [2, 1]), "each above the one before"),
        (lambda: metrics.histogram("h", []), "1 to 64"),
    ):
        with pytest.raises(StateError, match=problem):
            call()
    for number in range(98):
        metrics.counter(f"n{number}")
    with pytest.raises(StateError, match="one too many"):
        metrics.counter("rows of user 17")


def test_any_thread_may_count():
    metrics = Metrics()
    counter, histogram = metrics.counter("rows"), metrics.histogram("sizes", [1])

    def count(_):
        for _ in range(2000):
            counter.add()
            histogram.observe(1)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    assert counter.value == 16_000
    assert histogram.plain()["counts"] == [16_000, 0]
