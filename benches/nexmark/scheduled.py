"""Bids of files at a rate by the wall clock, and the times of their results; worker processes import this module."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benches.nexmark.events import HALVES, START, TIMES, Nexmark
from benches.nexmark.queries import QUERIES

from headgate.sink import FunctionSink
from headgate.source import NexmarkSource
from headgate.source.nexmark import NexmarkSplit
from headgate.source.sequential import Positioned
from headgate.stream import DataStream, StreamingJob, stream

#: Seconds between two batches, and most rows in one.
TICK, MOST_ROWS = 0.002, 16_384
#: Of 50 events the last 46 are bids; a second of event time has 10,000 events.
PERIOD, BIDS, EVENTS_PER_MS = 50, 46, 10
#: Rows may be so late, in ms: windows close by an event that is so much later.
LATE = 4000


@dataclass(frozen=True)
class Schedule:
    """When each event is due: event ``n`` is due ``n / rate`` seconds after the start.

    Attributes:
        folder: of the events.
        events: their number.
        rate: events of all kinds in a second.
        start: in seconds since 1970.
    """

    folder: Path
    events: int
    rate: float
    start: float = 0.0

    def from_now(self, seconds: float) -> Schedule:
        """Return the same schedule with a start in some seconds."""
        return replace(self, start=time.time() + seconds)

    def bids_before(self, now: float) -> int:
        """Return the number of bids that are due at a time."""
        periods, rest = divmod(int(max(0.0, now - self.start) * self.rate), PERIOD)
        return periods * BIDS + max(0, rest - (PERIOD - BIDS))

    def closing(self, window_ends: pa.Array) -> np.ndarray:
        """Return the numbers of the events that close windows: the first bids whose times are 4 s behind the ends."""
        ends = window_ends.cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy()
        first = (ends + LATE - START) * EVENTS_PER_MS
        return first + np.maximum(0, PERIOD - BIDS - first % PERIOD)

    def due(self, events: np.ndarray) -> np.ndarray:
        """Return when events are due, in seconds since 1970."""
        return self.start + events / self.rate

    def job(self, query: str, results: Path) -> StreamingJob:
        """Return the job of a query of bids, whose results are written with the times at which they came."""

        def rows(kind: str, columns: tuple[str, ...]) -> DataStream:
            assert kind == "bid"
            return stream(ScheduledBids(self, columns), watermarks=TIMES, name=kind)

        return QUERIES[query](Nexmark(rows)).sink(FunctionSink(Arrivals(results)))


class ScheduledBids(NexmarkSource):
    """Bids when they are due; what is late is caught up.

    Args:
        schedule: of the events.
        columns: to read.
    """

    never_waits = False

    def __init__(self, schedule: Schedule, columns: tuple[str, ...]) -> None:
        super().__init__("bid", schedule.events, splits=HALVES)
        self._schedule, self._columns = schedule, columns

    @property
    def schema(self) -> pa.Schema:
        every = super().schema
        return pa.schema([every.field(name) for name in self._columns])

    def pace_of(self, readers: int) -> Callable[[NexmarkSplit], None] | None:
        """Return None: :meth:`open_split` waits for each tick."""

    def open_split(self, split: NexmarkSplit, readers: int) -> Iterator[Positioned]:
        path = self._schedule.folder / "halves" / "bid" / f"{split.number}.parquet"
        table = pq.read_table(path, columns=list(self._columns)).combine_chunks()
        rows = pa.RecordBatch.from_arrays(
            [column.chunk(0) for column in table.columns], schema=self.schema
        )
        position, tick = split.position, time.time()
        while position < rows.num_rows:
            bids = self._schedule.bids_before(time.time())
            end = min((bids - split.number + HALVES - 1) // HALVES, rows.num_rows)
            if end - position < MOST_ROWS:
                tick = max(tick + TICK, time.time())
                time.sleep(max(0.0, tick - time.time()))
            end = min(end, position + MOST_ROWS)
            if end > position:
                yield rows.slice(position, end - position), end
                position = end


class Arrivals:
    """A sink's function: writes rows with the time at which they came, in µs since 1970.

    Args:
        folder: gets a file for each process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __call__(self, batch: pa.RecordBatch) -> None:
        arrived = pa.array(np.full(batch.num_rows, time.time_ns() // 1000))
        rows = batch.append_column("arrived", arrived)
        if self._writer is None:
            file = pa.OSFile(str(self._folder / f"{uuid.uuid4().hex}.arrows"), "wb")
            self._writer = pa.ipc.new_stream(file, rows.schema)
        self._writer.write_batch(rows)


def arrivals(folder: Path) -> pa.Table:
    """Return the rows of all files. The last rows of a process that was killed may lack."""
    batches = []
    for path in sorted(folder.glob("*.arrows")):
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
            try:
                for batch in reader:
                    batches.append(batch)  # noqa: PERF402 - those before an error count
            except (OSError, pa.ArrowInvalid) as error:
                print(f"  {path.name} ends in the middle of a batch: {error}")
    return pa.Table.from_batches(batches)
