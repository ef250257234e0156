"""Joins in whole jobs: savepoints, other numbers of tasks, failures, watermarks behind them, and what is refused."""

from collections import Counter
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit import stream_jobs
from tests.kit.two_streams import both, keyed

from headgate.errors import OptionError, StreamError, UnknownColumnError
from headgate.sink import FileSink, FunctionSink
from headgate.source import NumberSequenceSource, RateSource, WatermarkStrategy
from headgate.stream import Aggregate, CountWindow, TumblingWindow, stream

ROWS = 1500


def side(name, keys, rate=None, strategy=None):
    """Return a stream of rows with a key, a time and a number."""
    source = NumberSequenceSource(0, ROWS, splits=2, batch_size=100)
    if rate is not None:
        source = RateSource(rate, rows=ROWS, start_time=0, splits=2)
    times = WatermarkStrategy.for_bounded_out_of_orderness(0).with_timestamp_assigner(
        lambda batch: batch["id"].cast(pa.timestamp("ms"))
    )
    return stream(source, watermarks=strategy or times, name=name).map(
        partial(with_key, name, keys), name=f"{name}-keys"
    )


def with_key(name, keys, batch):
    ids = batch["id"]
    key = pc.subtract(ids, pc.multiply(pc.divide(ids, keys), keys))
    return pa.record_batch({"key": key, "at": ids.cast(pa.timestamp("ms")), name: ids})


def pairs(first, last):
    """Return the pairs of numbers of both sides within an interval."""
    numbers = [(n % 7, n) for n in range(ROWS)], [(n % 5, n) for n in range(ROWS)]
    return Counter(
        (key, at, other_at)
        for key, at in numbers[0]
        for other_at in range(max(0, at + first), min(ROWS - 1, at + last) + 1)
        if other_at % 5 == key
    )


@pytest.mark.parametrize("alignment", ["aligned", "unaligned"])
@pytest.mark.parametrize("fails", [False, True])
def test_an_interval_join_continues_from_where_it_was(tmp_path, fails, alignment):
    def job(fail, rate=3000):
        left = side("left", 7, rate)
        if fail:
            left = left.map(stream_jobs.FailOnce(tmp_path / "failed", 200), name="fail")
        right = side("right", 5, rate)
        joined = left.key_by("key").join(
            right.key_by("key"), within=("-20ms", "30ms"), time="at", name="join"
        )
        return joined.sink(FileSink(str(tmp_path / "out"), mode="append"), name="files")

    query = job(fails, 3000 if fails else 300).start(
        checkpoint=str(tmp_path / "first"),
        interval=0.05,
        parallelism=2,
        restart_delay=0,
        alignment=alignment,
    )
    if fails:
        query.await_termination()
        assert query.status.restarts == 1
    else:
        stream_jobs.wait_for_a_checkpoint(query)
        savepoint = query.stop(savepoint=str(tmp_path / "savepoint"))
        job(False).run(checkpoint=str(tmp_path / "second"), savepoint=savepoint, parallelism=3)
    rows = stream_jobs.rows_of(tmp_path / "out")
    columns = (rows[name].to_pylist() for name in ("key", "left", "right"))
    assert Counter(zip(*columns, strict=True)) == pairs(-20, 30)


@pytest.mark.parametrize("time", ["at", "at_right"])
def test_times_of_both_sides_are_event_times_behind_an_interval_join(time):
    joined = (
        side("left", 7, 3000)
        .key_by("key")
        .join(side("right", 5, 3000).key_by("key"), within="200ms", time="at")
    )
    counts = joined.key_by("key").window(
        TumblingWindow("10ms"), time=time, aggregates=[Aggregate("count")], name="counts"
    )
    batches = []
    query = counts.sink(FunctionSink(batches.append)).start(parallelism=2)
    query.await_termination()
    assert "counts" not in query.status.dropped
    total = sum(pc.sum(batch["count"]).as_py() for batch in batches)
    assert total == pairs(-200, 200).total()


