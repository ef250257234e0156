"""The harness of stream functions says what a job would do: rows, timers, side outputs, restarts, two inputs."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.errors import OptionError, SchemaMismatchError, StreamError
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import (
    Aggregate,
    CoProcessFunction,
    ProcessFunction,
    ReducingStateDescriptor,
    TumblingWindow,
    ValueStateDescriptor,
    stream,
)
from headgate.testing.streams import StreamHarness

ROWS = pa.schema([("key", pa.int64()), ("id", pa.int64())])
IDS = pa.schema([("id", pa.int64())])
SUMS = pa.schema([("key", pa.int64()), ("sum", pa.int64())])


class Sums(ProcessFunction):
    """Emits the sum of a key at a time of events, odd rows aside, and the keys by the wall clock."""

    def open(self, context):
        self.sum = context.get_state(ReducingStateDescriptor("sum", "sum", pa.int64()))

    def process(self, batch, context):
        self.sum.add(batch["id"])
        context.event_timers.register(pa.array([1000] * batch.num_rows))
        context.processing_timers.register(pa.array([50] * batch.num_rows))
        context.emit(batch.filter(pc.equal(pc.bit_wise_and(batch["id"], 1), 1)), "odd")
        return []

    def on_event_timers(self, timers, context):
        return context.keys.append_column("sum", self.sum.get())

    def on_processing_timers(self, timers, context):
        context.emit(
            context.keys.append_column("id", pa.array([-1] * context.keys.num_rows)), "odd"
        )
        return []


class Named(CoProcessFunction):
    def open(self, context):
        self.name = context.get_state(ValueStateDescriptor("name", pa.int64()))

    def process_first(self, batch, context):
        return context.keys.append_column("sum", self.name.get())

    def process_second(self, batch, context):
        self.name.put(batch["id"])
        return []


def sums(rows):
    return rows.key_by("key").process(Sums, schema=SUMS, side_outputs={"odd": ROWS})


def rows(*pairs):
    return pa.record_batch([[k for k, _ in pairs], [n for _, n in pairs]], schema=ROWS)


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_state_and_timers_survive_a_restart(restarts):
    with StreamHarness(sums, ROWS) as harness:
        harness.process(rows((1, 1), (2, 2)))
        for _ in range(restarts):
            harness.restart()
        harness.process(rows((1, 3)))
        harness.advance_watermark(999)
        assert harness.take().num_rows == 0
        assert harness.take("odd").to_pylist() == [{"key": 1, "id": 1}, {"key": 1, "id": 3}]
        harness.advance_watermark(datetime.fromtimestamp(1, UTC))
        assert sorted(harness.take().to_pydict()["sum"]) == [2, 4]
        harness.advance_processing_time(49)
        assert harness.take("odd").num_rows == 0
        harness.advance_processing_time(50)
        assert sorted(harness.take("odd")["key"].to_pylist()) == [1, 2]


def test_the_result_is_that_of_a_job():
    def with_key(batch):
        return pa.record_batch([pc.bit_wise_and(batch["id"], 3), batch["id"]], schema=ROWS)

    found = []
    numbers = stream(NumberSequenceSource(0, 100)).map(with_key, schema=ROWS)
    sums(numbers).sink(FunctionSink(found.append)).run(parallelism=2)
    with StreamHarness(lambda ids: sums(ids.map(with_key, schema=ROWS)), IDS) as harness:
        for start in range(0, 100, 7):
            harness.process(pa.table({"id": range(start, min(100, start + 7))}))
        harness.end()
        made = harness.take()
    assert made.sort_by("key").equals(pa.Table.from_batches(found).sort_by("key"))


def test_windows_close_with_the_watermark():
    def counts(rows):
        window = TumblingWindow("1 second")
        return rows.key_by("key").window(window, time="id", aggregates=[Aggregate("count")])

    with StreamHarness(counts, ROWS) as harness:
        harness.process(rows((1, 10), (1, 20), (1, 1500)))
        harness.advance_watermark(1000)
        assert harness.take()["count"].to_pylist() == [2]
        harness.restart()
        harness.advance_watermark(1000)
        harness.process(rows((1, 30)))
        assert harness.take("late").num_rows == 1
        harness.end()
        assert harness.take()["count"].to_pylist() == [1]


def test_two_inputs_share_their_state():
    def named(first, second):
        return first.key_by("key").connect(second.key_by("key")).process(Named, schema=SUMS)

    with StreamHarness(named, ROWS, ROWS) as harness:
        harness.process(rows((1, 7)), input=1)
        harness.process(rows((1, 0), (2, 0)))
        assert harness.take().to_pydict() == {"key": [1, 2], "sum": [7, None]}


def test_a_harness_refuses_what_a_job_refuses():
    with pytest.raises(OptionError, match="build returned"):
        StreamHarness(lambda rows: None, ROWS)
    with StreamHarness(lambda rows: rows.map(lambda batch: None, schema=ROWS), ROWS) as harness:
        with pytest.raises(SchemaMismatchError, match="returned None"):
            harness.process(rows((1, 1)))
        with pytest.raises(SchemaMismatchError, match="no column"):
            harness.process(pa.table({"x": [1]}))
        with pytest.raises(StreamError, match="no side output"):
            harness.take("odd")
