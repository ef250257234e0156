"""Event time in a job: channels that have ended, readers without splits, and alignment across sources."""

import struct
import threading
import time
from datetime import timedelta
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until

from headgate import RecordWriter, ShuffleEnvironment
from headgate.control.messages import Message
from headgate.errors import StreamError, UnknownColumnError, UnsupportedTypeError
from headgate.sink import FunctionSink
from headgate.source import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    HybridSource,
    NumberSequenceSource,
    RateSource,
    WatermarkStrategy,
)
from headgate.source.batch_source import BatchEnumerator
from headgate.source.rate import RateSplit
from headgate.source.runtime.mailbox import Mailbox
from headgate.source.sequential import BatchSourceReader, SequentialSplitReader
from headgate.stream import Aggregate, TumblingWindow, stream
from headgate.stream.job.odd_times import odd_time
from headgate.stream.job.sources import JobSources
from headgate.stream.runtime.inputs import GateInput, SourceInput
from headgate.stream.runtime.outputs import IDLE, WATERMARK

SCHEMA = pa.schema([("id", pa.int64())])


def test_windows_close_by_the_interval_of_watermarks():
    """While the job runs with a short one; with one longer than the job only at the end of the rows."""

    def seconds_of_results(interval):
        results = []
        times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
        source = RateSource(1000, rows=1000, start_time=stream_jobs.START)
        rows = stream(source, watermarks=times).map(
            lambda batch: batch.append_column("key", pc.bit_wise_and(batch["id"], 3))
        )
        (
            rows.key_by("key")
            .window(
                TumblingWindow(timedelta(milliseconds=100)),
                time="time",
                aggregates=[Aggregate("count")],
            )
            .sink(FunctionSink(lambda batch: results.append((time.monotonic(), batch))))
        ).run(watermark_interval=interval, parallelism=2)
        assert sum(pc.sum(batch["count"]).as_py() for _, batch in results) == 1000
        return results[-1][0] - results[0][0]

    assert seconds_of_results("5ms") > 0.5
    assert seconds_of_results("1m") < 0.3


class Heard:
    """A handler that keeps watermarks, and "idle" for idleness."""

    def __init__(self):
        self.all = []

    def handle_watermark(self, watermark):
        self.all.append(watermark)

    def handle_idle(self):
        self.all.append("idle")

    def handle_batch(self, batch):
        self.all.append(batch["id"].to_pylist())

    @property
    def new(self):
        found, self.all = self.all, []
        return found


@pytest.fixture
def gate():
    """A gate of two channels: what the task hears, and a function that sends a watermark, or None for idleness."""
    heard = Heard()
    with ShuffleEnvironment() as environment:
        parts = [environment.create_result_partition(1, schema=SCHEMA) for _ in range(2)]
        writers = [RecordWriter(part, SCHEMA) for part in parts]
        opened = environment.create_input_gate([part.address(0) for part in parts], schema=SCHEMA)
        gate = GateInput(opened, SCHEMA, heard, Mailbox(), 1024)

        def send(channel, watermark):
            if watermark is None:
                writers[channel].broadcast_event(IDLE)
            else:
                writers[channel].broadcast_event(WATERMARK, struct.pack(">q", watermark))
            while gate.advance():
                pass
            return heard.new

        yield send
        for writer in writers:
            writer.finish()
        gate.close()


def test_spec_section_13_6_a_channel_that_has_ended_does_not_end_time_for_an_idle_one(gate):
    """FLINK-38477."""
    assert gate(0, 10) == []
    assert gate(1, 20) == [10]
    assert gate(0, None) == [20]
    assert gate(1, MAX_WATERMARK) == ["idle"]
    assert gate(0, 15) == [20], "active again, and behind"
    assert gate(0, 30) == [30]
    assert gate(0, MAX_WATERMARK) == [MAX_WATERMARK]


def test_a_channel_that_ends_while_all_are_idle_makes_nobody_active(gate):
    assert gate(0, 10) == []
    assert gate(0, None) == []
    assert gate(1, None) == [10, "idle"]
    assert gate(0, MAX_WATERMARK) == []
    assert gate(1, 40) == [40]


def test_a_channel_that_is_behind_is_waited_for_once_it_is_the_only_one(gate):
    assert gate(0, None) == []
    assert gate(1, 100) == [100]
    assert gate(0, 20) == []
    assert gate(1, MAX_WATERMARK) == []
    assert gate(0, 90) == []
    assert gate(0, 101) == [101]


class Operator:
    """An operator whose script says what it returns and whether it is idle then."""

    def __init__(self, *script):
        self.script, self.is_idle, self.current_watermark = list(script), False, MIN_WATERMARK

    def poll(self):
        found, self.is_idle, self.current_watermark = self.script.pop(0)
        return found


def test_a_reader_that_is_active_again_before_its_first_watermark_is_waited_for():
    rows = pa.record_batch({"id": [7]})
    script = [(None, True, MIN_WATERMARK), (rows, False, MIN_WATERMARK), (None, False, 5)]
    heard = Heard()
    source = SourceInput(Operator(*script), SCHEMA, heard, Mailbox())
    for _ in script:
        source.advance()
    assert heard.all == ["idle", [7], MIN_WATERMARK, 5]


