"""Small pages joined into larger batches."""

import asyncio

import polars as pl
import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, exchange, numbers, open_gates

import headgate as hg
from headgate import errors

#: Lets many pages wait for a reader that has not started.
ROOM = {"segment_size": "16k", "max_buffers_per_channel": 100, "floating_buffers_per_gate": 100}


def emit_small(*batches):
    """Write each batch as pages of its own."""

    def emit(writer):
        for batch in batches:
            writer.emit(batch)
            writer.flush()

    return emit


def waiting(environment, batches, *, subpartitions=1, **options):
    """Return a reader whose data has all arrived."""
    partition = environment.create_result_partition(subpartitions, schema=NUMBERS)
    gate = environment.create_input_gate([partition.address(i) for i in range(subpartitions)])
    with hg.RecordWriter(partition, buffer_timeout=-1) as writer:
        for batch in batches:
            writer.emit(batch)
            writer.flush()
    return hg.RecordReader(gate, **options)


def test_rows_are_the_same_and_batches_fewer(environment):
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


def test_channels_share_a_batch(environment):
    reader = waiting(environment(**ROOM), [numbers(10)] * 8, subpartitions=4, batch_bytes="64k")
    assert [batch.num_rows for batch in reader] == [80]


@pytest.mark.parametrize("size", ["4k", "300k", "1m"])
def test_all_batch_sizes_keep_every_row_in_order(link, size):
    producer, consumer = link(memory="2m", segment_size="16k")
    batches = [numbers(777, start) for start in range(0, 77_700, 777)]
    [got] = exchange(producer, consumer, emit_small(*batches), schema=NUMBERS, batch_bytes=size)
    assert_same(got, pa.Table.from_batches(batches))


def test_events_stay_between_the_rows_they_came_between(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    seen = []
    reader = hg.RecordReader(
        gate, batch_bytes="64k", on_event=lambda event: seen.append(event.name)
    )
    with hg.RecordWriter(partition) as writer:
        for part in range(3):
            for start in range(3):
                writer.emit(numbers(5, 100 * part + 5 * start))
                writer.flush()
            writer.broadcast_event(f"after {part}")
    rows = 0
    for batch in reader:
        part, before = divmod(rows, 15)
        assert len(seen) == part, "an event follows its rows at once"
        assert before + batch.num_rows <= 15, "no batch spans an event"
        rows += batch.num_rows
    assert rows == 45
    assert seen == ["after 0", "after 1", "after 2"]


def test_a_poll_keeps_nothing_back(environment):
    env = environment()
    partition = env.create_result_partition(1, schema=NUMBERS)
    reader = hg.RecordReader(*open_gates(partition, env), batch_bytes="1m")
    writer = hg.RecordWriter(partition, buffer_timeout=-1)
    for count in (1, 3):
        for _ in range(count):
            writer.emit(numbers(10))
            writer.flush()
        assert reader.poll_next().num_rows == 10 * count
        assert reader.poll_next() is None
        assert not reader.is_available
    writer.finish()
    assert reader.poll_next() is None
    assert reader.is_finished


def test_it_is_not_finished_while_rows_are_left(environment):
    batches = [numbers(10, start) for start in range(0, 130, 10)]
    reader = waiting(environment(**ROOM), batches, batch_bytes=1024)
    assert reader.poll_next().num_rows == 112
    while not reader.is_finished:
        assert reader.is_available
        rest = reader.poll_next()
    assert rest is None or rest.num_rows == 18


def test_all_ways_of_reading(environment):
    def reader():
        env = environment(**ROOM)
        return waiting(env, [numbers(10, start) for start in range(0, 500, 10)], batch_bytes="1k")

    async def loop():
        return [batch async for batch in reader()]

    expected = numbers(500)
    assert_same(pa.Table.from_batches(asyncio.run(loop())), pa.Table.from_batches([expected]))
    table = reader().read_all()
    assert table.column(0).num_chunks == 5
    assert_same(table, pa.Table.from_batches([expected]))
    assert pl.from_arrow(reader().to_reader()).height == 500


def test_a_waiting_reader_gets_the_next_page_at_once(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate, batch_bytes="1m")
    first = Task(next, reader)
    writer = hg.RecordWriter(partition)
    writer.emit(numbers(10))
    writer.flush()
    assert first.result().num_rows == 10
    writer.finish()
    assert list(reader) == []


@pytest.mark.parametrize("size", ["2g", "many", -1, 1.5])
def test_a_size_that_is_none_is_refused(environment, size):
    gate = environment().create_input_gate(schema=NUMBERS)
    with pytest.raises(errors.OptionError, match="batch_bytes"):
        hg.RecordReader(gate, batch_bytes=size)


def test_records_that_are_no_batches_are_not_put_together(environment):
    gate = environment().create_input_gate()
    with pytest.raises(errors.OptionError, match="not batches"):
        hg.RecordReader(gate, serializer="bytes", batch_bytes="1m")
