"""Calls that wait: ``map_async`` against what the service allows, against the same by hand, and without waiting.

The service is a process of its own, ``headgate.testing.Service``: 200 ms +- 50 a call, 500 calls/s, 5 % answered with 429, 1 % with
an error, by a seed. 20,000 rows are called one by one, in two worker processes.

- ``calls_limit`` is the time that the service needs for the calls that it took, at 500/s, over the time of the whole job, its
  start included. 128 calls at a time find the limit by the service's 429.
- ``calls_by_hand`` is the time of ``mapInArrow`` with an event loop, a semaphore and attempts, on two slots, over ours; its session
  runs already.
- ``calls_memory`` is the peak of a process whose job calls 10,000 rows, and 1.1 times that, over the peak for 1,000,000 rows; a call waits
  1 ms, a thousand at a time.
- ``calls_overhead_batches`` and ``calls_overhead_rows`` are the rows/s of calls that return at once, in batches of 64 and row by row, over
  those of ``map`` with a function that does the same, all from a source with batches of 64 rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection

import pyarrow as pa
from benches import calls_jobs, harness
from benches.calls_jobs import ANSWERS, ATTEMPTS, BACKOFF, Ask, by_hand, forget
from benches.spark import session
from pyspark import cloudpickle

from headgate._process import peak_resident_bytes
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import DataStream, stream
from headgate.testing import Service

RATE = 500
BURST = 50
SERVICE = {
    "seed": 1,
    "latency": 0.2,
    "spread": 0.05,
    "rate": RATE,
    "burst": BURST,
    "refusals": 0.05,
    "retry_after": 0.1,
    "errors": 0.01,
}
#: Worker processes, or slots of Spark, and the calls at a time of each.
TASKS, IN_FLIGHT = 2, 64
#: Memory for many rows over that for few which the goal allows.
ALLOWED = 1.1
BATCH_ROWS = 64


def main(arguments: Sequence[str]) -> None:
    parts = {part.__name__: part for part in (limit, memory, overhead)}
    parser = harness.arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts), metavar="PART")
    options = parser.parse_args(arguments)
    for name in options.parts:
        parts[name](options.turns, quick=options.quick)


def limit(turns: int, *, quick: bool) -> None:
    """Compare the time of a job with that of its service, and with the same by hand."""
    rows = 1000 if quick else 20_000
    cloudpickle.register_pickle_by_value(calls_jobs)
    spark = session(f"local[{TASKS}]")

    def theirs(url: str) -> None:
        numbers = spark.range(0, rows, 1, TASKS)
        answers = numbers.mapInArrow(by_hand(url, IN_FLIGHT), "id bigint")
        answers.write.format("noop").mode("overwrite").save()

    try:
        contestants = {"headgate": partial(ours, rows), "mapInArrow and asyncio": theirs}
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        shares: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(turns + 1):
            for name, run in contestants.items():
                took, share = against_service(run, rows)
                if turn:
                    seconds[name].append(took)
                    shares[name].append(share)
    finally:
        spark.stop()
    print(f"\ncalls: {rows:,} calls of a service that takes {RATE}/s")
    for name, times in seconds.items():
        share = statistics.median(shares[name])
        print(f"  {name:<24}{statistics.median(times):>8.2f} s   {share:.2f} of the limit")
    harness.report(
        "calls_limit",
        {
            "calls_limit": statistics.median(shares["headgate"]),
            "calls_by_hand": harness.median_ratio(
                seconds["mapInArrow and asyncio"], seconds["headgate"]
            ),
        },
        {"calls_limit": 0.95, "calls_by_hand": 1.0},
        quick=quick,
        seconds=seconds,
    )


def ours(rows: int, url: str) -> None:
    called = stream(NumberSequenceSource(0, rows, splits=TASKS)).map_async(
        Ask(url),
        schema=ANSWERS,
        in_flight=IN_FLIGHT,
        ordered=False,
        retries=ATTEMPTS,
        backoff=BACKOFF,
    )
    called.sink(FunctionSink(forget)).run(workers=TASKS)


def against_service(run: Callable[[str], object], rows: int) -> tuple[float, float]:
    """Return the seconds of a job, and the share of them that its calls need at the service's rate."""
    with Service(**SERVICE) as service:  # type: ignore[arg-type]
        started = time.perf_counter()
        run(service.url)
        seconds = time.perf_counter() - started
    answered = sum(map(bool, service.ledger()["answered"].to_pylist()))
    if answered != rows:
        raise AssertionError(f"{answered} calls were answered, and not {rows}")
    outcomes = service.calls()["outcome"].to_pylist()
    admitted = outcomes.count("answered") + outcomes.count("failed")
    return seconds, (admitted - BURST) / RATE / seconds


