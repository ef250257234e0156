"""The bench's parts about the service: its limit, the rate of a job, and slow calls."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benches import harness
from benches.calls.jobs import RATE, SERVICE, TASKS, asked, forget

from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import DataStream, stream
from headgate.testing import Service

#: Tasks of the parts ``rate`` and ``slow``, and the calls at a time of each in ``slow``.
MANY, EACH = 4, 32
#: Step between the windows of a second that are looked at, in microseconds.
STEP, SECOND = 100_000, 1_000_000
#: A tenth of the calls are so many times slower.
SLOW, FACTOR = 0.1, 20


def limit(turns: int, *, quick: bool) -> None:
    """Compare the time of a job with what its calls take at the service's limit."""
    rows = 1000 if quick else 20_000
    seconds, shares = [], []
    for _ in range(min(turns, 2)):
        with Service(**SERVICE) as service:
            started = time.perf_counter()
            run(numbers(rows, TASKS), service.url, TASKS, rate=f"{RATE}/s", rate_min=f"{RATE}/s")
            seconds.append(time.perf_counter() - started)
        shares.append(share_of_limit(service, rows, seconds[-1]))
    print(f"\ncalls_limit: {rows:,} calls of a service that takes {RATE}/s")
    print(f"  {statistics.median(seconds):.2f} s, with the start of the workers")
    harness.report(
        "calls_limit",
        {"calls_limit": statistics.median(shares)},
        {"calls_limit": 0.95},
        quick=quick,
        seconds=seconds,
        shares=shares,
    )


def numbers(rows: int, tasks: int) -> DataStream:
    return stream(NumberSequenceSource(0, rows, splits=tasks))


def run(rows: DataStream, url: str, tasks: int, **options: object) -> None:
    job = asked(rows, url, **options).sink(FunctionSink(forget))
    job.run(workers=TASKS, parallelism=tasks)


def share_of_limit(service: Service, rows: int, seconds: float) -> float:
    """Return the share of the time that the calls take at the service's rate, which it has refused none of."""
    check_answers(service, rows)
    return counted(service.calls()["outcome"]) / RATE / seconds


def counted(outcomes: pa.ChunkedArray) -> int:
    """Return the number of calls that the job needs: all but those that it made too early."""
    return len(outcomes) - int(pc.sum(pc.equal(outcomes, "limited")).as_py())


def check_answers(service: Service, rows: int) -> None:
    answered = pc.sum(pc.greater(service.ledger()["answered"], 0)).as_py()
    if answered != rows:
        raise AssertionError(f"{answered} rows have an answer, and not {rows}")


def rate(turns: int, *, quick: bool) -> None:
    """Compare the calls of each second with the rate that was asked for, across tasks."""
    rows = RATE * (5 if quick else 20)
    with Service(latency=SERVICE["latency"], spread=SERVICE["spread"], seed=1) as service:
        run(numbers(rows, MANY), service.url, MANY, rate=f"{RATE}/s")
    check_answers(service, rows)
    counts = calls_by_second(service.calls()["at"])
    furthest = np.abs(counts / RATE - 1).max()
    print(f"\ncalls_rate: calls in each second of a job with {RATE}/s, in {MANY} tasks")
    print(f"  {len(counts)} windows: {counts.min()} to {counts.max()}, mean {counts.mean():.1f}")
    harness.report(
        "calls_rate",
        {"calls_rate": 1 - furthest},
        {"calls_rate": 0.98},
        quick=quick,
        counts=counts.tolist(),
    )


def calls_by_second(at: pa.ChunkedArray) -> np.ndarray:
    """Return the number of calls in each window of a second, without the first second and the last one."""
    times = np.sort(at.cast(pa.int64()).to_numpy())
    starts = np.arange(times[0] + SECOND, times[-1] - 2 * SECOND, STEP)
    return np.searchsorted(times, starts + SECOND) - np.searchsorted(times, starts)


def slow(turns: int, *, quick: bool) -> None:
    """Compare the time with slow calls with the ideal: that without them, times the time that all calls take."""
    rows = 1000 if quick else 20_000
    seconds, work = {}, {}
    for share in (0.0, SLOW):
        with Service(latency=0.2, spread=0.05, slow=share, slow_factor=FACTOR, seed=1) as service:
            started = time.perf_counter()
            even = numbers(rows, MANY).rebalance(by="load")
            run(even, service.url, MANY, in_flight=EACH)
            seconds[share] = time.perf_counter() - started
        check_answers(service, rows)
        work[share] = pc.sum(service.calls()["seconds"]).as_py()
    ideal = seconds[0.0] * work[SLOW] / work[0.0]
    places = MANY * EACH
    print(
        f"\ncalls_slow: {rows:,} calls, {places} at a time, a tenth of them {FACTOR} times slower"
    )
    for share, took in seconds.items():
        busy = work[share] / places / took
        print(f"  {share:>4.0%} slow {took:>8.2f} s, places in use {busy:.0%}")
    print(f"  ideal     {ideal:>8.2f} s")
    harness.report(
        "calls_slow",
        {"calls_slow": ideal / seconds[SLOW]},
        {"calls_slow": 0.9},
        quick=quick,
        seconds=[*seconds.values()],
        work=[*work.values()],
    )
