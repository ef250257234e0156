"""Requests that wait for their partition to appear (spec 4.8, 9.4, 11)."""

import dataclasses
import struct
import time

import pytest
import wire
from plane import SECRET, Task

import headgate as hg

LATER = bytes(range(16))


def address_of(producer, later=LATER, subpartition=0):
    """Return the address of a partition that does not exist yet."""
    known = producer.create_result_partition(1)
    address = known.address(0)
    known.close()
    return dataclasses.replace(address, partition_id=later, subpartition=subpartition)


def read(gate):
    return list(hg.RecordReader(gate, serializer="bytes"))


def test_spec_11_02_a_request_waits_until_the_partition_is_registered(link):
    producer, consumer = link()
    gate = consumer.create_input_gate([address_of(producer)])
    reading = Task(read, gate)
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
    error = Task(read, consumer.create_input_gate([address_of(producer)])).error()
    assert isinstance(error, hg.errors.PartitionNotFoundError)
    assert LATER.hex() in str(error)
    assert time.monotonic() - begun > 0.25


def test_spec_8_05_no_time_to_wait_refuses_at_once(link):
    producer, consumer = link(partition_request_timeout=0)
    address = address_of(producer)
    begun = time.monotonic()
    error = Task(lambda: read(consumer.create_input_gate([address]))).error()
    assert isinstance(error, hg.errors.PartitionNotFoundError)
    assert time.monotonic() - begun < 5


def test_spec_11_05_a_released_partition_is_not_waited_for(link):
    producer, consumer = link(partition_request_timeout="1h")
    partition = producer.create_result_partition(1)
    address = partition.address(0)
    partition.close()
    error = Task(lambda: read(consumer.create_input_gate([address]))).error()
    assert isinstance(error, hg.errors.PartitionNotFoundError)
    assert "released" in str(error)


def test_spec_11_08_a_gate_closed_while_its_request_waits_leaves_nothing(link):
    producer, consumer = link()
    address = address_of(producer)
    gate = consumer.create_input_gate([address])
    reading = Task(read, gate)
    time.sleep(0.1)
    gate.close()
    reading.error()
    time.sleep(0.3)  # until the producer's process has the cancellation
    partition = producer.create_result_partition(1, partition_id=LATER)
    # The subpartition is free for another gate.
    other = Task(lambda: read(consumer.create_input_gate([partition.address(0)])))
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(b"for the other")
    assert other.result() == [b"for the other"]


def test_a_subpartition_that_turns_out_not_to_exist(link):
    producer, consumer = link()
    gate = consumer.create_input_gate([address_of(producer, subpartition=3)])
    reading = Task(read, gate)
    time.sleep(0.1)
    producer.create_result_partition(3, partition_id=LATER)
    assert isinstance(reading.error(), hg.errors.PartitionNotFoundError)


def test_a_producer_that_closes_while_a_request_waits(environment):
    producer, consumer = environment(), environment()
    reading = Task(read, consumer.create_input_gate([address_of(producer)]))
    time.sleep(0.2)
    producer.close()
    assert isinstance(reading.error(), hg.errors.PeerLostError)


def test_spec_section_4_8_an_id_is_registered_once(environment):
    env = environment()
    partition = env.create_result_partition(1, partition_id=LATER)
    with pytest.raises(hg.errors.ClosedError, match="registered before"):
        env.create_result_partition(1, partition_id=LATER)
    partition.close()
    with pytest.raises(hg.errors.ClosedError, match="registered before"):
        env.create_result_partition(1, partition_id=LATER)
    with pytest.raises(hg.errors.OptionError, match="partition_id"):
        env.create_result_partition(1, partition_id=b"short")


def test_a_second_request_of_a_waiting_channel_is_refused(environment):
    producer = environment()
    address = address_of(producer)
    link, _ = wire.consumer(address, SECRET)
    with link:
        link.send_frames(wire.partition_request(address), wire.partition_request(address))
        answer = wire.receive(link, 17)
        assert struct.unpack(">IH", answer[9:15]) == (0, 3006)
