"""The time of waits: for files and for the network."""

import dataclasses
import os
import time

import pytest
from plane import NUMBERS, Task, assert_same, drain, numbers

import headgate as hg


def test_an_environment_without_files_and_connections_waits_for_none(environment):
    env = environment(memory="4m")
    partition = env.create_result_partition(1, schema=NUMBERS)
    gate = env.create_input_gate([partition.address(0)])
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(1000))
    assert_same(Task(drain, gate).result(), numbers(1000))
    assert env.waits() == (0, 0)


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
    assert waits.link_ns == 0
