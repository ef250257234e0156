"""The job that the faults hit: two exchanges, counts by key with all kinds of state and timers, and sessions."""

import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.soak.streams import points, rows

from headgate.sink import FileSink
from headgate.source import NumberSequenceSource, WatermarkStrategy
from headgate.source.numbers import numbers_between
from headgate.stream import (
    Aggregate,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessFunction,
    ReducingStateDescriptor,
    SessionWindow,
    ValueStateDescriptor,
    stream,
)

#: Rows of a batch, and splits of the source.
BATCH, SPLITS = 40, 5
SCHEMA = pa.schema([(name, pa.int64()) for name in rows.columns([0], 0)])
COUNTED = pa.schema([*SCHEMA, ("number", pa.int64())])
FIRED = pa.schema([("key", pa.int64()), ("timestamp", pa.int64())])
AGGREGATES = (
    Aggregate("count"),
    Aggregate("sum", "value"),
    Aggregate("min", "id"),
    Aggregate("max", "id"),
)


class GatedNumbers(NumberSequenceSource):
    """Numbers, of which each split gives as large a part as a file says, so that a job lasts as long as its faults."""

    def __init__(self, count, gate):
        super().__init__(0, count, splits=SPLITS, batch_size=BATCH)
        self._gate = Path(gate)

    def open_split(self, split, readers):
        """Look at the file before each batch."""
        at, size = split.start + split.position, split.end - split.start
        while at < split.end:
            part = float(self._gate.read_text())
            end = min(at + BATCH, split.end, split.start + int(part * size))
            if end <= at:
                # The fetcher stays awake, and the gate is looked at again.
                time.sleep(0.005)
                yield None
                continue
            batch = pa.record_batch([numbers_between(at, end)], schema=self.schema)
            at = end
            yield batch, at - split.start


class Rows:
    """Makes rows of ids."""

    def __init__(self, seed, pause):
        self.seed, self.pause = seed, pause

    def __call__(self, batch):
        points.hit("map")
        time.sleep(self.pause)
        found = rows.columns(batch["id"].to_numpy(), self.seed)
        return pa.RecordBatch.from_arrays([pa.array(found[n]) for n in SCHEMA.names], schema=SCHEMA)


class Count(ProcessFunction):
    """Emits each row with its number among the rows of its key, and each timer when it fires."""

    def open(self, context):
        """Declare state of each kind."""
        self.count = context.get_state(ReducingStateDescriptor("count", "count", pa.int64()))
        self.latest = context.get_state(ValueStateDescriptor("latest", pa.int64()))
        self.ids = context.get_state(ListStateDescriptor("ids", pa.int64()))
        self.values = context.get_state(MapStateDescriptor("values", pa.int64(), pa.int64()))

    def process(self, batch, context):
        """Update all state, and emit."""
        points.hit("process")
        owners = np.asarray(context.rows)
        before = self.count.get().fill_null(0).to_numpy()
        order = np.argsort(owners, kind="stable")
        ranks = np.empty(len(owners), np.int64)
        first = np.searchsorted(owners[order], owners[order])
        ranks[order] = np.arange(len(owners)) - first
        self.count.add(batch["id"])
        latest = self.latest.get().fill_null(-(2**62)).to_numpy().copy()
        np.maximum.at(latest, owners, batch["at"].to_numpy())
        self.latest.put(pa.array(latest))
        self.ids.add(batch["id"])
        self.values.put(batch["id"], batch["value"])
        due = rows.timer(batch["at"].to_numpy(), batch["kind"].to_numpy())
        context.event_timers.register(pa.array(due))
        return batch.append_column("number", pa.array(before[owners] + ranks + 1))

    def on_event_timers(self, timers, context):
        """Emit the timers."""
        points.hit("timers")
        context.emit(pa.RecordBatch.from_arrays(timers.columns, schema=FIRED), "timers")
        return []


def watermark(batch, _):
    """Return the watermark behind a batch of ids."""
    return rows.watermark(batch["id"][-1].as_py())


def job(spec):
    """Return the job of a driver."""
    root = Path(spec["root"])
    source = GatedNumbers(spec["rows"], root / "gate")
    strategy = WatermarkStrategy.for_punctuated(watermark)
    counted = (
        stream(source, watermarks=strategy, name="ids")
        .map(Rows(spec["seed"], spec["pause"]), schema=SCHEMA, name="rows")
        .key_by("key")
        .process(Count, schema=COUNTED, side_outputs={"timers": FIRED}, name="count")
    )
    sessions = counted.key_by("other").window(
        SessionWindow(timedelta(milliseconds=rows.GAP)),
        time="at",
        aggregates=AGGREGATES,
        allowed_lateness=timedelta(milliseconds=rows.LATENESS),
        name="sessions",
    )
    found = {
        "counted": counted,
        "timers": counted.side_output("timers"),
        "sessions": sessions,
        "late": sessions.side_output("late"),
    }
    for name, each in found.items():
        sink = FileSink(str(root / "out" / name), mode="append")
        whole = each.sink(sink, name=f"out-{name}")
    return whole