def test_a_channel_that_is_active_without_a_watermark_is_waited_for(gate):
    assert gate(0, None) == []
    assert gate(1, None) == ["idle"]
    assert gate(0, MIN_WATERMARK) == [MIN_WATERMARK]
    assert gate(1, 1000) == []
    assert gate(0, 100) == [100]


def test_spec_section_13_6_sources_of_a_job_with_one_alignment_group_wait_for_each_other():
    strategy = WatermarkStrategy.no_watermarks().with_watermark_alignment("group", 100, 0.05)
    slow, fast = (
        stream(NumberSequenceSource(0, 9), watermarks=strategy, name=name)
        for name in ("slow", "fast")
    )
    told, came = [], threading.Event()

    def send(kind, task, fields):
        if kind == "ALIGN":
            told.append((task, fields["ms"]))
            if {task for task, _ in told} == {(0, 0), (1, 0)}:
                came.set()

    sources = JobSources(slow.union(fast).sink(FunctionSink(print)).plan(1), None, send, print)
    sources.start(lambda _: "here")
    try:
        for stage, watermark in enumerate((7, 5000)):
            fields = {"attempt": 1, "task": [stage, 0], "ms": watermark}
            sources.handle(Message("WATERMARK", fields))
        assert came.wait(30)
    finally:
        sources.close()
    assert set(told) == {((0, 0), 107), ((1, 0), 107)}


class Waiting(BatchEnumerator):
    """Has one split, and lets the other readers wait."""

    def add_reader(self, subtask_id):
        if subtask_id == 0:
            self._context.assign_splits({0: self._splits})


class OneSplit(RateSource):
    def create_enumerator(self, context):
        return Waiting(context, self, [RateSplit(0, 1, stream_jobs.START)], 0)


def test_spec_section_13_6_a_reader_that_waits_for_a_split_becomes_idle_and_holds_no_window_back():
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(0.3)
    rows = stream(OneSplit(1000), watermarks=strategy, parallelism=2).map(
        lambda batch: batch.append_column("key", pa.array([0] * batch.num_rows, pa.int64()))
    )
    windows = rows.key_by("key").window(
        TumblingWindow(timedelta(milliseconds=100)), time="time", aggregates=[Aggregate("count")]
    )
    got = []
    with windows.sink(FunctionSink(got.append)).start(parallelism=2) as query:
        wait_until(lambda: sum(map(len, got)) >= 3 or query.state.is_over)
        assert not query.state.is_over
    assert set(pa.Table.from_batches(got)["count"].to_pylist()) == {100}


@pytest.mark.parametrize("drain", [False, True])
def test_spec_section_13_6_open_windows_close_when_a_job_is_drained_and_not_when_it_is_stopped(
    tmp_path, drain
):
    strategy, got, rows = WatermarkStrategy.for_monotonous_timestamps(), [], []

    def count(batch):
        rows.append(batch.num_rows)
        return batch

    windows = (
        stream(RateSource(1000, start_time=0), watermarks=strategy)
        .map(count)
        .key_by("id")
        .window(TumblingWindow(timedelta(days=1)), time="time", aggregates=[Aggregate("count")])
    )
    job = windows.sink(FunctionSink(got.append))
    query = job.start(parallelism=2, checkpoint=str(tmp_path / "checkpoints"), interval=0.1)
    stream_jobs.wait_for_a_checkpoint(query)
    assert sum(map(len, got)) == 0
    query.stop(drain=drain)
    assert sum(rows) > 0
    assert sum(map(len, got)) == (sum(rows) if drain else 0)


class InRuns(RateSource):
    """Two splits that always have rows, of which a reader reads the first to its end before the second."""

    def create_reader(self, context):
        def opened(split):
            return self.open_split(split, 1)

        return BatchSourceReader(lambda: SequentialSplitReader(opened), context)


class Unordered(BatchSourceReader):
    """A reader that does not say that it reads one split after another."""

    reads_in_order = False


class InRunsUnsaid(InRuns):
    def create_reader(self, context):
        reader = super().create_reader(context)
        reader.__class__ = Unordered
        return reader


def padded(batch):
    """Return rows so wide that few fit in a page."""
    at = batch["time"].cast(pa.timestamp("ms"))
    pad = pa.array(["x" * 400_000] * batch.num_rows, pa.string())
    key = pa.array([0] * batch.num_rows, pa.int64())
    return pa.record_batch({"key": key, "at": at, "pad": pad})


