"""Contract of ResultPartition: its kinds, its consumers, failures, requests that wait for it, and its end."""

import dataclasses
import struct
import time

import pytest
import wire
from plane import (
    NUMBERS,
    SECRET,
    Task,
    assert_same,
    drain,
    numbers,
    open_files,
    open_gates,
    wait_until,
)

import headgate as hg

errors = hg.errors
LATER = bytes(range(16))


def fill(partition, batches=200):
    with hg.RecordWriter(partition) as writer:
        for turn in range(batches):
            writer.emit(numbers(10_000, 10_000 * turn))


def read(consumer, partition):
    gate = consumer.create_input_gate([partition.address(0)])
    try:
        return Task(drain, gate).result()
    finally:
        gate.close()


def test_a_blocking_partition_is_read_after_its_end_and_stays_until_it_is_closed(
    environment, tmp_path
):
    env = environment(memory="4m", temp_directories=tmp_path)
    partition = env.create_result_partition(1, kind="blocking", schema=NUMBERS)
    assert partition.kind == "blocking"
    with pytest.raises(errors.PartitionNotFoundError, match="before its writer has finished"):
        read(env, partition)
    fill(partition)
    assert len(open_files(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []
    assert env.stats()["spilled"]["bytes_written"] > 16_000_000
    for _ in range(2):
        assert_same(read(env, partition), numbers(2_000_000))
    assert partition.wait_consumed(0)
    assert not partition.is_released
    partition.close()
    assert partition.is_released
    wait_until(lambda: open_files(tmp_path) == [])
    with pytest.raises(errors.PartitionNotFoundError):
        read(env, partition)


def test_the_limit_of_a_blocking_partition_is_an_error_of_its_writer(environment):
    producer = environment(memory="4m", max_spill_size="3m")
    partition = producer.create_result_partition(1, kind="blocking", schema=NUMBERS)
    with pytest.raises(errors.SpillError, match="needs more than 3145728 bytes on disk"):
        fill(partition)
    larger = producer.create_result_partition(
        1, kind="blocking", schema=NUMBERS, max_spill_size="1g"
    )
    fill(larger)
    assert_same(read(producer, larger), numbers(2_000_000))


@pytest.mark.parametrize(
    "options",
    [
        {"num_subpartitions": 0},
        {"num_subpartitions": -1},
        {"num_subpartitions": 2, "wanted": [2]},
        {"num_subpartitions": 2, "kind": "hybrid_full"},
        {"num_subpartitions": 1, "partition_id": b"short"},
        {"num_subpartitions": 1, "lost_consumer_timeout": -1.0},
        {"num_subpartitions": 1, "lost_consumer_timeout": float("nan")},
    ],
    ids=str,
)
def test_arguments_outside_their_limits_are_refused(environment, options):
    with pytest.raises(errors.OptionError) as caught:
        environment().create_result_partition(**options)
    assert list(options)[-1] in str(caught.value)


def test_an_unknown_kind_is_refused_with_the_known_ones(environment):
    with pytest.raises(errors.OptionError, match="kind='blokking' is unknown") as caught:
        environment().create_result_partition(1, kind="blokking")
    assert 'kind="blocking"' in str(caught.value)
    with pytest.raises(errors.OptionError):
        environment().create_result_partition(2).address(2)


def test_an_id_is_registered_once(environment):
    env = environment()
    partition = env.create_result_partition(1, partition_id=LATER)
    with pytest.raises(errors.ClosedError, match="registered before"):
        env.create_result_partition(1, partition_id=LATER)
    partition.close()
    with pytest.raises(errors.ClosedError, match="registered before"):
        env.create_result_partition(1, partition_id=LATER)


def test_released_and_unwanted_subpartitions_are_dropped(link):
    producer, consumer = link()
    partition = producer.create_result_partition(4, schema=NUMBERS, wanted=[0, 3])
    writer = hg.RecordWriter(partition, selector=lambda batch: [i % 4 for i in range(len(batch))])
    gates = {i: consumer.create_input_gate([partition.address(i)]) for i in (0, 3)}
    writer.emit(numbers(8))
    partition.release_subpartition(3)
    writer.emit(numbers(8, 8))
    writer.finish()
    assert Task(drain, gates[0]).result().column("n").to_pylist() == [0, 4, 8, 12]
    assert Task(partition.wait_consumed, 5).result()
    assert isinstance(Task(drain, gates[3]).error(5), hg.HeadgateError)
    error = Task(lambda: drain(consumer.create_input_gate([partition.address(1)]))).error(5)
    assert isinstance(error, hg.HeadgateError)
    with pytest.raises(errors.OptionError):
        partition.release_subpartition(4)


@pytest.mark.parametrize("fails", [True, False], ids=["failed", "closed"])
@pytest.mark.parametrize("serializer", ["bytes", "arrow"])
def test_a_closed_partition_takes_back_the_segments_that_its_writer_fills(
    environment, serializer, fails
):
    producer = environment(memory="1m", segment_size="64k")

    def emit_to_each(writer):
        for _ in range(12):
            writer.emit(b"x" if serializer == "bytes" else numbers(1))

    def open_writer():
        partition = producer.create_result_partition(12, schema=NUMBERS)
        return partition, hg.RecordWriter(partition, serializer=serializer, buffer_timeout=-1)

    partition, writer = open_writer()
    emit_to_each(writer)
    assert producer.stats()["segments"]["held"] == 12
    if fails:
        partition.fail("enough")
    partition.close()
    assert producer.stats()["segments"]["held"] == 0
    assert isinstance(Task(emit_to_each, writer).error(5), hg.HeadgateError)
    Task(emit_to_each, open_writer()[1]).result()


def test_the_first_failure_counts(environment):
    producer, consumer = environment(), environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    partition.fail("first")
    partition.fail("second")
    for error in (Task(drain, gate).error(5), Task(partition.wait_consumed, 5).error(5)):
        assert "first" in str(error)
        assert "second" not in str(error)


def test_wait_consumed_with_a_timeout(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    assert Task(partition.wait_consumed, 0).result(2) is False
    assert Task(partition.wait_consumed, 0.2).result(2) is False
    # More than a consumer receives before it is read.
    writing = Task(fill, partition)
    assert Task(partition.wait_consumed, 0.3).result(2) is False
    waiting = Task(partition.wait_consumed, 1e18)
    Task(drain, gate).result()
    writing.result()
    assert waiting.result(5) is True
    assert Task(partition.wait_consumed, 0).result(2) is True
    for odd in (-1, float("nan")):
        assert isinstance(Task(partition.wait_consumed, odd).error(2), ValueError)


def address_of(producer, later=LATER, subpartition=0):
    """Return the address of a partition that does not exist yet."""
    known = producer.create_result_partition(1)
    address = known.address(0)
    known.close()
    return dataclasses.replace(address, partition_id=later, subpartition=subpartition)


def read_bytes(gate):
    return list(hg.RecordReader(gate, serializer="bytes"))


def test_spec_11_02_a_request_waits_until_the_partition_is_registered(link):
    producer, consumer = link()
    gate = consumer.create_input_gate([address_of(producer)])
    reading = Task(read_bytes, gate)
    time.sleep(0.3)
    assert reading.running
    partition = producer.create_result_partition(1, partition_id=LATER)
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(b"here")
    assert reading.result() == [b"here"]
    assert Task(partition.wait_consumed, 10).result()


def test_spec_11_02_a_partition_that_never_appears_is_named(link):
    producer, consumer = link(partition_request_timeout="300ms")
    begun = time.monotonic()
    error = Task(read_bytes, consumer.create_input_gate([address_of(producer)])).error()
    assert isinstance(error, errors.PartitionNotFoundError)
    assert LATER.hex() in str(error)
    assert time.monotonic() - begun > 0.25


def test_spec_8_05_no_time_to_wait_refuses_at_once(link):
    producer, consumer = link(partition_request_timeout=0)
    address = address_of(producer)
    error = Task(lambda: read_bytes(consumer.create_input_gate([address]))).error(5)
    assert isinstance(error, errors.PartitionNotFoundError)


def test_a_released_partition_is_not_waited_for(link):
    producer, consumer = link(partition_request_timeout="1h")
    partition = producer.create_result_partition(1)
    address = partition.address(0)
    partition.close()
    error = Task(lambda: read_bytes(consumer.create_input_gate([address]))).error()
    assert isinstance(error, errors.PartitionNotFoundError)
    assert "released" in str(error)


def test_spec_11_08_a_gate_closed_while_its_request_waits_leaves_nothing(link):
    producer, consumer = link()
    gate = consumer.create_input_gate([address_of(producer)])
    reading = Task(read_bytes, gate)
    time.sleep(0.1)
    gate.close()
    reading.error()
    time.sleep(0.3)  # until the producer's process has the cancellation
    partition = producer.create_result_partition(1, partition_id=LATER)
    # The subpartition is free for another gate.
    other = Task(lambda: read_bytes(consumer.create_input_gate([partition.address(0)])))
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(b"for the other")
    assert other.result() == [b"for the other"]


def test_a_subpartition_that_turns_out_not_to_exist(link):
    producer, consumer = link()
    gate = consumer.create_input_gate([address_of(producer, subpartition=3)])
    reading = Task(read_bytes, gate)
    time.sleep(0.1)
    producer.create_result_partition(3, partition_id=LATER)
    assert isinstance(reading.error(), errors.PartitionNotFoundError)


def test_a_producer_that_closes_while_a_request_waits(environment):
    producer, consumer = environment(), environment()
    reading = Task(read_bytes, consumer.create_input_gate([address_of(producer)]))
    time.sleep(0.2)
    producer.close()
    assert isinstance(reading.error(), errors.PeerLostError)


def test_a_second_request_of_a_waiting_channel_is_refused(environment):
    producer = environment()
    address = address_of(producer)
    link, _ = wire.consumer(address, SECRET)
    with link:
        link.send_frames(wire.partition_request(address), wire.partition_request(address))
        answer = wire.receive(link, 17)
        assert struct.unpack(">IH", answer[9:15]) == (0, 3006)
