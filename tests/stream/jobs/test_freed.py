"""Attempts and jobs that have ended are freed at once: no garbage collection is needed."""

import gc
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until

from headgate.errors import UserFunctionError
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import (
    Aggregate,
    CoProcessFunction,
    JobState,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessFunction,
    SessionWindow,
    TumblingWindow,
    ValueStateDescriptor,
    stream,
)

ROWS = 6000
#: Failures of each job.
FAILURES = 2
#: Bytes of each value.
WIDE = 2000
#: Most bytes of Arrow that an attempt may find of those before it: a tenth of the state of one.
MOST = ROWS * WIDE // 10
#: Modules whose objects hold state, rows, threads, files or connections.
OURS = (
    "headgate.stream.",
    "headgate.environment",
    "headgate._native",
    "headgate.reader",
    "pyarrow",
)
#: A graph is the user's, with the functions in it; figures and options are small.
SMALL = (
    "headgate.stream.graph.nodes",
    "headgate.stream.graph.stages",
    "headgate.stream.job.status",
    "headgate.stream.graph.limits",
    "headgate.stream.operators.interval_join.Interval",
    "headgate.stream.operators.joining.JoinedColumns",
    "headgate.stream.operators.sides.Sides",
    "headgate.stream.windows.kinds",
    "headgate.stream.windows.aggregates.Aggregate",
)


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


class Fails:
    """Raises in the attempts of a job until it has failed often enough; says what each attempt finds allocated."""

    lock = threading.Lock()

    def __init__(self, folder, patience=5):
        self.folder, self.patience, self.rows = Path(folder), patience, 0

    def begin(self):
        gc.disable()
        if not list(self.folder.glob("begun-*")):
            # Threads and processes that import pyarrow may have something of their own.
            (self.folder / "base").write_text(str(pa.total_allocated_bytes()))
        base = int((self.folder / "base").read_text())
        with suppress(AssertionError):  # a thread of the attempt before may be ending
            wait_until(lambda: pa.total_allocated_bytes() - base < MOST, seconds=self.patience)
        found = pa.total_allocated_bytes() - base
        with self.lock:
            number = len(list(self.folder.glob("begun-*")))
            (self.folder / f"begun-{number}").write_text(str(found))

    def count(self, rows):
        self.rows += rows
        failed = list(self.folder.glob("failed-*"))
        if self.rows > ROWS * 3 // 4 and len(failed) < FAILURES:
            (self.folder / f"failed-{len(failed)}").touch()
            raise ValueError("planned")

    def found(self):
        return [int(one.read_text()) for one in self.folder.glob("begun-*")]


def wide(rows):
    return pa.array(["x" * WIDE] * rows)


class Keeps(ProcessFunction):
    """Has state of each kind."""

    def __init__(self, fails):
        self.fails = fails

    def open(self, context):
        self.fails.begin()
        self.value = context.get_state(ValueStateDescriptor("value", pa.string()))
        self.list = context.get_state(ListStateDescriptor("list", pa.string()))
        self.map = context.get_state(MapStateDescriptor("map", pa.int64(), pa.string()))

    def process(self, batch, context):
        rows = wide(batch.num_rows)
        self.value.put(wide(context.keys.num_rows))
        self.list.add(rows)
        self.map.put(batch["id"], rows)
        context.event_timers.register(batch["id"])
        self.fails.count(batch.num_rows)
        return batch

    def on_event_timers(self, timers, context):
        return []


class KeepsItself(Keeps):
    """Refers to itself, and keeps the error that it raises, with the rows at hand."""

    def open(self, context):
        super().open(context)
        self.me, self.context = self, context

    def process(self, batch, context):
        rows = wide(batch.num_rows)
        try:
            return super().process(batch, context)
        except ValueError as error:
            self.error = error, rows.nbytes
            raise


class Joins(CoProcessFunction):
    def __init__(self, fails):
        self.fails = fails

    def open(self, context):
        self.fails.begin()
        self.left = context.get_state(ValueStateDescriptor("left", pa.string()))

    def process_first(self, batch, context):
        self.left.put(wide(context.keys.num_rows))
        self.fails.count(batch.num_rows)
        return []

    def process_second(self, batch, context):
        return batch