def late_rows(source, slow, *, behind):
    """Return the late rows of windows behind a slow map, which is chained to the source or behind an exchange."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(0.3)
    rows = stream(source, watermarks=strategy, parallelism=1).map(padded)
    rows = (rows.rebalance() if behind else rows).map(slow)
    late, found = [], []
    windows = rows.key_by("key").window(
        TumblingWindow(timedelta(milliseconds=1)),
        time="at",
        aggregates=[Aggregate("count", name="n")],
    )
    windows.side_output("late").sink(FunctionSink(late.append))
    windows.sink(FunctionSink(found.append)).run(options={"memory": "8m"})
    late_count = sum(batch.num_rows for batch in late)
    assert sum(sum(batch["n"].to_pylist()) for batch in found) + late_count == ROWS
    return late_count


ROWS = 160


@pytest.mark.parametrize(
    ("kind", "behind"),
    [(InRuns, True), (InRuns, False), (InRunsUnsaid, True)],
    ids=["a slow stage behind", "a slow function in the task", "a reader that says nothing"],
)
def test_spec_section_13_6_a_split_that_waits_for_another_one_is_not_idle(kind, behind):
    """FLINK-35886. Time under back-pressure, and time in which the reader reads another split, makes nothing idle."""

    def slow(batch):
        if batch.num_rows:
            threading.Event().wait(0.015 * batch.num_rows)
        return batch

    source = kind(100_000, rows=ROWS, splits=2, batch_size=1, start_time=0)
    assert late_rows(source, slow, behind=behind) == 0


ENDLESS, ENDING = NumberSequenceSource(0), NumberSequenceSource(0, 9)
NONE, IDLE_ONLY = None, WatermarkStrategy.no_watermarks().with_idleness("1s")
MAKES = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("id")


class WithOwn(NumberSequenceSource):
    """A source whose readers emit watermarks of their own."""

    emits_watermarks = True


def chain(first, second):
    return HybridSource.builder(first).add_source(second).build()


def windows_of(*sources):
    """Return windows of the union of streams, each with a map in between."""
    first, *rest = (
        stream(source, watermarks=watermarks, name=f"source {number}").map(stream_jobs.same)
        for number, (source, watermarks) in enumerate(sources)
    )
    return (
        first.union(*rest)
        .key_by("id")
        .window(
            TumblingWindow(timedelta(seconds=1)),
            time="id",
            aggregates=[Aggregate("count", name="n")],
            name="seconds",
        )
    )


@pytest.mark.parametrize(
    "sources",
    [
        [(ENDLESS, NONE)],
        [(ENDLESS, WatermarkStrategy.no_watermarks())],
        [(ENDLESS, IDLE_ONLY)],
        [(ENDLESS, MAKES), (ENDLESS, NONE)],
        [(ENDING, NONE), (ENDLESS, NONE)],
        [(chain(ENDING, ENDLESS), NONE)],
    ],
    ids=[
        "none",
        "no_watermarks()",
        "idleness alone",
        "one of two",
        "beside one that ends",
        "hybrid",
    ],
)
def test_windows_that_could_never_close_are_refused_at_the_call(sources):
    with pytest.raises(StreamError, match="no window of seconds would ever close") as caught:
        windows_of(*sources)
    assert "for_bounded_out_of_orderness" in caught.value.remedy


@pytest.mark.parametrize(
    "sources",
    [
        [(ENDLESS, MAKES)],
        [(ENDING, NONE)],
        [(ENDLESS, MAKES), (ENDING, NONE)],
        [(ENDLESS, MAKES), (ENDLESS, IDLE_ONLY)],
        [(WithOwn(0), NONE)],
        [(chain(ENDING, ENDING), NONE)],
    ],
    ids=[
        "makes them",
        "ends",
        "beside one that ends",
        "one that is idle",
        "own",
        "hybrid that ends",
    ],
)
def test_windows_that_can_close_are_taken(sources):
    assert windows_of(*sources).schema.names[0] == "id"


@pytest.mark.parametrize(
    ("factor", "name"), [(0.001, "seconds"), (1, None), (1000, "microseconds"), (10**6, "nanosec")]
)
def test_event_time_of_another_unit_is_a_notice(factor, name):
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda batch: pc.multiply(batch["time"].cast(pa.int64()), factor).cast(
            pa.int64(), safe=False
        )
    )
    rows = stream(RateSource(1000, start_time=stream_jobs.START), watermarks=times)
    with rows.sink(FunctionSink(len)).start() as query:
        wait_until(lambda: any(task.watermark is not None for task in query.status.tasks))
        notices = [notice for notice in query.status.notices if "event time" in notice]
    assert len(notices) == (name is not None)
    if notices:
        assert name in notices[0]
        assert notices[0].startswith("event time is in the year 1970") == (name == "seconds")


def test_event_time_of_our_time_is_none():
    assert odd_time(stream_jobs.START) is None
    assert odd_time(MIN_WATERMARK) is odd_time(MAX_WATERMARK) is odd_time(-1) is None


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        ("tiem", UnknownColumnError, r"with_timestamp_assigner\('time'\)"),
        ("text", UnsupportedTypeError, "column 'text' is of type string"),
        ("twice", UnknownColumnError, "more than one column 'twice'"),
    ],
)
def test_a_wrong_column_of_watermarks_is_told_at_the_call(column, error, message):
    fields = [("id", pa.int64()), ("time", pa.int64()), ("text", pa.string())]
    schema = pa.schema([*fields, ("twice", pa.int64()), ("twice", pa.int64())])
    source = NumberSequenceSource(0, 9)
    with patch.object(NumberSequenceSource, "schema", schema), pytest.raises(error, match=message):
        stream(
            source,
            watermarks=WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
                column
            ),
        )
