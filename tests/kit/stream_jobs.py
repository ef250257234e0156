"""Streams of numbers, functions and sinks for tests of streaming jobs; importable by worker processes."""

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from tests.kit.waiting import wait_until

from headgate.source import NumberSequenceSource, RateSource, WatermarkStrategy
from headgate.stream import ProcessFunction, ReducingStateDescriptor, stream

KEYS = 13
COUNTED = pa.schema([("key", pa.int64()), ("id", pa.int64()), ("count", pa.int64())])
START = 1_700_000_000_000


def numbers(count, *, rate=None, splits=4, parallelism=None):
    """Return a stream of numbers with a key and an event time: a second per number and key."""
    if rate is None:
        source = NumberSequenceSource(0, count, splits=splits, batch_size=97)
    else:
        source = RateSource(rate, rows=count, start_time=START, splits=splits)
    return stream(source, parallelism=parallelism, name="numbers").map(with_key, name="keys")


def with_key(batch):
    """Return id, key and event time."""
    ids = batch["id"]
    key = pc.subtract(ids, pc.multiply(pc.divide(ids, KEYS), KEYS))
    at = pc.add(pc.multiply(pc.divide(ids, KEYS), 1000), START).cast(pa.timestamp("ms"))
    return pa.record_batch({"id": ids, "key": key, "at": at})


def watermarks(late=0):
    """Return a strategy by the column of event times."""
    return WatermarkStrategy.for_bounded_out_of_orderness(late).with_timestamp_assigner(
        lambda batch: with_key(batch)["at"]
    )


class Count(ProcessFunction):
    """Emits each row with the number of rows of its key so far; rows of a batch share the number."""

    def open(self, context):
        self.count = context.get_state(ReducingStateDescriptor("count", "count", pa.int64()))

    def process(self, batch, context):
        self.count.add(batch["id"])
        counts = self.count.get().take(context.rows)
        return pa.RecordBatch.from_arrays([batch["key"], batch["id"], counts], schema=COUNTED)


class FailOnce:
    """A map that fails once in all processes, after some rows; the file says that it has."""

    def __init__(self, file, after, how="raise"):
        self.file, self.after, self.how, self.rows = Path(file), after, how, 0

    def __call__(self, batch):
        self.rows += batch.num_rows
        if self.rows > self.after and not self.file.exists():
            self.file.touch()
            if self.how == "exit":
                os._exit(7)
            raise ValueError("planned")
        return batch


def rows_of(folder):
    """Return the rows of a file sink, in any order, as a table."""
    return ds.dataset(folder, format="parquet").to_table()


def check_counts(table, count):
    """Check that each number is there once, and each key's counts end with the number of its rows."""
    ids = table["id"].to_pylist()
    assert Counter(ids) == Counter(range(count))
    most = {}
    for row in table.select(["key", "count"]).to_pylist():
        most[row["key"]] = max(most.get(row["key"], 0), row["count"])
    assert most == {key: len(range(key, count, KEYS)) for key in range(min(KEYS, count))}


def wait_for_a_checkpoint(query, count=2):
    """Wait until that many checkpoints are complete; a job that ends before has its error raised."""

    def are_complete():
        if query.state.is_over:
            query.await_termination()
            raise AssertionError("the job is over")
        return sum(one.status == "complete" for one in query.status.checkpoints) >= count

    wait_until(are_complete, f"{count} complete checkpoints")


def same(batch):
    """Return the batch."""
    return batch
