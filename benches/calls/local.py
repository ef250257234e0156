"""The bench's parts without a service: memory, and calls that return at once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import pyarrow as pa
from benches import harness
from benches.calls.jobs import ANSWERS, after_a_moment, at_once, forget, same

from headgate._process import peak_resident_bytes
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import DataStream, stream

#: Memory for many rows over that for few which the goal allows.
ALLOWED = 1.1
BATCH_ROWS = 64


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
    print(f"  {many / few:.3f} times as much")
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
        after_a_moment, schema=ANSWERS, in_flight=1000, ordered=False
    )
    called.sink(FunctionSink(forget)).run(workers=0)
    orders.send(peak_resident_bytes())


def overhead(turns: int, *, quick: bool) -> None:
    """Compare rows/s of calls that return at once with those of a map."""
    rows = (64 if quick else 4096) * BATCH_ROWS

    def mapped(numbers: DataStream) -> DataStream:
        return numbers.map(same)

    def in_batches(numbers: DataStream) -> DataStream:
        return numbers.map_async(at_once, schema=ANSWERS, batch_rows=BATCH_ROWS)

    def by_row(numbers: DataStream) -> DataStream:
        return numbers.map_async(at_once, schema=ANSWERS, in_flight=BATCH_ROWS)

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
