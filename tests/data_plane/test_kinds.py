"""Kinds of partitions: when and how often they are read, and their data on disk."""

import pytest
from plane import NUMBERS, Task, assert_same, drain, numbers, open_files, wait_until

import headgate as hg


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


@pytest.mark.parametrize("remote", [False, True])
def test_spec_4_13_a_blocking_partition_is_read_after_its_end_and_again(
    environment, remote, tmp_path
):
    producer = environment(memory="4m", temp_directories=tmp_path)
    consumer = environment() if remote else producer
    partition = producer.create_result_partition(1, kind="blocking", schema=NUMBERS)
    with pytest.raises(hg.errors.PartitionNotFoundError, match="before its writer has finished"):
        read(consumer, partition)
    fill(partition)
    assert len(open_files(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []
    assert producer.stats()["spilled"]["bytes_written"] > 16_000_000
    for _ in range(3):
        assert_same(read(consumer, partition), numbers(2_000_000))
    assert partition.wait_consumed(0)
    assert not partition.is_released
    partition.close()
    assert partition.is_released
    wait_until(lambda: open_files(tmp_path) == [])
    with pytest.raises(hg.errors.PartitionNotFoundError):
        read(consumer, partition)


@pytest.mark.parametrize("remote", [False, True])
def test_a_hybrid_partition_takes_everything_before_there_is_a_reader(environment, remote):
    producer = environment(memory="4m")
    consumer = environment() if remote else producer
    partition = producer.create_result_partition(1, kind="hybrid", schema=NUMBERS)
    fill(partition)
    assert producer.stats()["segments"]["held"] == 0
    assert_same(read(consumer, partition), numbers(2_000_000))
    assert partition.wait_consumed(5)
    assert partition.is_released
    with pytest.raises(hg.errors.PartitionNotFoundError):
        read(consumer, partition)


def test_the_limit_of_a_blocking_partition_is_an_error_of_its_writer(environment):
    producer = environment(memory="4m", max_spill_size="3m")
    partition = producer.create_result_partition(1, kind="blocking", schema=NUMBERS)
    with pytest.raises(hg.errors.SpillError, match="needs more than 3145728 bytes on disk"):
        fill(partition)
    larger = producer.create_result_partition(
        1, kind="blocking", schema=NUMBERS, max_spill_size="1g"
    )
    fill(larger)
    assert_same(read(producer, larger), numbers(2_000_000))


@pytest.mark.parametrize("kind", ["blocking", "hybrid"])
def test_no_directory_to_write_to_is_an_error_that_names_it(environment, kind, tmp_path):
    folder = tmp_path / "missing"
    folder.mkdir()
    producer = environment(memory="4m", temp_directories=folder)
    folder.rmdir()
    partition = producer.create_result_partition(1, kind=kind, schema=NUMBERS)
    with pytest.raises(hg.errors.SpillError, match="missing"):
        fill(partition)


def test_directories_that_do_not_exist_are_refused_at_once(environment, tmp_path):
    with pytest.raises(hg.errors.OptionError, match=r"temp_directories=.*missing.* does not exist"):
        environment(temp_directories=tmp_path / "missing")
    environment(temp_directories=[tmp_path / "missing", tmp_path])


def test_unknown_kinds_are_refused_with_the_known_ones(environment):
    with pytest.raises(hg.errors.OptionError, match="kind='blokking' is unknown") as caught:
        environment().create_result_partition(1, kind="blokking")
    assert 'kind="blocking"' in str(caught.value)