def memory(turns: int, *, quick: bool) -> None:
    """Compare the peaks of memory of jobs with few and with many rows."""
    sizes = (1000, 10_000) if quick else (10_000, 1_000_000)
    peaks: dict[int, list[int]] = {rows: [] for rows in sizes}
    for _ in range(min(turns, 3)):
        for rows, values in peaks.items():
            with harness.process(call_many) as other:
                other.send(rows)
                values.append(other.recv())
    few, many = (statistics.median(peaks[rows]) for rows in sizes)
    print("\ncalls_memory: peak of resident memory, a thousand calls at a time")
    for rows, values in peaks.items():
        print(f"  {rows:>9,} rows {statistics.median(values) / 2**20:>8.0f} MiB")
    harness.report(
        "calls_memory",
        {"calls_memory": ALLOWED * few / many},
        {"calls_memory": 1.0},
        quick=quick,
        peaks=peaks,
    )


def call_many(orders: Connection) -> None:
    """Run a job in this process, and send its peak of memory."""
    rows = orders.recv()
    called = stream(NumberSequenceSource(0, rows), parallelism=1).map_async(
        calls_jobs.after_a_moment, schema=ANSWERS, in_flight=1000, ordered=False
    )
    called.sink(FunctionSink(forget)).run(workers=0)
    orders.send(peak_resident_bytes())


def overhead(turns: int, *, quick: bool) -> None:
    """Compare rows/s of calls that return at once with those of a map."""
    rows = (64 if quick else 4096) * BATCH_ROWS

    def mapped(numbers: DataStream) -> DataStream:
        return numbers.map(calls_jobs.same)

    def in_batches(numbers: DataStream) -> DataStream:
        return numbers.map_async(calls_jobs.at_once, schema=ANSWERS, batch_rows=BATCH_ROWS)

    def by_row(numbers: DataStream) -> DataStream:
        return numbers.map_async(calls_jobs.at_once, schema=ANSWERS, in_flight=BATCH_ROWS)

    contestants = {"map": mapped, "batches": in_batches, "rows": by_row}
    seconds = harness.measure(
        "calls_overhead",
        {name: partial(rows_seconds, build, rows) for name, build in contestants.items()},
        turns=turns,
    )
    print(f"\ncalls_overhead: {rows:,} rows in batches of {BATCH_ROWS}, functions that do not wait")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"  {name:<10}{median:>8.3f} s{rows / median:>12,.0f} rows/s")
    harness.report(
        "calls_overhead",
        {
            "calls_overhead_batches": harness.median_ratio(seconds["map"], seconds["batches"]),
            "calls_overhead_rows": harness.median_ratio(seconds["map"], seconds["rows"]),
        },
        {"calls_overhead_batches": 0.5, "calls_overhead_rows": 0.1},
        quick=quick,
        seconds=seconds,
    )


def rows_seconds(build: Callable[[DataStream], DataStream], rows: int) -> float:
    """Return the seconds from the first row in the sink to the last one."""
    times: list[float] = []

    def note(batch: pa.RecordBatch) -> None:
        times.append(time.perf_counter())

    numbers = stream(NumberSequenceSource(0, rows, batch_size=BATCH_ROWS, splits=1), parallelism=1)
    build(numbers).sink(FunctionSink(note)).run(workers=0)
    return times[-1] - times[0]
