"""A running job says what its calls wait for; the figures are in its status, its report and its series."""

import asyncio
import json
import time

import pyarrow as pa
import pytest
from tests.kit.waiting import wait_until

from headgate.observe.metrics import samples
from headgate.observe.state import state_of
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import Metrics, stream
from headgate.stream.operators.calls.times import CallTimes

NUMBER = pa.schema([("id", pa.int64())])


async def slow(row):
    await asyncio.sleep(0.2)
    return row


async def down(row):
    await asyncio.sleep(0.001)
    raise ConnectionError("planned")


async def first_is_slow(row):
    await asyncio.sleep(600 if row["id"] == 0 else 0)
    return row


async def few(row):
    await asyncio.sleep(0.01)
    return row


#: Kind of a wait -> the function, and the options of its calls.
WAITS = {
    "service": (slow, {"in_flight": 8}),
    "rate": (few, {"rate": "20/s"}),
    "breaker": (down, {"breaker": 0.5, "retries": 1000, "backoff": 0.01}),
    "order": (first_is_slow, {"in_flight_bytes": 2000, "timeout": None}),
}


@pytest.mark.parametrize("kind", WAITS)
def test_a_job_says_what_its_calls_wait_for(kind):
    function, options = WAITS[kind]
    statuses = []
    rows = stream(NumberSequenceSource(0, 10**6, splits=1))
    called = rows.map_async(function, schema=NUMBER, name="calls", **options)
    with called.sink(FunctionSink(len)).start(parallelism=1) as query:

        def is_told():
            statuses.append(query.status)
            verdict = statuses[-1].verdict
            return verdict is not None and verdict.kind == f"calls-{kind}"

        wait_until(is_told, "the verdict", 40)
    status = statuses[-1]
    (stage,) = status.calls
    assert stage.operator == "calls"
    assert stage.text in str(status)
    assert f"slowest: {status.verdict.text}" in str(status)
    running = json.loads(json.dumps(status.plain()))
    series = samples(state_of([running]))
    of = (status.name, "calls")
    tallies = dict(series["headgate_user_tally_total"])
    assert tallies[*of, "call_ms", "full"] > 0
    if kind == "breaker":
        assert stage.errors == {
            "ConnectionError": tallies[*of, "call_error_kinds", "ConnectionError"]
        }
        assert stage.last_error == "ConnectionError: planned"
    if kind == "service":
        assert stage.under_way == pytest.approx(8, abs=3)
    if kind == "rate":
        assert (stage.rate_asked, stage.most) == (20.0, 64)


def test_a_job_that_is_over_has_figures_of_all_its_time():
    called = stream(NumberSequenceSource(0, 30, splits=1)).map_async(
        few, schema=NUMBER, name="calls"
    )
    with called.sink(FunctionSink(len)).start(parallelism=1) as query:
        query.await_termination(60)
    (stage,) = query.status.calls
    assert query.status.verdict is None
    assert stage.per_second > 0
    assert stage.p50_ms >= 5
    assert (stage.errors, stage.rate) == ({}, None)


def test_times_are_numbers_of_calls_times_time():
    now, metrics = 0.0, Metrics()
    times = CallTimes(metrics, lambda: now)

    def figures():
        return {name: ms for name, (ms, _) in metrics.plain()["call_ms"]["values"].items() if ms}

    times.add("service", 3)
    times.set("full", 1)
    now = 2.0
    assert figures() == {"service": 6000, "full": 2000}
    times.add("service", -1)
    times.add("rate", 5)
    times.set("full", 0)
    now = 2.5
    assert figures() == {"service": 7000, "full": 2000, "rate": 2500}
    times.note_room(is_full=True, is_heavy=True, has_results=True)
    now = 3.0
    times.note_room(is_full=True, is_heavy=True, has_results=False)
    now = 4.0
    assert figures() == {
        "service": 10_000,
        "full": 3500,
        "rate": 10_000,
        "order": 500,
        "bytes": 1000,
    }
    times.note_loop()
    started = time.thread_time()
    while time.thread_time() - started < 0.05:
        sum(range(100))
    assert figures().get("loop", 50) >= 50
