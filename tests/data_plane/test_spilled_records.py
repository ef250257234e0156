"""Records above the spill threshold are assembled in nameless temporary files."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pyarrow as pa
import pytest
from plane import Task, assert_same, emit_all, exchange, open_files, open_gates, wait_until

import headgate as hg
from headgate.errors import OptionError, SpillError

MIB = 1 << 20


@pytest.mark.parametrize(("size", "spilled"), [(4 * MIB, 0), (5 * MIB, 0), (6 * MIB, 6 * MIB)])
def test_spec_6_05_only_records_above_the_threshold_are_spilled(link, tmp_path, size, spilled):
    producer, consumer = link(temp_directories=tmp_path)
    record = os.urandom(size)
    [got] = exchange(producer, consumer, emit_all(b"first", record, b"last"), serializer="bytes")
    assert got == [b"first", record, b"last"]
    assert consumer.stats()["copies"]["spilled"] == spilled
    # A thread that serves the partition may hold its file for a moment after it is closed.
    wait_until(lambda: open_files(tmp_path) == [])
    assert list(tmp_path.iterdir()) == []


def test_spec_6_05_one_file_for_each_record_in_progress_and_none_after_it(link, tmp_path):
    producer, consumer = link(temp_directories=tmp_path)
    partitions = [producer.create_result_partition(1) for _ in range(3)]
    gate = consumer.create_input_gate([partition.address(0) for partition in partitions])

    def write(partition):
        writer = hg.RecordWriter(partition, serializer="bytes")
        writer.emit(bytes(20 * MIB))
        writer.flush()

    # The pool is smaller than the records, so the writer needs the reader to proceed.
    writing = [Task(write, partition) for partition in partitions]
    reader = hg.RecordReader(gate, serializer="bytes")
    reading = Task(next, reader)
    seen = set()
    while reading.running:
        seen.add(len(open_files(tmp_path)))
        time.sleep(0.001)
    assert reading.result() == bytes(20 * MIB)
    assert max(seen) in {1, 2, 3}
    assert list(tmp_path.iterdir()) == []
    consumer.close()
    for partition in partitions:
        partition.close()
    for task in writing:
        task.outcome()
    del reader
    wait_until(lambda: open_files(tmp_path) == [])


def test_wide_rows_come_back_from_disk(link, tmp_path):
    producer, consumer = link(spill_threshold="100k", temp_directories=str(tmp_path))
    text = "ü" + "x" * 3 * MIB
    batch = pa.record_batch({"n": [1, 2, 3], "t": ["narrow", text, None]})
    [got] = exchange(producer, consumer, emit_all(batch, batch), schema=batch.schema)
    assert_same(got, [batch, batch])
    assert consumer.stats()["copies"]["spilled"] > 6 * MIB
    wait_until(lambda: open_files(tmp_path) == [])


def large_record(consumer, producer):
    """Send one record of 1 MiB; return the task that reads it."""
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)

    def write():
        with hg.RecordWriter(partition, serializer="bytes") as writer:
            writer.emit(bytes(MIB))

    # If the reader fails, the end of its environment ends the writer.
    Task(write)
    return Task(next, hg.RecordReader(gate, serializer="bytes"))


def test_spec_6_07_the_one_directory_of_three_that_can_be_written_is_used(link, tmp_path):
    good, file = tmp_path / "good", tmp_path / "file"
    good.mkdir()
    file.touch()
    directories = [str(tmp_path / "missing"), file, good]
    for rotated in range(3):
        given = directories[rotated:] + directories[:rotated]
        producer, consumer = link(spill_threshold="100k", temp_directories=given)
        assert large_record(consumer, producer).result() == bytes(MIB)
        assert consumer.stats()["copies"]["spilled"] == MIB


def test_spec_6_07_without_a_good_directory_the_error_names_them_all(link, tmp_path):
    file, missing = tmp_path / "file", tmp_path / "missing"
    file.touch()
    producer, consumer = link(spill_threshold="100k", temp_directories=f"{file}, {missing}")
    error = large_record(consumer, producer).error()
    assert isinstance(error, SpillError)
    assert isinstance(error, OSError)
    assert f"{file}: Not a directory" in str(error)
    assert f"{missing}: No such file or directory" in str(error)
    assert "temp_directories" in str(error)


def run(code, *arguments, killed=False):
    """Run Python in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == (-signal.SIGKILL if killed else 0), done.stderr
    return done.stdout


def test_a_full_disk_fails_that_reader_and_nothing_else(tmp_path):
    said = run(
        """
        import resource, sys
        import headgate as hg
        from headgate.errors import SpillError

        # The size of a file is limited, which is how a full disk looks to one file.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        env = hg.ShuffleEnvironment(spill_threshold="100k", temp_directories=sys.argv[1])

        def read(size):
            partition = env.create_result_partition(1)
            gate = env.create_input_gate([partition.address(0)])
            with hg.RecordWriter(partition, serializer="bytes") as writer:
                writer.emit(bytes(size))
            return next(hg.RecordReader(gate, serializer="bytes"))

        assert read(1 << 20) == bytes(1 << 20)
        try:
            read(2 << 20)
        except SpillError as error:
            assert "cannot write a spill file: File too large" in str(error), error
            print("refused")
        assert read(1 << 20) == bytes(1 << 20)
        env.close()
        """,
        tmp_path,
    )
    assert said == "refused\n"
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_of_a_process_that_is_killed_within_a_record(tmp_path):
    said = run(
        """
        import os, signal, sys, threading, time
        import headgate as hg

        env = hg.ShuffleEnvironment(
            memory="1m", segment_size="64k", spill_threshold="100k", temp_directories=sys.argv[1]
        )
        partition = env.create_result_partition(1)
        gate = env.create_input_gate([partition.address(0)])
        writer = hg.RecordWriter(partition, serializer="bytes")
        reader = hg.RecordReader(gate, serializer="bytes")
        threading.Thread(target=next, args=(reader,), daemon=True).start()
        threading.Thread(target=writer.emit, args=(bytes(200 << 20),), daemon=True).start()

        deadline = time.monotonic() + 30
        while env.stats()["copies"]["spilled"] < 1 << 20:
            assert time.monotonic() < deadline, "nothing was spilled"
        print(os.listdir(sys.argv[1]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
        killed=True,
    )
    assert said == "[]\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["", " ", "a,,b", [], ["a", 7], [b"a"], 7, ("a", "")])
def test_invalid_directories_are_refused(environment, value):
    with pytest.raises(OptionError, match="temp_directories"):
        environment(temp_directories=value)


@pytest.mark.parametrize("value", ["99k", 0, "2g"])
def test_a_threshold_outside_its_limits_is_refused(environment, value):
    with pytest.raises(OptionError, match="spill_threshold"):
        environment(spill_threshold=value)