def test_a_late_row_is_in_a_side_output_or_counted():
    falling = WatermarkStrategy.for_bounded_out_of_orderness(0).with_timestamp_assigner(
        lambda batch: pc.subtract(ROWS, batch["id"]).cast(pa.timestamp("ms"))
    )

    def rows(name):
        numbers = side(name, 7, 3000, falling)
        return numbers.map(turned, name=f"{name}-turned").key_by("key")

    for is_read in (True, False):
        joined = rows("left").join(rows("right"), as_of="at", how="left", name="join")
        batches, late = [], []
        if is_read:
            joined.side_output("late").sink(FunctionSink(late.append))
        query = joined.sink(FunctionSink(batches.append)).start(parallelism=2)
        query.await_termination()
        emitted = sum(batch.num_rows for batch in batches)
        counted = query.status.dropped.get("join", {}).get("numLateRecordsDropped", 0)
        assert 0 < sum(batch.num_rows for batch in late) + counted == ROWS - emitted
        assert bool(counted) is not is_read


def turned(batch):
    return batch.set_column(1, "at", pc.subtract(ROWS, batch.column(2)).cast(pa.timestamp("ms")))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"how": "outer"}, OptionError),
        ({"time": "at"}, OptionError),
        ({"ttl": 5}, OptionError),
        ({"ttl": "1h", "within": "1h", "time": ("at", "time")}, OptionError),
        ({"within": "1h"}, OptionError),
        ({"within": 5, "time": ("at", "time")}, OptionError),
        ({"within": ("1h", "-1h"), "time": ("at", "time")}, OptionError),
        ({"within": ("0s", pc.field("missing")), "time": ("at", "time")}, OptionError),
        ({"within": "1h", "time": "at"}, UnknownColumnError),
        ({"within": "1h", "window": TumblingWindow("1h")}, OptionError),
        ({"window": CountWindow(3), "time": ("at", "time")}, OptionError),
        ({"window": TumblingWindow("1h")}, OptionError),
        ({"as_of": ("at", "time"), "how": "full"}, OptionError),
        ({"as_of": "time"}, UnknownColumnError),
        ({"suffixes": "_right"}, OptionError),
        ({"suffixes": ("", "")}, StreamError),
    ],
)
def test_a_join_that_cannot_be_is_refused_at_the_call(options, error):
    with pytest.raises(error):
        both(**options)


def test_streams_that_cannot_be_joined_are_refused():
    numbers, names = pa.schema([("key", pa.int64())]), pa.schema([("key", pa.string())])
    left = keyed(numbers, "key")
    with pytest.raises(StreamError, match="keys of different types"):
        left.join(keyed(names, "key"))
    with pytest.raises(StreamError, match=r"join\(\) of a DataStream"):
        left.join(left.filter(pc.field("key") > 0))
    endless = stream(RateSource(5)).key_by("id")
    with pytest.raises(StreamError, match="makes no watermarks"):
        endless.join(endless, within="1h", time="time")


def test_changes_go_through_a_join_to_other_changes():
    totals = side("left", 7).key_by("key").aggregate(Aggregate("count"), Aggregate("sum", "left"))
    joined = totals.key_by("key").join(side("right", 5).key_by("key"), how="left")
    counts = joined.key_by("key").aggregate(Aggregate("count", name="pairs"))
    batches = []
    counts.sink(FunctionSink(batches.append)).run(parallelism=2)
    there = Counter()
    for row in (row for batch in batches for row in batch.to_pylist()):
        sign = 1 if row.pop("_change_type") in {"insert", "update_after"} else -1
        there[tuple(row.values())] += sign
    # Keys 5 and 6 have no right rows.
    assert +there == Counter({(key, ROWS // 5 if key < 5 else 1): 1 for key in range(7)})


def test_a_stream_joins_itself():
    rows = side("left", 7).key_by("key")
    batches = []
    rows.join(rows, within="0s", time="at").sink(FunctionSink(batches.append)).run(parallelism=2)
    table = pa.Table.from_batches(batches)
    assert sorted(table["left"].to_pylist()) == list(range(ROWS))
    assert table["left"] == table["left_right"]


def test_a_join_of_keys_alone_has_the_keys():
    ids = [stream(NumberSequenceSource(0, last)).key_by("id") for last in (30, 20)]
    batches = []
    ids[0].join(ids[1]).sink(FunctionSink(batches.append)).run(parallelism=2)
    assert sorted(key for batch in batches for key in batch["id"].to_pylist()) == list(range(20))
