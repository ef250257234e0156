"""Gates: channels that are added later, sealing, and failures that other channels must survive."""

import dataclasses
import socket
import time

import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, drain, numbers, open_gates, wait_until

import headgate as hg


def filled(producer, count, start=0, n=1):
    """Return a finished partition with this many rows, all in the last subpartition."""
    partition = producer.create_result_partition(n, schema=NUMBERS)
    with hg.RecordWriter(partition, selector=hg.RoundRobinSelector(n - 1)) as writer:
        writer.emit(numbers(count, start))
    return partition


def test_a_sealed_gate_without_channels_ends_at_once(environment):
    gate = environment().create_input_gate(schema=NUMBERS)
    assert Task(drain, gate).result().num_rows == 0


def test_channels_appear_while_it_is_read(link):
    producer, consumer = link()
    gate = consumer.create_input_gate(sealed=False, schema=NUMBERS)
    got = []
    reading = Task(lambda: got.extend(b for batch in hg.RecordReader(gate) for b in batch[0]))
    for turn in range(4):
        gate.add_channel(filled(producer, 10, 10 * turn).address(0))
        assert gate.num_channels == turn + 1
        wait_until(lambda t=turn: len(got) == 10 * (t + 1))
    assert reading.running
    gate.seal()
    reading.result()
    assert [value.as_py() for value in got] == list(range(40))


def test_a_reader_waits_for_the_seal_and_not_longer(link):
    producer, consumer = link()
    gate = consumer.create_input_gate(sealed=False, schema=NUMBERS)
    gate.add_channel(filled(producer, 5).address(0))
    reading = Task(drain, gate)
    with pytest.raises(AssertionError, match="hangs"):
        reading.join(0.3)
    gate.seal()
    assert_same(reading.result(5), numbers(5))


@pytest.mark.parametrize("times", [1, 300])
def test_a_sealed_gate_takes_no_channel(link, times):
    producer, consumer = link()
    partition = filled(producer, 5)
    gate = consumer.create_input_gate(schema=NUMBERS)
    for _ in range(times):
        with pytest.raises(hg.errors.ClosedError, match="sealed"):
            gate.add_channel(partition.address(0))
    assert Task(drain, gate).result().num_rows == 0
    # Refused channels were promised nothing, so the whole pool is free.
    total = consumer.stats()["segments"]["total"]
    if consumer is not producer:
        consumer.create_result_partition(total - 1).close()


def test_a_closed_gate_takes_no_channel(link):
    producer, consumer = link()
    partition = filled(producer, 5)
    gate = consumer.create_input_gate(sealed=False, schema=NUMBERS)
    gate.close()
    with pytest.raises(hg.errors.ClosedError):
        gate.add_channel(partition.address(0))


def test_the_schema_comes_with_the_address(link):
    producer, consumer = link()
    gate = consumer.create_input_gate([filled(producer, 3).address(0)])
    assert gate.schema == NUMBERS
    assert_same(Task(drain, gate).result(), numbers(3))