class Widens(ProcessFunction):
    """Makes rows wide, so that windows keep much."""

    def __init__(self, fails):
        self.fails = fails

    def open(self, context):
        self.fails.begin()

    def process(self, batch, context):
        self.fails.count(batch.num_rows)
        return batch.append_column("wide", wide(batch.num_rows))


SCHEMA = stream_jobs.with_key(pa.record_batch({"id": pa.array([1])})).schema
WIDENED = SCHEMA.append(pa.field("wide", pa.string()))


def numbers():
    source = NumberSequenceSource(0, ROWS, splits=1, batch_size=97)
    return stream(source, watermarks=stream_jobs.watermarks(), name="numbers").map(
        stream_jobs.with_key, name="keys"
    )


def with_state(fails, function=Keeps):
    return numbers().key_by("id").process(function(fails), schema=SCHEMA, name="keep")


def with_circles(fails):
    return with_state(fails, KeepsItself)


def with_join(fails):
    keyed = numbers().key_by("id")
    other = stream(NumberSequenceSource(0, 10), name="other").map(
        stream_jobs.with_key, name="other keys"
    )
    return keyed.connect(other.key_by("id")).process(Joins(fails), schema=SCHEMA, name="join")


def windows(window, fails):
    widened = numbers().process(Widens(fails), schema=WIDENED, name="widen")
    greatest = Aggregate("max", "wide", "wide")
    return widened.key_by("id").window(window, time="at", aggregates=[greatest], name="windows")


def with_rows_of_both_sides(fails):
    widened = numbers().process(Widens(fails), schema=WIDENED, name="widen").key_by("id")
    other = stream(
        NumberSequenceSource(0, 10), watermarks=stream_jobs.watermarks(), name="other"
    ).map(stream_jobs.with_key, name="other keys")
    return widened.join(other.key_by("id"), within="1 day", time="at", how="full", name="rows")


def with_windows(fails):
    return windows(TumblingWindow(timedelta(days=1)), fails)


def with_sessions(fails):
    return windows(SessionWindow(timedelta(days=1)), fails)


def ignore(batch):
    del batch


def run(tmp_path, made, *, workers=0, interval=None):
    # An attempt that restores a checkpoint finds its own state.
    fails = Fails(tmp_path, patience=0 if interval else 5)
    query = (
        made(fails)
        .sink(FunctionSink(ignore))
        .start(
            workers=workers,
            checkpoint=str(tmp_path / "checkpoints"),
            interval=interval,
            restart_delay=0.01,
        )
    )
    assert query.await_termination(60)
    assert query.state is JobState.FINISHED
    assert query.status.restarts >= 1
    return fails.found()


JOBS = [with_state, with_join, with_rows_of_both_sides, with_windows, with_sessions]


def check_nothing_is_left():
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    names = {f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage}
    assert names  # it does find circles: those of asyncio
    assert {one for one in names if one.startswith(OURS) and not one.startswith(SMALL)} == set()


@pytest.mark.parametrize("made", [*JOBS, with_circles])
def test_threads_free_failed_attempts_and_finished_jobs(tmp_path, no_collector, made):
    before = pa.total_allocated_bytes()
    found = run(tmp_path, made)
    assert len(found) == FAILURES + 1
    assert max(found) < MOST
    assert pa.total_allocated_bytes() - before < MOST
    if made is with_circles:
        return  # its own objects stay, and refer to some of ours
    check_nothing_is_left()


def test_attempts_are_freed_whose_snapshots_were_being_written(tmp_path, no_collector):
    before = pa.total_allocated_bytes()
    run(tmp_path, with_state, interval=0.02)
    assert pa.total_allocated_bytes() - before < MOST
    check_nothing_is_left()


def test_a_job_that_failed_is_freed_though_its_error_was_raised(tmp_path, no_collector):
    before = pa.total_allocated_bytes()
    query = with_state(Fails(tmp_path)).sink(FunctionSink(ignore)).start()
    try:
        query.await_termination(60)
    except UserFunctionError as error:  # pytest.raises would hold it
        text = str(error)
    assert "planned" in text
    assert query.state is JobState.FAILED
    del query
    assert pa.total_allocated_bytes() - before < MOST
    check_nothing_is_left()


def test_processes_free_failed_attempts(tmp_path):
    found = run(tmp_path, with_circles, workers=1)
    assert len(found) == FAILURES + 1
    assert max(found) < MOST
