"""What the bench of streams runs: a source that keeps to a schedule, two Python stages, and sinks that measure.

Worker processes import this module.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.source import RateSource
from headgate.source.rate import RateSplit
from headgate.source.sequential import Positioned
from headgate.stream import KeyedContext, ProcessFunction, ReducingStateDescriptor

#: Bytes of the payload, so that a row with two numbers and a time has about 100.
PAYLOAD = pa.scalar("x" * 76)
KEYS = 1 << 12
ENRICHED = pa.schema(
    [("id", pa.int64()), ("key", pa.int64()), ("at", pa.int64()), ("payload", pa.string())]
)
COUNTED = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("count", pa.int64())])
#: Seconds between two batches of the scheduled source.
TICK = 0.002


class ScheduledSource(RateSource):
    """Rows at a rate by the wall clock: what is late is caught up, and each row has the time at which it was due.

    Args:
        rows_per_second: the rate.
        rows: number of rows.
    """

    def __init__(self, rows_per_second: int, rows: int) -> None:
        super().__init__(rows_per_second, rows=rows, splits=1)
        self.rows_per_second = rows_per_second
        self.num_rows = rows

    def pace_of(self, readers: int) -> None:
        """Return None: :meth:`open_split` waits for each tick."""

    def open_split(self, split: RateSplit, readers: int) -> Iterator[Positioned]:
        """Yield the rows that are due, every tick."""
        start = at = time.time()
        position = split.position
        while position < self.num_rows:
            at = max(at + TICK, time.time())
            time.sleep(max(0.0, at - time.time()))
            end = min(int((time.time() - start) * self.rows_per_second), self.num_rows)
            ids = np.arange(position, end)
            # Microseconds since 1970.
            times = ((start + ids / self.rows_per_second) * 1e6).astype(np.int64)
            columns = [ids, pa.array(times // 1000).cast(self.schema.types[1])]
            position = end
            yield pa.record_batch(columns, schema=self.schema), end


def enrich(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The first stage: keys and payloads."""
    ids = batch.column(0)
    key = pc.bit_wise_and(pc.multiply(ids, 2654435761), KEYS - 1)
    at = batch.column(1).cast(pa.int64()) if batch.num_columns > 1 else ids
    columns = [ids, key, at, pa.repeat(PAYLOAD, len(ids))]
    return pa.RecordBatch.from_arrays(columns, schema=ENRICHED)


class Count(ProcessFunction):
    """The second stage: each row with the number of rows of its key so far."""

    def open(self, context: KeyedContext) -> None:
        self.count = context.get_state(ReducingStateDescriptor("count", "count", pa.int64()))

    def process(self, batch: pa.RecordBatch, context: KeyedContext) -> pa.RecordBatch:
        self.count.add(batch["id"])
        counts = self.count.get().take(context.rows)
        return pa.RecordBatch.from_arrays([batch["key"], batch["at"], counts], schema=COUNTED)


class CountAgain(ProcessFunction):
    """A third stage: counts the rows of a key, and passes them on."""

    def open(self, context: KeyedContext) -> None:
        self.count = context.get_state(ReducingStateDescriptor("count", "count", pa.int64()))

    def process(self, batch: pa.RecordBatch, context: KeyedContext) -> pa.RecordBatch:
        self.count.add(batch["at"])
        return batch


class Latencies:
    """A sink's function: the time from when each row was due to here, in ms; written to a file at the end.

    Args:
        file: takes the latencies.
        rows: number of rows of the job.
        skip: rows at the start that do not count.
    """

    def __init__(self, file: str, rows: int, skip: int) -> None:
        self.file, self.rows, self.skip = file, rows, skip
        self.seen = 0
        self.parts: list[np.ndarray] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        now = time.time() * 1000
        self.parts.append(now - batch["at"].to_numpy())
        self.seen += batch.num_rows
        if self.seen >= self.rows:
            np.save(self.file, np.concatenate(self.parts)[self.skip :])


class FirstAndLast:
    """A sink's function: the times of the first and the last row, written to a file at the end."""

    def __init__(self, file: str, rows: int) -> None:
        self.file, self.rows = file, rows
        self.seen = 0
        self.first = 0.0

    def __call__(self, batch: pa.RecordBatch) -> None:
        if not self.seen:
            self.first = time.perf_counter()
        self.seen += batch.num_rows
        if self.seen >= self.rows:
            np.save(self.file, np.array([time.perf_counter() - self.first]))


class SlowSink:
    """A sink's function that takes its time, and touches a file with each batch.

    Args:
        seconds: for each batch.
        file: to touch; none if empty.
    """

    def __init__(self, seconds: float, file: str = "") -> None:
        self.seconds, self.file = seconds, file

    def __call__(self, batch: pa.RecordBatch) -> None:
        if self.seconds:
            time.sleep(self.seconds)
        if self.file:
            Path(self.file).write_text(str(batch.num_rows), encoding="ascii")