def test_a_second_reader_is_refused_and_the_first_loses_nothing(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    writer.emit(numbers(10))
    writer.flush()
    assert_same(next(reader), numbers(10))

    def read_again():
        drain(consumer.create_input_gate([partition.address(0)]))

    assert isinstance(Task(read_again).error(), hg.HeadgateError)
    writer.emit(numbers(10, 10))
    writer.finish()
    rest = Task(lambda: pa.Table.from_batches(list(reader), NUMBERS)).result()
    assert_same(rest, numbers(10, 10))


def test_a_second_reader_learns_that_it_is_taken(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    first = open_gates(partition, consumer)
    time.sleep(0.1)  # until the first reader's request has arrived

    def read_again():
        drain(consumer.create_input_gate([partition.address(0)]))

    error = Task(read_again).error(5)
    assert isinstance(error, hg.errors.PartitionNotFoundError), repr(error)
    assert "reader already" in str(error)
    assert len(first) == 1


def test_a_refused_channel_does_not_keep_the_gate_from_ending(environment):
    producer = environment()
    taken, good = filled(producer, 5), filled(producer, 7)
    other = producer.create_input_gate([taken.address(0)])
    gate = producer.create_input_gate(sealed=False, schema=NUMBERS)
    with pytest.raises(hg.HeadgateError):
        gate.add_channel(taken.address(0))
    gate.add_channel(good.address(0))
    gate.seal()
    assert_same(Task(drain, gate).result(5), numbers(7))
    assert_same(Task(drain, other).result(5), numbers(5))


def test_a_subpartition_is_read_once(link):
    producer, consumer = link()
    partition = filled(producer, 5)
    address = partition.address(0)
    assert_same(Task(drain, consumer.create_input_gate([address])).result(), numbers(5))
    error = Task(lambda: drain(consumer.create_input_gate([address]))).error()
    assert isinstance(error, hg.errors.PartitionNotFoundError)


@pytest.mark.parametrize("field", ["partition_id", "subpartition"])
def test_partitions_that_do_not_exist(link, field):
    producer, consumer = link(partition_request_timeout="100ms")
    address = filled(producer, 5).address(0)
    wrong = {"partition_id": bytes(16), "subpartition": 7}[field]
    address = dataclasses.replace(address, **{field: wrong})
    error = Task(lambda: drain(consumer.create_input_gate([address]))).error()
    assert isinstance(error, hg.errors.PartitionNotFoundError)
    assert isinstance(error, (LookupError, ConnectionError))


def test_a_partition_that_is_closed_already(link):
    producer, consumer = link()
    partition = filled(producer, 5)
    address = partition.address(0)
    partition.close()
    error = Task(lambda: drain(consumer.create_input_gate([address]))).error()
    assert isinstance(error, hg.errors.PartitionNotFoundError)


def test_a_partition_that_is_closed_under_its_reader(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    writer.emit(numbers(5))
    writer.flush()
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    assert_same(Task(next, reader).result(), numbers(5))
    reading = Task(next, reader)
    partition.close()
    error = reading.error(5)
    assert isinstance(error, (hg.errors.PeerLostError, hg.errors.ProducerFailedError))


def test_an_address_without_a_listener(environment):
    producer, consumer = environment(), environment()
    address = filled(producer, 5).address(0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = dataclasses.replace(address, port=port)
    error = Task(lambda: drain(consumer.create_input_gate([address]))).error(5)
    assert isinstance(error, hg.errors.ConnectError), repr(error)
    assert str(port) in str(error)


def test_a_host_that_does_not_exist(environment):
    producer, consumer = environment(), environment()
    address = dataclasses.replace(filled(producer, 5).address(0), host="no.such.host.invalid")
    error = Task(lambda: drain(consumer.create_input_gate([address]))).error()
    assert isinstance(error, hg.errors.ConnectError)
    assert "no.such.host.invalid" in str(error)
    assert "listen" not in str(error)


def test_one_failed_channel_ends_the_gate_and_says_why(link):
    producer, consumer = link()
    good, bad = filled(producer, 5), producer.create_result_partition(1, schema=NUMBERS)
    gate = consumer.create_input_gate([good.address(0), bad.address(0)])
    bad.fail("broken on purpose")
    error = Task(drain, gate).error(5)
    assert isinstance(error, hg.errors.ProducerFailedError)
    assert "broken on purpose" in str(error)


def test_an_error_stays_an_error(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    partition.fail("broken on purpose")
    for _ in range(3):
        error = Task(next, reader).error(5)
        assert isinstance(error, hg.errors.ProducerFailedError)


def test_a_gate_that_is_failed_wakes_its_reader(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reading = Task(drain, gate)
    gate.fail("enough")
    gate.fail("too late")
    error = reading.error(5)
    assert "enough" in str(error)
    assert "too late" not in str(error)


def test_a_gate_that_is_closed_wakes_its_reader_and_frees_the_producer(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reading = Task(drain, gate)
    writer = hg.RecordWriter(partition)
    gate.close()
    assert isinstance(reading.error(5), hg.errors.ClosedError)
    # Far more than the pool holds. The closed gate's data is dropped.
    writing = Task(lambda: [writer.emit(numbers(10_000)) for _ in range(200)])
    writing.result(10)
    writer.finish()
    assert Task(partition.wait_consumed, 5).result()


def test_a_reader_that_stops_early_ends_the_producer_quietly(link):
    producer, consumer = link()
    partition = producer.create_result_partition(2, schema=NUMBERS)
    gates = open_gates(partition, consumer)

    def produce():
        with hg.RecordWriter(partition) as writer:
            for turn in range(400):
                writer.emit(numbers(10_000, turn))
        return partition.wait_consumed(10)

    writing = Task(produce)
    readers = [hg.RecordReader(gate) for gate in gates]
    assert Task(next, readers[0]).result().num_rows > 0
    readers[0].close()
    rest = Task(list, readers[1]).result()
    assert sum(batch.num_rows for batch in rest) == 200 * 10_000
    assert writing.result() is True
    assert partition.is_released


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
    with pytest.raises(hg.errors.OptionError):
        partition.release_subpartition(4)


def test_the_gate_checks_the_schema_of_each_address(link):
    producer, consumer = link()
    other = pa.schema([("n", pa.float64())])
    partition = producer.create_result_partition(1, schema=other)
    gate = consumer.create_input_gate([filled(producer, 1).address(0)], sealed=False)
    with pytest.raises(hg.errors.SchemaMismatchError) as caught:
        gate.add_channel(partition.address(0))
    assert "double" in str(caught.value)
    assert "int64" in str(caught.value)


def test_a_channel_is_added_before_anything_is_read(environment):
    producer, consumer = environment(), environment()
    partitions = [producer.create_result_partition(1, schema=NUMBERS) for _ in range(2)]

    def write(partition):
        with hg.RecordWriter(partition) as writer:
            for turn in range(60):
                writer.emit(numbers(8000, 8000 * turn))

    writing = [Task(write, partition) for partition in partitions]
    gate = consumer.create_input_gate([partitions[0].address(0)], sealed=False)
    # Two exclusive and eight floating segments: the limit of a gate with one channel.
    wait_until(lambda: consumer.stats()["segments"]["held"] == 10)
    Task(gate.add_channel, partitions[1].address(0)).result(10)
    gate.seal()
    assert Task(drain, gate).result().num_rows == 2 * 60 * 8000
    for task in writing:
        task.result()


def test_a_consumer_with_smaller_segments_ends_both_sides(environment):
    producer, consumer = environment(), environment(segment_size="16k")
    partition = filled(producer, 8000)
    waiting = Task(partition.wait_consumed)
    gate = consumer.create_input_gate([partition.address(0)])
    error = Task(drain, gate).error()
    assert isinstance(error, hg.errors.ProducerFailedError)
    assert "the same segment_size" in str(error)
    gate.close()
    error = waiting.error(10)
    assert isinstance(error, hg.errors.RecordTooLargeError), error
    assert "16384 bytes" in str(error)
