"""The time of waits: for files, for memory, for the network and for the I/O thread."""

import dataclasses
import os
import time

import pytest
from plane import NUMBERS, Task, assert_same, drain, numbers, wait_until

import headgate as hg


def test_an_environment_without_files_and_connections_waits_for_none(environment):
    env = environment(memory="4m")
    partition = env.create_result_partition(1, schema=NUMBERS)
    gate = env.create_input_gate([partition.address(0)])
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(1000))
    assert_same(Task(drain, gate).result(), numbers(1000))
    waits = env.waits()
    assert waits._replace(io_ns=0) == (0, 0, 0, 0)


def written(producer, consumer):
    """Write more pages than a pool has segments to a consumer of two subpartitions that is always ready."""
    partition = producer.create_result_partition(2, schema=NUMBERS)
    gate = consumer.create_input_gate([partition.address(number) for number in range(2)])
    reading = Task(drain, gate)
    writer = hg.RecordWriter(partition, selector=hg.HashSelector(["n"]))
    with writer:
        for turn in range(20):
            writer.emit(numbers(50_000, 50_000 * turn))
    assert partition.wait_consumed(60)
    assert reading.result(60).num_rows == 1_000_000
    gate.close()
    return writer.back_pressured_ns()


@pytest.mark.parametrize("same_host_link", ["off", "auto"])
def test_a_pool_with_fewer_segments_than_the_consumer_takes_is_waited_for(
    environment, same_host_link
):
    options = {"same_host_link": same_host_link}
    producer, consumer = environment(memory="192k", **options), environment(**options)
    waited = written(producer, consumer)
    waits = producer.waits()
    assert 0 < waits.memory_ns <= 1.1 * waited
    assert waits.disk_ns == 0
    assert consumer.waits().memory_ns == 0
    wait_until(lambda: producer.waits().io_ns > 0)


def test_a_file_that_takes_its_time_is_waited_for(environment, tmp_path):
    env = environment(memory="4m", temp_directories=tmp_path)
    partition = env.create_result_partition(1, kind="blocking", schema=NUMBERS)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(100_000))
    (kept,) = partition.keep(tmp_path / "kept")
    # The file of a disk that answers after a while.
    slow = tmp_path / "slow"
    os.mkfifo(slow)
    other = environment(memory="4m")
    gate = other.create_input_gate(sealed=False, schema=NUMBERS)
    gate.add_kept_channel(dataclasses.replace(kept, file=str(slow)))
    gate.seal()
    reading = Task(drain, gate, schema=NUMBERS)
    time.sleep(0.3)
    slow.open("wb").close()
    with pytest.raises(hg.HeadgateError):
        reading.result()
    waits = other.waits()
    assert waits.disk_ns > 100_000_000
    assert waits._replace(disk_ns=0) == (0, 0, 0, 0)
