"""Joins of two streams against models that handle one row at a time."""

from collections import Counter, defaultdict
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.two_streams import (
    STEPS,
    Model,
    Tasks,
    both,
    follow,
    keyed,
    left_batch,
    right_batch,
    shown,
)

from headgate.source import MIN_WATERMARK
from headgate.stream import SessionWindow, SlidingWindow, TumblingWindow


class IntervalModel(Model):
    """An interval join, one row at a time."""

    def __init__(self, lower, upper, how):
        super().__init__(how)
        self.lower, self.upper = lower, upper
        #: For each side rows, and if they have a match.
        self.sides = ([], [])

    def last(self, side, row):
        if side:
            return row[1] - self.lower
        if self.upper == "end":
            return MIN_WATERMARK if row[3] is None else row[3]
        return row[1] + self.upper

    def match(self, left, right):
        return left[0] == right[0] and left[1] + self.lower <= right[1] <= self.last(0, left)

    def add(self, side, row):
        if row[1] <= self.watermark:
            self.late[side][row] += 1
            return
        if row[0] is None:
            self.alone(side, row)
            return
        entry = [row, False]
        for other in self.sides[1 - side]:
            left, right = (other, entry) if side else (entry, other)
            if self.match(left[0], right[0]):
                left[1] = right[1] = True
                self.emit(left[0], right[0])
        if self.last(side, row) > self.watermark:
            self.sides[side].append(entry)
        elif not entry[1]:
            self.alone(side, row)

    def advance(self, watermark):
        self.watermark = max(self.watermark, watermark)
        for side, entries in enumerate(self.sides):
            over = [e for e in entries if self.last(side, e[0]) <= self.watermark]
            for entry in over:
                entries.remove(entry)
                if not entry[1]:
                    self.alone(side, entry[0])


@settings(max_examples=120, deadline=None)
@given(
    bounds=st.sampled_from([(-5, 0), (0, 0), (-3, 4), (2, 6), (-6, -2), (0, "end"), (-2, "end")]),
    how=st.sampled_from(["inner", "left", "right", "full"]),
    steps=STEPS,
)
def test_an_interval_join_follows_the_model(tmp_path_factory, bounds, how, steps):
    lower, upper = bounds
    within = (f"{lower}ms", pc.field("end") if upper == "end" else f"{upper}ms")
    join = both(within=within, time=("at", "time"), how=how)
    tasks = Tasks(join, tmp_path_factory.mktemp("joins"))
    follow(tasks, IntervalModel(lower, upper, how), steps)
    assert tasks.rows_in_state() == 0


class WindowModel(Model):
    """A window join, one row at a time."""

    def __init__(self, window, how):
        super().__init__(how)
        self.size = window.size // timedelta(milliseconds=1)
        self.slide = getattr(window, "slide", window.size) // timedelta(milliseconds=1)
        #: Rows of both sides by the start of their window.
        self.windows = defaultdict(lambda: ([], []))

    def add(self, side, row):
        starts = [s for s in range(row[1] - self.size + 1, row[1] + 1) if s % self.slide == 0]
        is_open = [s for s in starts if s + self.size - 1 > self.watermark]
        if not is_open:
            self.late[side][row] += 1
        for start in is_open:
            if row[0] is None:
                self.alone(side, row, start, start + self.size)
            else:
                self.windows[start][side].append(row)

    def advance(self, watermark):
        self.watermark = max(self.watermark, watermark)
        for start in [s for s in self.windows if s + self.size - 1 <= self.watermark]:
            sides = self.windows.pop(start)
            for side, rows in enumerate(sides):
                for row in rows:
                    matches = [other for other in sides[1 - side] if other[0] == row[0]]
                    if not matches:
                        self.alone(side, row, start, start + self.size)
                    for other in [] if side else matches:
                        self.emit(row, other, start, start + self.size)


@settings(max_examples=60, deadline=None)
@given(
    window=st.sampled_from([TumblingWindow("5ms"), SlidingWindow("6ms", "2ms")]),
    how=st.sampled_from(["inner", "left", "right", "full"]),
    steps=STEPS,
)
def test_a_window_join_follows_the_model(tmp_path_factory, window, how, steps):
    join = both(window=window, time=("at", "time"), how=how)
    tasks = Tasks(join, tmp_path_factory.mktemp("joins"), 2)
    follow(tasks, WindowModel(window, how), steps)
    assert tasks.rows_in_state() == 0


class SessionModel(Model):
    """A join in sessions. The rows of a side that come at once are in their sessions before it is asked which are late."""

    def __init__(self, gap, how):
        super().__init__(how)
        self.gap = gap
        #: Key, start, end and rows of both sides.
        self.sessions = []
        self.waiting = ([], [])

    def add(self, side, row):
        self.waiting[side].append(row)

    def take(self):
        for side, rows in enumerate(self.waiting):
            for row in rows:
                self.merge(side, row)
            rows.clear()
            for session in [s for s in self.sessions if s[2] - 1 <= self.watermark]:
                self.sessions.remove(session)
                self.late[side].update(session[3][side])
        return super().take()

    def merge(self, side, row):
        key, start, end, sides = row[0], row[1], row[1] + self.gap, ([], [])
        sides[side].append(row)
        if key is None:
            if end - 1 <= self.watermark:
                self.late[side][row] += 1
            else:
                self.alone(side, row, start, end)
            return
        for other in [s for s in self.sessions if s[0] == key and s[1] <= end and start <= s[2]]:
            self.sessions.remove(other)
            start, end = min(start, other[1]), max(end, other[2])
            sides = tuple(mine + theirs for mine, theirs in zip(sides, other[3], strict=True))
        self.sessions.append((key, start, end, sides))

    def advance(self, watermark):
        self.watermark = max(self.watermark, watermark)
        for session in [s for s in self.sessions if s[2] - 1 <= self.watermark]:
            self.sessions.remove(session)
            _, start, end, (lefts, rights) = session
            for left in lefts:
                for right in rights:
                    self.emit(left, right, start, end)
            for side, rows in enumerate((lefts, rights)):
                for row in [] if (rights, lefts)[side] else rows:
                    self.alone(side, row, start, end)


