"""Records above the spill threshold are assembled in nameless temporary files."""

import signal
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest
from plane import Task, assert_same, emit_all, exchange, open_files, open_gates, wait_until

import headgate as hg
from headgate.errors import OptionError, SpillError

MIB = 1 << 20


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


def test_without_a_good_directory_the_error_names_them_all(link, tmp_path):
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


@pytest.mark.parametrize("value", ["", " ", "a,,b", [], ["a", 7], [b"a"], 7, ("a", "")])
def test_invalid_directories_are_refused(environment, value):
    with pytest.raises(OptionError, match="temp_directories"):
        environment(temp_directories=value)


@pytest.mark.parametrize("value", ["99k", 0, "2g"])
def test_a_threshold_outside_its_limits_is_refused(environment, value):
    with pytest.raises(OptionError, match="spill_threshold"):
        environment(spill_threshold=value)
