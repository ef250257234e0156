"""The statistics name the slowest stage of a run on Spark, during the run and at its end."""

import sys
import time

import pytest
from tests.driver.screens import FakeTerminal
from tests.faults.patience import wait_until

from headgate.source.numbers import NumberSequenceSource
from headgate.spark import exchange, last_stats
from headgate.spark.driver.coordinator import Coordinator

#: Options for pools that are much smaller than the rows of these tests.
SMALL = {"num_partitions": 2, "memory": "4m", "segment_size": "64k"}


def slow(rows, seconds):
    """Return a function that sleeps ``seconds`` for every ``rows`` rows."""

    def function(batches):
        for batch in batches:
            for start in range(0, batch.num_rows, rows):
                time.sleep(seconds)
                yield batch.slice(start, rows)

    return function


def final(query, rows):
    """Run a query; return the statistics of its run once they no longer change."""
    assert query.count() == rows
    wait_until(lambda: last_stats().seconds == last_stats().seconds, "the run's clock")
    return last_stats()


@pytest.fixture
def wide(spark):
    """20,000 rows of 1 kB."""
    return spark.range(0, 20_000, 1, 4).selectExpr("id", "repeat('x', 1000) as s")


@pytest.fixture
def watched(monkeypatch):
    """Call ``is_dropped`` with each message to the coordinator; drop the message if it is true."""
    handle = Coordinator.message

    def watch(is_dropped):
        def message(self, connection, exchange_id, message, now):
            if not is_dropped(message):
                handle(self, connection, exchange_id, message, now)

        monkeypatch.setattr(Coordinator, "message", message)

    return watch


def test_a_slow_map_live_and_at_the_end(spark, watched, monkeypatch):
    seen = []
    watched(lambda _: seen.append(last_stats()))
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    job = {"map": slow(500, 0.1), "schema": "id long", "num_partitions": 2, "progress": "auto"}
    stats = final(exchange(spark.range(0, 24_000, 1, 2), by="id", **job), 24_000)
    assert (stats.verdict.kind, stats.verdict.stage) == ("map-busy", "map")
    assert (stats.state, stats.producers, stats.consumers) == ("done", 2, 2)
    assert stats.rows == stats.rows_received == 24_000
    assert {(task.role, task.task) for task in stats.tasks} == {
        ("map", 0),
        ("map", 1),
        ("reduce", 0),
        ("reduce", 1),
    }
    for task in stats.tasks:
        assert 0 < task.wall_ms <= 1000 * stats.seconds
    live = [was for was in seen if was is not None and was.run == stats.run and was.rows]
    assert (live[0].state, live[0].producers) == ("running", 0)
    assert live[0].rows < 24_000
    wait_until(lambda: terminal.visible == "", "a line")
    assert f"headgate {stats.exchange_id[:4]}/{stats.run}  " in terminal.getvalue()


def test_a_slow_source(spark, watched):
    seen = []
    watched(lambda _: seen.append(last_stats()))
    source = NumberSequenceSource(0, 3_000, batch_size=50, splits=6, rows_per_second=1_000)
    stats = final(exchange(source, spark=spark, parallelism=2, num_partitions=2), 3_000)
    assert (stats.verdict.kind, stats.verdict.stage) == ("source-busy", "source")
    assert (stats.splits_done, stats.splits_total, stats.share_done) == (6, 6, 1.0)
    done = [was.splits_done for was in seen if was is not None and was.run == stats.run]
    assert done == sorted(done)
    assert {1, 2, 3, 4, 5} & set(done), "no count between none and all was seen during the run"


def test_a_slow_reduce(spark, wide):
    stats = final(
        exchange(wide, by="id", reduce=slow(50, 0.018), schema=wide.schema, **SMALL), 20_000
    )
    assert (stats.verdict.kind, stats.verdict.stage) == ("reduce-busy", "reduce")
    shares = {"map": [], "reduce": []}
    for task in stats.tasks:
        assert task.wall_ms > 0
        shares[task.role].append(
            (task.busy_ms / task.wall_ms, task.back_pressured_ms / task.wall_ms)
        )
    assert max(blocked for _, blocked in shares["map"]) > 0.5
    assert max(busy for busy, _ in shares["reduce"]) > 0.5


@pytest.mark.soak
def test_a_hot_key(spark, wide):
    def hot(batch):
        return [0 if number % 50 else 1 for number in batch.column(0).to_pylist()]

    stats = final(
        exchange(wide, by=hot, reduce=slow(50, 0.01), schema=wide.schema, **SMALL), 20_000
    )
    assert (stats.verdict.kind, stats.verdict.task) == ("skew", 0)
    assert "98 % of the rows" in stats.verdict.text


@pytest.mark.soak
def test_a_slow_stage_in_the_jvm(spark):
    # More bytes than fit the sockets between a worker and its JVM.
    wide = spark.range(0, 20_000, 1, 4).selectExpr("id", "repeat('x', 4000) as s")
    sleep = "reflect('java.lang.Thread', 'sleep', 1L)"
    slowly = f"length(s) + if(id % 3 = 0, length(coalesce({sleep}, '')), 0) as n"
    query = exchange(wide, by="id", **SMALL).selectExpr(slowly).distinct()
    stats = final(query, 2)
    assert (stats.verdict.kind, stats.verdict.stage) == ("sink", "sink")


def test_a_run_whose_progress_messages_are_lost_still_ends(spark, watched):
    dropped = []

    def is_progress(message):
        if message.kind == "PROGRESS":
            dropped.append(message)
        return message.kind == "PROGRESS"

    watched(is_progress)
    numbers = spark.range(0, 4_000, 1, 2)
    stats = final(
        exchange(numbers, by="id", num_partitions=2, map=slow(2_000, 1.1), schema=numbers.schema),
        4_000,
    )
    assert len(dropped) >= 4
    assert (stats.rows, stats.rows_received, stats.verdict) == (4_000, 4_000, None)
    assert {task.wall_ms for task in stats.tasks} == {0}
