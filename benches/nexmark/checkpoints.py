"""A count by two million keys with a checkpoint each second, and the same job without any, in two processes.

Numbers come as fast as they are counted, and neighbours have distant keys: a second has nearly all of them. The time of a
job is without its start. Before, the counts of fewer numbers are compared with DuckDB's.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from argparse import Namespace
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from benches import harness
from benches.nexmark.ours import nothing

from headgate._changes import last_changes
from headgate.sink import FileSink, FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import Aggregate, DataStream, stream

KEYS, ROWS, FEW = 2_000_000, 60_000_000, 20_000
GOAL = 0.9
#: The key of a number is a multiple of it: a prime, so that neighbours have distant ones.
FACTOR = 2_654_435_761


class Keyed:
    """A map: the key of each number.

    Args:
        keys: their number.
    """

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        key = pa.array(batch["id"].to_numpy() * FACTOR % self.keys)
        return pa.record_batch({"key": key})


def run(options: Namespace) -> None:
    """Compare the times; print and store the ratio."""
    rows = options.events or (FEW if options.quick else ROWS)
    keys = FEW // 10 if options.quick else KEYS
    if not options.unchecked:
        check(keys=1000)
    contestants = {
        name: partial(net_seconds, rows, keys, interval)
        for name, interval in (("without", None), ("each second", "1s"))
    }
    seconds = harness.measure("nexmark_checkpoints", contestants, turns=options.turns)
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"  {name:<12}{median:>8.2f} s {rows / median:>12,.0f} rows/s", flush=True)
    ratio = harness.median_ratio(seconds["without"], seconds["each second"])
    harness.report(
        "nexmark_checkpoints",
        {"nexmark_checkpoints": ratio},
        {"nexmark_checkpoints": GOAL},
        quick=options.quick,
        rows=rows,
        keys=keys,
        seconds=seconds,
    )


def counts(rows: int, keys: int) -> DataStream:
    """Return the count of each key so far, with each row."""
    numbers = stream(NumberSequenceSource(0, rows)).map(Keyed(keys))
    return numbers.key_by("key").aggregate(Aggregate("count", name="num"))


def net_seconds(rows: int, keys: int, interval: str | None) -> float:
    """Return the seconds of a job without those of its start."""
    start = seconds_of(FEW, keys, interval)
    return max(seconds_of(rows, keys, interval) - start, 0.001)


def seconds_of(rows: int, keys: int, interval: str | None) -> float:
    """Run a job; return its seconds."""
    with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
        job = counts(rows, keys).sink(FunctionSink(nothing))
        started = time.perf_counter()
        with job.start(
            parallelism=2, workers=2, checkpoint=f"{folder}/checkpoints", interval=interval
        ) as query:
            query.await_termination()
        seconds = time.perf_counter() - started
        # The last checkpoint of a job that ends has no state of keys.
        complete = [c for c in query.status.checkpoints if c.status == "complete"]
        if rows > FEW and interval:
            sizes = [f"{c.bytes / 1e6:.0f} MB" for c in complete[-4:]]
            print(
                f"  {len(complete)} checkpoints or more in {seconds:.1f} s; of {', '.join(sizes)}"
            )
        return seconds


def check(keys: int) -> None:
    """Compare the counts of few numbers with DuckDB's, with checkpoints between them.

    Raises:
        AssertionError: they differ.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
        job = counts(FEW, keys).sink(FileSink(f"{folder}/result"))
        job.run(parallelism=2, workers=2, checkpoint=f"{folder}/checkpoints", interval="100ms")
        changes = ds.dataset(f"{folder}/result").to_table()
    counted = last_changes(changes, ("key",))[0].select(["key", "num"])
    with duckdb.connect() as database:
        database.register("counted", counted)
        wrong = database.sql(
            f"""FROM counted EXCEPT ALL
            SELECT CAST(range AS BIGINT) * {FACTOR} % {keys} AS key, count(*) AS num FROM range({FEW}) GROUP BY key"""
        )
        assert len(wrong) == 0, wrong
    assert counted.num_rows == pc.count_distinct(counted["key"]).as_py() == keys
    print(f"  the counts of {keys:,} keys are DuckDB's", flush=True)
