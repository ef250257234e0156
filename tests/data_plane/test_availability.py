"""Availability of writers, and the options that divide a pool."""

import signal
import threading
import time

import pytest
from plane import NUMBERS, Task, drain, numbers, open_gates

import headgate as hg


def fill(writer):
    """Emit full pages until the writer would block before the next record."""
    for _ in range(1000):
        if not writer.is_available:
            return
        writer.emit(numbers(8_000))
        writer.flush()
    raise AssertionError("it never waits")


def test_a_writer_is_available_until_the_consumers_are_behind(link):
    producer, consumer = link(memory="2m")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    assert writer.is_available
    assert writer.wait_available(0)
    fill(writer)
    assert writer.wait_available(0.01) is False
    before = writer.back_pressured_ns()
    assert before > 0
    waiting = Task(writer.wait_available)
    [gate] = open_gates(partition, consumer)
    reading = Task(drain, gate)
    assert waiting.result() is True
    writer.finish()
    assert reading.result().num_rows == writer.stats().rows
    assert writer.is_available


def test_a_wait_ends_with_the_failure_and_the_end_of_the_environment(environment):
    for end, words in [
        (lambda partition, _: partition.fail("disk on fire"), "disk on fire"),
        (lambda _, producer: producer.close(), "closed"),
    ]:
        producer = environment(memory="2m")
        partition = producer.create_result_partition(1, schema=NUMBERS)
        writer = hg.RecordWriter(partition)
        fill(writer)
        waiting = Task(writer.wait_available)
        end(partition, producer)
        assert words in str(waiting.error())


def test_a_wake_up_ends_the_wait_or_the_next_one(environment):
    producer = environment(memory="2m")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    fill(writer)
    writer.wake_up()
    assert writer.wait_available() is False
    waiting = Task(writer.wait_available)
    with pytest.raises(AssertionError, match="hangs"):
        waiting.join(0.2)
    writer.wake_up()
    assert waiting.result() is False


def test_a_signal_ends_the_wait_and_the_batch_is_not_begun(environment):
    class Stop(Exception):
        pass

    def handler(*_):
        raise Stop

    producer = environment(memory="2m")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    fill(writer)
    rows = writer.stats().rows
    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        for call in (writer.wait_available, lambda: writer.emit(numbers(8_000))):
            main = threading.main_thread().ident
            timer = threading.Timer(0.1, signal.pthread_kill, [main, signal.SIGUSR1])
            timer.start()
            with pytest.raises(Stop):
                call()
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    writer.flush()
    assert writer.stats().rows == rows


def test_a_bytes_writer_says_so_too(environment):
    producer = environment(memory="2m")
    partition = producer.create_result_partition(1)
    writer = hg.RecordWriter(partition, serializer="bytes")
    writing = Task(lambda: ([writer.emit(bytes(65_536)) for _ in range(100)], writer.finish()))
    deadline = time.monotonic() + 20
    while writer.is_available or not writer.back_pressured_ns():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not writer.wait_available(0)
    [gate] = open_gates(partition, producer)
    assert Task(drain, gate, serializer="bytes").result() == [bytes(65_536)] * 100
    writing.result()


def test_one_slow_consumer_does_not_take_segments_of_the_others(environment):
    producer = environment(max_buffers_per_channel=3, max_overdraft_buffers=0)
    partition = producer.create_result_partition(4, schema=NUMBERS)
    writer = hg.RecordWriter(partition, selector=lambda b: [0] * len(b))
    fill(writer)
    queued = [subpartition["queued"] for subpartition in producer.stats()["partitions"][0]]
    assert queued == [4, 0, 0, 0]  # three beside the one that may be open
    assert producer.stats()["segments"]["held"] == 4


@pytest.mark.parametrize("exclusive", [1, 3])
def test_a_channel_has_its_exclusive_buffers(environment, exclusive):
    producer, consumer = environment(), environment(buffers_per_channel=exclusive)
    partition = producer.create_result_partition(1, schema=NUMBERS)
    gates = open_gates(partition, consumer)
    [[channel]] = consumer.stats()["gates"]
    assert channel["credit"] == exclusive
    gates[0].close()


def test_the_wish_of_all_pools_is_a_number(environment):
    producer = environment(buffers_per_channel=1, floating_buffers_per_gate=2)
    assert producer.stats()["segments"]["requested_percent"] == 0
    producer.create_result_partition(15, schema=NUMBERS)
    # 15 x 2 + 2 of 128 segments
    assert producer.stats()["segments"]["requested_percent"] == 25
    assert producer.stats()["segments"]["reserved"] == 0


@pytest.mark.parametrize(
    ("option", "value", "limit"),
    [
        ("buffers_per_channel", -1, "0"),
        ("floating_buffers_per_gate", 0, "1"),
        ("max_buffers_per_channel", 0, "1"),
        ("max_overdraft_buffers", -1, "0"),
        ("buffers_per_channel", 10_001, "10000"),
    ],
)
def test_a_value_outside_its_limits_is_refused(option, value, limit):
    with pytest.raises(hg.errors.OptionError) as caught:
        hg.ShuffleEnvironment(**{option: value})
    text = str(caught.value)
    assert f"{option}={value}" in text
    assert f"the limit of {limit}" in text
