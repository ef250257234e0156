"""Polling and event loops: how a reader waits, and how a wait ends."""

import asyncio
import random
import threading
import time
from pathlib import Path

import pytest
from plane import NUMBERS, PATIENCE, Task, numbers, open_gates, wait_until

import headgate as hg


def pair(link, **options):
    """Return a connected writer and reader of bytes records."""
    producer, consumer = link(**options)
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition, serializer="bytes")
    return writer, hg.RecordReader(gate, serializer="bytes")


def emit_slowly(writer, count):
    for number in range(count):
        if number % 10 == 0:
            time.sleep(0.002)
        writer.emit(b"%d" % number)
        writer.flush()
    writer.finish()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_poll_distinguishes_an_empty_gate_from_the_end(link):
    writer, reader = pair(link)
    nothing = object()
    assert reader.poll_next() is None
    assert reader.poll_next(nothing) is nothing
    assert not reader.is_finished
    assert not reader.is_available
    writer.emit(b"one")
    writer.flush()
    wait_until(lambda: reader.is_available)
    assert reader.poll_next(nothing) == b"one"
    writer.finish()
    wait_until(lambda: reader.poll_next(nothing) is nothing and reader.is_finished)
    assert reader.is_available, "available forever, because a poll finds the end"
    assert list(reader) == []


def test_a_pickled_none_is_a_record(environment):
    env = environment()
    partition = env.create_result_partition(1)
    reader = hg.RecordReader(*open_gates(partition, env), serializer="pickle")
    with hg.RecordWriter(partition, serializer="pickle") as writer:
        writer.emit(None)
    assert reader.poll_next("nothing") is None
    assert reader.poll_next("nothing") == "nothing"


def test_a_poll_finds_an_error_and_does_so_again(link):
    writer, reader = pair(link)
    writer.fail("broken")
    wait_until(lambda: reader.is_available)
    for _ in range(3):
        with pytest.raises(hg.HeadgateError, match="broken"):
            reader.poll_next()
    assert not reader.is_finished


def test_a_buffer_reader_polls_and_names_the_types_of_buffers(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    reader = hg.BufferReader(*open_gates(partition, consumer))
    assert reader.poll_next() is None
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(3))
        writer.broadcast_event("mine", b"body")
    buffers = []

    def read():
        if (buffer := reader.poll_next()) is not None:
            buffers.append(buffer)
        return reader.is_finished

    wait_until(read)
    kinds = [(buffer.data_type, buffer.sequence_number) for buffer in buffers]
    page, end = hg.DataType.DATA_BUFFER_WITH_CLEAR_END, hg.DataType.END_OF_PARTITION
    assert kinds == [(page, 0), (hg.DataType.EVENT_BUFFER, 1), (end, 2)]
    assert [kind.is_event for kind, _ in kinds] == [False, True, True]


def test_a_loop_goes_on_while_a_reader_waits_and_needs_no_thread(link):
    writer, reader = pair(link)

    async def consume():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        records = [record async for record in reader]
        ticking.cancel()
        return records, ticks

    threads = threading.active_count()

    def produce():
        for number in range(20):
            time.sleep(0.005)
            writer.emit(b"%d" % number)
            writer.flush()
        writer.finish()

    task = Task(produce)
    records, ticks = asyncio.run(asyncio.wait_for(consume(), PATIENCE))
    task.result()
    assert records == [b"%d" % number for number in range(20)]
    assert ticks > 5
    assert threading.active_count() <= threads + 1


def test_several_readers_share_a_loop_and_no_one_starves(link):
    producer, consumer = link(memory="16m")
    n = 5
    partition = producer.create_result_partition(n)
    readers = [hg.RecordReader(g, serializer="bytes") for g in open_gates(partition, consumer)]

    def produce():
        with hg.RecordWriter(partition, serializer="bytes") as writer:
            for number in range(2000):
                writer.emit(b"%d" % number)

    order = []

    async def consume(index):
        records = []
        async for record in readers[index]:
            records.append(record)
            order.append(index)
        return records

    async def main():
        return await asyncio.gather(*(consume(index) for index in range(n)))

    task = Task(produce)
    task.result()
    got = asyncio.run(asyncio.wait_for(main(), PATIENCE))
    for index, records in enumerate(got):
        assert records == [b"%d" % number for number in range(index, 2000, n)]
    if producer is consumer:
        # All records had arrived before the first was read, and the other tasks still ran.
        assert set(order[: 17 * n]) == set(range(n))


def test_a_task_that_is_cancelled_has_taken_nothing(link):
    writer, reader = pair(link)
    rng = random.Random(7)
    got = []

    async def once():
        try:
            got.append(await anext(reader))
        except StopAsyncIteration:
            return True
        return False

    async def main():
        cancelled = 0
        while True:
            task = asyncio.ensure_future(once())
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            if rng.random() < 0.5 and task.cancel():
                cancelled += 1
            done, _ = await asyncio.wait([task])
            finished = done.pop()
            if not finished.cancelled() and finished.result():
                return cancelled

    task = Task(emit_slowly, writer, 300)
    assert asyncio.run(asyncio.wait_for(main(), PATIENCE)) > 0
    task.result()
    assert got == [b"%d" % number for number in range(300)]


def test_the_descriptor_goes_with_the_end_with_close_and_with_the_reader(environment):
    env = environment()
    assert env.address  # starts listening
    before = descriptors()

    async def wait_a_little(reader):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(reader), 0.02)
        return descriptors()

    for leave in ("end", "close", "drop"):
        partition = env.create_result_partition(1)
        reader = hg.RecordReader(*open_gates(partition, env), serializer="bytes")

        async def main(reader=reader, partition=partition, leave=leave):
            loop_alone = descriptors()
            assert await wait_a_little(reader) == loop_alone + 2
            if leave == "end":
                with hg.RecordWriter(partition, serializer="bytes"):
                    pass
                assert [record async for record in reader] == []
            elif leave == "close":
                reader.close()
            return loop_alone

        loop_alone = asyncio.run(main())
        del reader, main
        assert descriptors() <= before < loop_alone


def test_closing_wakes_the_task_that_waits(link):
    _, reader = pair(link)
    before = descriptors()

    async def main():
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        closing = Task(reader.close)
        with pytest.raises(hg.errors.ClosedError):
            await waiting
        closing.result()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    if link.kind == "local":  # a connection may have been made meanwhile
        assert descriptors() <= before


def test_a_second_task_at_one_reader_is_refused_and_the_first_goes_on(link):
    writer, reader = pair(link)

    async def main():
        first = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0.02)
        with pytest.raises(hg.errors.ClosedError, match="another task"):
            await anext(reader)
        writer.emit(b"for the first")
        writer.flush()
        assert await first == b"for the first"
        writer.finish()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert list(reader) == []


def test_closing_ends_a_thread_that_waits(link):
    writer, reader = pair(link)
    waiting = Task(lambda: next(reader))
    time.sleep(0.05)
    assert waiting.running
    reader.close()
    assert isinstance(waiting.error(), hg.errors.ClosedError)
    assert not reader.is_finished
    del writer
