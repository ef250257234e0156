"""Contract of RecordReader: batches, events, larger batches, Arrow streams, errors, and its end.

How a reader waits and polls is in test_polling.py.
"""

import asyncio

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, exchange, numbers, open_gates

import headgate as hg

errors = hg.errors
SCHEMA = pa.schema({"n": pa.int64(), "s": pa.string()})
BATCHES = [
    pa.record_batch([list(range(i, i + 100)), [f"row {j}" for j in range(i, i + 100)]], SCHEMA)
    for i in range(0, 1000, 100)
]
#: Lets many pages wait for a reader that has not started.
ROOM = {"segment_size": "16k", "max_buffers_per_channel": 100, "floating_buffers_per_gate": 100}


def waiting(env, batches, **options):
    """Return a reader whose data has all arrived, each batch as a page of its own."""
    partition = env.create_result_partition(1, schema=batches[0].schema)
    with hg.RecordWriter(partition, buffer_timeout=-1) as writer:
        for batch in batches:
            writer.emit(batch)
            writer.flush()
    return hg.RecordReader(*open_gates(partition, env), **options)


def test_a_reader_that_is_at_its_end_stays_there(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(3))
    reader = hg.RecordReader(gate)
    assert len(Task(list, reader).result()) == 1
    for _ in range(2):
        assert Task(list, reader).result() == []


def test_a_dropped_batch_gives_its_segment_back(link):
    producer, consumer = link(memory="1m", segment_size="64k")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    writer = hg.RecordWriter(partition)
    writer.emit(numbers(10))
    writer.flush()
    batch = Task(next, reader).result()
    column = batch.column(0)
    assert consumer.stats()["segments"]["pinned"] == 1
    del batch
    assert consumer.stats()["segments"]["pinned"] == 1  # the column still refers to it
    del column
    assert consumer.stats()["segments"]["pinned"] == 0
    writer.finish()
    assert Task(list, reader).result() == []


def test_a_reader_with_a_lower_limit_refuses_the_record(environment):
    producer, consumer = environment(), environment(max_record_size="100k")
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(b"first")
        writer.emit(bytes(200_000))
    reader = hg.RecordReader(gate, serializer="bytes")
    assert Task(next, reader).result() == b"first"
    for _ in range(2):
        assert isinstance(Task(next, reader).error(5), errors.RecordTooLargeError)


@pytest.mark.parametrize("serializer", ["bytes", "pickle"])
def test_events_among_records(environment, serializer):
    seen = []

    def write(writer):
        writer.emit(b"one")
        writer.emit(b"x" * 200_000)
        writer.broadcast_event("between", b"body")
        writer.emit(b"two")

    [got] = exchange(
        environment(), environment(), write, serializer=serializer, on_event=seen.append
    )
    assert got == [b"one", b"x" * 200_000, b"two"]
    assert seen == [hg.Event(0, "between", b"body")]


def test_events_without_a_handler_are_dropped(environment):
    def write(writer):
        writer.broadcast_event("a", b"")
        writer.emit(numbers(3))
        writer.broadcast_event("b", b"")

    [got] = exchange(environment(), environment(), write, schema=NUMBERS)
    assert_same(got, numbers(3))


def test_pages_are_joined_up_to_a_size(environment):
    batches = [numbers(10, start) for start in range(0, 500, 10)]
    env = environment(**ROOM)
    reader = waiting(env, batches, batch_bytes="1k")
    got = list(reader)
    # 112 numbers of 8 bytes, a header of 64 bytes and 64 bytes for nulls.
    assert [batch.num_rows for batch in got] == [112, 112, 112, 112, 52]
    assert_same(pa.Table.from_batches(got), pa.Table.from_batches(batches))
    copies = env.stats()["copies"]
    assert copies["coalesced"] == copies["scatter"] > 0
    assert copies["pool_low"] == 0
    assert reader.totals()[0] == 500


def test_without_the_size_each_page_is_a_batch(environment):
    env = environment(**ROOM)
    reader = waiting(env, [numbers(10)] * 5, batch_bytes=0)
    assert [batch.num_rows for batch in reader] == [10] * 5
    assert env.stats()["copies"]["coalesced"] == 0


def test_all_ways_of_reading_join_pages(environment):
    def reader():
        batches = [numbers(10, start) for start in range(0, 500, 10)]
        return waiting(environment(**ROOM), batches, batch_bytes="1k")

    async def loop():
        return [batch async for batch in reader()]

    expected = pa.Table.from_batches([numbers(500)])
    assert_same(pa.Table.from_batches(asyncio.run(loop())), expected)
    table = reader().read_all()
    assert table.column(0).num_chunks == 5
    assert_same(table, expected)
    assert pl.from_arrow(reader().to_reader()).height == 500


@pytest.mark.parametrize("size", ["2g", "many", -1, 1.5])
def test_a_size_that_is_none_is_refused(environment, size):
    gate = environment().create_input_gate(schema=NUMBERS)
    with pytest.raises(errors.OptionError, match="batch_bytes"):
        hg.RecordReader(gate, batch_bytes=size)


def test_all_of_it_as_a_table(environment):
    reader = waiting(environment(), BATCHES)
    assert reader.read_all() == pa.Table.from_batches(BATCHES)
    assert reader.read_all().num_rows == 0


def test_the_remaining_batches_as_a_pyarrow_reader(environment):
    reader = waiting(environment(), BATCHES)
    first = next(reader)
    rest = reader.to_reader()
    assert rest.schema == SCHEMA
    assert first.num_rows + sum(batch.num_rows for batch in rest) == 1000


def test_polars_takes_the_reader_itself(environment):
    frame = pl.DataFrame(waiting(environment(), BATCHES))
    assert frame["n"].to_list() == list(range(1000))


def test_duckdb_reads_while_it_asks(environment):
    stream = waiting(environment(), BATCHES).to_reader()  # noqa: F841 - duckdb finds the variable by its name
    with duckdb.connect() as connection:
        assert connection.execute("SELECT sum(n), max(s) FROM stream").fetchone() == (
            499_500,
            "row 999",
        )


def test_a_failure_comes_through_a_stream(environment):
    env = environment()
    partition = env.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    writer.emit(numbers(3))
    writer.flush()
    reader = hg.RecordReader(*open_gates(partition, env))
    partition.fail("the disk is full")
    with pytest.raises(errors.ProducerFailedError, match="the disk is full"):
        reader.read_all()


def test_bytes_are_neither_a_stream_nor_joined(environment):
    env = environment()
    partition = env.create_result_partition(1)
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(b"abc")
    [gate] = open_gates(partition, env)
    with pytest.raises(errors.OptionError, match="not batches"):
        hg.RecordReader(gate, serializer="bytes", batch_bytes="1m")
    with pytest.raises(errors.OptionError, match="are not Arrow batches"):
        hg.RecordReader(gate, serializer="bytes").read_all()
