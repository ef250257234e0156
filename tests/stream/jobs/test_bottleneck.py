"""Which stage is named as the one that others wait for."""

import time

import kit
import pytest

from headgate.sink import FunctionSink
from headgate.stream.job.bottleneck import Shares, find_bottleneck, shares


@pytest.fixture(scope="module")
def graph():
    """Three stages in a row."""
    first = kit.numbers(1).key_by("key").map(lambda b: b, name="middle")
    return first.key_by("id").sink(FunctionSink(print), name="last").plan(2)


def of(*stages):
    return {(n, at): Shares(*stage) for n, stage in enumerate(stages) for at in range(2)}


def test_nobody_waits_for_stages_that_are_only_busy(graph):
    assert find_bottleneck(graph, of((0.9, 0.0), (0.9, 0.05), (0.9, 0.0))) is None
    assert find_bottleneck(graph, {}) is None


def test_the_last_of_a_chain_of_waits_is_named(graph):
    found = find_bottleneck(graph, of((0.1, 0.8), (0.2, 0.7), (0.9, 0.0)))
    assert found.stage == "last"
    assert found.waiting == ("middle",)
    assert str(found) == (
        "middle waits 70% of the time for last, whose busiest task works 90% of the time"
    )
    found = find_bottleneck(graph, of((0.1, 0.8), (0.9, 0.0), (0.2, 0.0)))
    assert (found.stage, found.waited) == ("middle", 0.8)


def test_one_busy_task_of_a_stage_is_enough(graph):
    skewed = of((0.1, 0.6), (0.1, 0.0), (0.1, 0.0)) | {(1, 1): Shares(0.95, 0.0)}
    assert find_bottleneck(graph, skewed).stage == "middle"


def test_shares_are_of_the_time_between_two_reports():
    before = {"elapsed_ms": 1000, "busy_ms": 500, "blocked_ms": 100}
    now = {"elapsed_ms": 2000, "busy_ms": 1400, "blocked_ms": 300}
    found = shares(before, now)
    assert (found.busy, found.blocked) == (pytest.approx(0.7), pytest.approx(0.2))
    assert found.idle == pytest.approx(0.1)
    assert shares(now, now) is None


def test_a_slow_sink_is_named_while_the_job_runs():
    def slow(batch):
        time.sleep(0.02)

    rows = kit.numbers(10**8).key_by("key").map(lambda b: b, name="middle").key_by("id")
    with rows.sink(FunctionSink(slow), name="slow").start(options={"memory": "1m"}) as query:
        deadline = time.monotonic() + 30
        while (found := query.status.bottleneck) is None or found.stage != "slow":
            assert time.monotonic() < deadline
            time.sleep(0.1)
