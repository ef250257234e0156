"""Windows of single rows: what the operators of windows are compared with."""

from collections import defaultdict
from datetime import timedelta

import pyarrow as pa
from hypothesis import strategies as st

from headgate.stream import (
    Aggregate,
    SessionWindow,
    SessionWindowOperator,
    SlidingWindow,
    TumblingWindow,
    WindowOperator,
)
from headgate.stream.state.timers import NO_WATERMARK

SCHEMA = pa.schema([("user", pa.string()), ("at", pa.int64()), ("price", pa.int32())])
AGGREGATES = (
    Aggregate("sum", "price"),
    Aggregate("count"),
    Aggregate("count", "price", "prices"),
    Aggregate("min", "price"),
    Aggregate("max", "price"),
    Aggregate("mean", "price"),
)


def ms(number):
    return timedelta(milliseconds=number)


def aggregated(rows):
    prices = [price for _, _, price in rows if price is not None]
    return (
        sum(prices) if prices else None,
        len(rows),
        len(prices),
        min(prices, default=None),
        max(prices, default=None),
        sum(prices) / len(prices) if prices else None,
    )


class Model:
    """Windows of rows by key, one row at a time."""

    def __init__(self, window, lateness):
        self.window, self.lateness = window, lateness
        self.watermark = NO_WATERMARK
        #: Rows by key, start and end.
        self.windows = defaultdict(list)

    def starts(self, time):
        size = self.window.size // ms(1)
        slide = self.window.slide // ms(1) if isinstance(self.window, SlidingWindow) else size
        offset = self.window.offset // ms(1)
        low = time - size
        return [s for s in range(low + 1, time + 1) if (s - offset) % slide == 0], size

    def result(self, window):
        return (*window, *aggregated(self.windows[window]))

    def process(self, rows):
        changed, late = set(), []
        for row in rows:
            key, time, _ = row
            starts, size = self.starts(time)
            alive = [s for s in starts if s + size - 1 + self.lateness > self.watermark]
            for start in alive:
                self.windows[key, start, start + size].append(row)
                changed.add((key, start, start + size))
            if not alive and time + self.lateness <= self.watermark:
                late.append(row)
        return self.closed(changed), late

    def closed(self, changed):
        return sorted(
            map(self.result, (w for w in changed if w[2] - 1 <= self.watermark)), key=repr
        )

    def advance(self, watermark):
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        due = [w for w in self.windows if before < w[2] - 1 <= self.watermark]
        results = sorted(map(self.result, due), key=repr)
        for window in [w for w in self.windows if w[2] - 1 + self.lateness <= self.watermark]:
            del self.windows[window]
        return results


class SessionModel(Model):
    def process(self, rows):
        gap = self.window.gap // ms(1)
        changed = set()
        for row in rows:
            key, time, _ = row
            start, end, members = time, time + gap, [row]
            for window in [w for w in self.windows if w[0] == key]:
                if window[1] <= end and start <= window[2]:
                    members = self.windows.pop(window) + members
                    start, end = min(start, window[1]), max(end, window[2])
                    changed.discard(window)
            self.windows[key, start, end] = members
            changed.add((key, start, end))
        late = []
        for window in [w for w in changed if w[2] - 1 + self.lateness <= self.watermark]:
            late += self.windows.pop(window)
            changed.discard(window)
        return self.closed(changed), late


def batch_of(rows):
    columns = zip(*rows, strict=True) if rows else [[] for _ in SCHEMA]
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def rows_of(batch):
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


WINDOWS = {
    "tumbling": TumblingWindow(ms(5)),
    "tumbling with offset": TumblingWindow(ms(5), ms(2)),
    "sliding": SlidingWindow(ms(6), ms(2)),
    "sliding unevenly": SlidingWindow(ms(5), ms(3), ms(1)),
    "session": SessionWindow(ms(3)),
}


def operator(window, schema=SCHEMA, **options):
    kind = SessionWindowOperator if isinstance(window, SessionWindow) else WindowOperator
    return kind(schema, keys=["user"], time="at", window=window, **options)


def model_of(window, lateness):
    return (SessionModel if isinstance(window, SessionWindow) else Model)(window, lateness)


rows = st.lists(
    st.tuples(
        st.none() | st.sampled_from("ab"), st.integers(-4, 25), st.none() | st.integers(-9, 9)
    ),
    max_size=8,
)
steps = st.lists(rows | st.integers(-6, 30), max_size=12)