@settings(max_examples=60, deadline=None)
@given(
    gap=st.sampled_from([1, 3]),
    how=st.sampled_from(["inner", "left", "right", "full"]),
    steps=STEPS,
)
def test_a_join_in_sessions_follows_the_model(tmp_path_factory, gap, how, steps):
    join = both(window=SessionWindow(f"{gap}ms"), time=("at", "time"), how=how)
    tasks = Tasks(join, tmp_path_factory.mktemp("joins"), 2)
    follow(tasks, SessionModel(gap, how), steps)
    assert tasks.rows_in_state() == 0


class TemporalModel(Model):
    """A temporal join, one row at a time. All versions stay."""

    def __init__(self, how):
        super().__init__(how)
        self.rows, self.versions = [], []

    def add(self, side, row):
        if side:
            self.versions.append(row)
        elif row[1] <= self.watermark:
            self.late[0][row] += 1
        elif row[0] is None:
            self.alone(0, row)
        else:
            self.rows.append(row)

    def advance(self, watermark):
        self.watermark = max(self.watermark, watermark)
        for row in [r for r in self.rows if r[1] <= self.watermark]:
            self.rows.remove(row)
            valid = [v for v in self.versions if v[0] == row[0] and v[1] <= row[1]]
            if valid:
                # Of equal times the last one.
                self.emit(row, max(reversed(valid), key=lambda version: version[1]))
            else:
                self.alone(0, row)


@settings(max_examples=50, deadline=None)
@given(how=st.sampled_from(["inner", "left"]), steps=STEPS)
def test_a_temporal_join_follows_the_model(tmp_path_factory, how, steps):
    join = both(as_of=("at", "time"), how=how)
    tasks = Tasks(join, tmp_path_factory.mktemp("joins"), 3)
    follow(tasks, TemporalModel(how), steps)
    # A version per key is still there.
    counts = [task._rows[1]._counts.max(initial=0) for task in tasks.tasks]
    assert max(counts) <= 1
    assert not any(task._rows[0].present.any() for task in tasks.tasks)


class RegularModel:
    """An inner join without time, one row at a time."""

    def __init__(self):
        self.sides = ([], [])
        self.emitted = Counter()

    def add(self, side, row, expires):
        if row[0] is None:
            return
        self.sides[side].append((row, expires))
        for other, _ in self.sides[1 - side]:
            left, right = (other, row) if side else (row, other)
            if left[0] == right[0]:
                self.emitted[(*left, right[2], right[1])] += 1

    def expire(self, now):
        for entries in self.sides:
            entries[:] = [entry for entry in entries if entry[1] > now]


@settings(max_examples=80, deadline=None)
@given(ttl=st.sampled_from([None, 3]), steps=STEPS)
def test_a_regular_join_follows_the_model(tmp_path_factory, ttl, steps):
    options = {} if ttl is None else {"ttl": f"{ttl}ms"}
    tasks = Tasks(both(**options), tmp_path_factory.mktemp("joins"), 2)
    model = RegularModel()
    for name, *arguments in steps:
        model.expire(tasks.now)
        if name == "rows" and (arguments[0] or arguments[1]):
            tasks.send(left_batch(arguments[0]), right_batch(arguments[1]))
            for side in (0, 1):
                for row in arguments[side]:
                    model.add(side, row, float("inf") if ttl is None else tasks.now + ttl)
        elif name == "watermark":
            tasks.now += max(0, arguments[0])
        elif name == "checkpoint":
            tasks.checkpoint()
        elif name == "restart":
            tasks.restart(arguments[0])
        assert shown(tasks.take()) == ({None: model.emitted} if model.emitted else {})
        model.emitted = Counter()


def test_many_pairs_of_a_key_come_in_parts():
    tasks = Tasks(both(within="5ms", time=("at", "time"), how="full"), "unused")
    tasks.send(left_batch([("a", at % 3, at, None) for at in range(600)]), None)
    tasks.send(None, right_batch([("a", at % 3, at) for at in range(500)]))
    assert [batch.num_rows for batch in tasks.batches] == [131_072, 131_072, 37_856]
    assert len(tasks.take()[None]) == 600 * 500
    tasks.advance(100)
    assert tasks.take() == {}


def test_keys_of_several_columns_match_as_in_sql():
    schemas = [
        pa.schema([("x", pa.float64()), ("y", pa.string()), (name, pa.int64())]) for name in "ab"
    ]
    rows = [(0.0, "k", 1), (float("nan"), "k", 2), (1.0, None, 3), (None, "k", 4)]
    others = [(-0.0, "k", 5), (float("nan"), "k", 6), (1.0, None, 7), (None, "k", 8)]
    streams = [keyed(schema, "x", "y") for schema in schemas]
    tasks = Tasks(streams[0].join(streams[1]), "unused", 2)
    tasks.send(
        *(
            pa.record_batch(list(map(list, zip(*side, strict=True))), schema=schema)
            for side, schema in zip((rows, others), schemas, strict=True)
        )
    )
    pairs = tasks.take()[None]
    assert sorted(row[2:] for row in pairs) == [(1, 5), (2, 6)]
    assert "-0.0" not in repr(list(pairs)), "equal keys have one form"
