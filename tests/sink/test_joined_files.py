"""Small files of a commit are joined before it is decided: readers see joined ones only, each row once."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import dataset, fs, parquet
from tests.kit import sinks, stream_sinks

from headgate.errors import SinkError
from headgate.sink import CommitterContext, FileSink, WriterContext, write

ROWS = {"n": pa.int64(), "p": pa.string()}
#: Tests that share the steps of a job: each has a time limit of its own.
PARTS = 4


class Partitioned(stream_sinks.StreamJob):
    """Writes the numbers with their remainders by 3, which are the partitions."""

    def write(self, task, count):
        numbers = range(self.position, self.position + count)
        columns = [pa.array(numbers, pa.int64()), pa.array([str(n % 3) for n in numbers])]
        batch = pa.record_batch(columns, names=list(ROWS))
        self.step("write", self.writers[task % len(self.writers)].write, batch)
        self.position += count


class Polled(sinks.Faults):
    """Faults before each of which a reader lists the folder and sees no row twice."""

    def __init__(self, path, at=None):
        super().__init__(at)
        self.path = Path(path)

    def step(self, name, path):
        visible = sinks.rows(self.path)
        assert len(visible) == len(set(visible)), f"{name} {path}"
        super().step(name, path)


def job(path, faults):
    options = {"partition_by": "p", "sort_within": "n", "compact_below": "1m", "mode": "append"}

    def make_sink(faults):
        return sinks.faulty(path, faults, **options) if faults else FileSink(path, **options)

    return Partitioned(make_sink, lambda: sinks.rows(path), faults)


def steps(path, script):
    """Return the steps of a script without a fault."""
    counted = job(path, Polled(path))
    stream_sinks.play(counted, script)
    assert counted.crashes == []
    return counted.faults.seen


def crash(path, script, number):
    """Play a script with a crash before a step; return the steps at which there was one."""
    crashing = job(path, Polled(path, number))
    stream_sinks.play(crashing, script)
    assert sinks.left(path) == [], crashing.crashes
    assert all(parquet.ParquetFile(f).read()["n"].to_pylist() for f in path.rglob("part-*"))
    return crashing.crashes


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_a_crash_at_every_step_of_a_job_that_joins(tmp_path, part):
    script = stream_sinks.SCRIPT
    count = len(steps(tmp_path / "counted", script))
    for number in range(1 + part, count + 1, PARTS):
        assert len(crash(tmp_path / f"{number}", script, number)) == 1


def test_a_crash_at_every_step_of_a_commit_that_joins(tmp_path):
    script = [("write", 0, 3), ("write", 1, 2), ("checkpoint",)]
    in_order = steps(tmp_path / "counted", script)
    commit = slice(in_order.index("before commit"), in_order.index("after commit") + 1)
    assert len(in_order[commit]) > 40
    for number in range(len(in_order))[commit]:
        assert len(crash(tmp_path / f"{number}", script, number + 1)) == 1


def staged(sink, name, batches, number=1):
    """Stage a file for each batch, each by its own task; return the committer and the committables."""
    committer = sink.create_committer(CommitterContext(name))
    committer.start(None)
    committables = []
    for index, batch in enumerate(batches):
        with sink.create_writer(WriterContext(name, index, len(batches), "a")) as writer:
            writer.write(batch)
            committables.append(writer.prepare_commit(number))
    return committer, committables


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_small_files_of_a_partition_become_one_and_large_ones_stay(path, kind):
    def batch(text, *numbers):
        return pa.record_batch({"n": pa.array(numbers), "p": [text] * len(numbers)})

    large = batch("a", *range(100_000, 200_000))
    batches = [batch("a", 3, 1), batch("b", 5), batch("a", 2), large, batch("c", 7), batch("b", 4)]
    sink = FileSink(
        path, format=kind, partition_by="p", sort_within="n", compact_below="100k", mode="append"
    )
    committer, committables = staged(sink, "job", batches)
    result = committer.commit(1, committables)
    by_folder = {}
    for file in result.files:
        numbers = dataset.dataset(path / file, format=kind).to_table()["n"].to_pylist()
        by_folder.setdefault(file.partition("/")[0], []).append(numbers)
    by_folder["p=a"].sort(key=len)
    assert by_folder == {
        "p=a": [[1, 2, 3], list(range(100_000, 200_000))],
        "p=b": [[4, 5]],
        "p=c": [[7]],
    }
    assert result.rows == 100_006
    assert result.bytes == sum((path / file).stat().st_size for file in result.files)
    assert committer.commit(1, committables) is None
    assert sinks.left(path) == []


def test_joined_files_end_at_the_target_size(path):
    sink = FileSink(path, compact_below="64k", target_file_size="64k", mode="append")
    batches = [pa.record_batch({"n": pa.array(range(k, 50_000, 25))}) for k in range(25)]
    committer, committables = staged(sink, "job", batches)
    sizes = [(path / file).stat().st_size for file in committer.commit(1, committables).files]
    assert 1 < len(sizes) < 10
    assert all(50_000 < size < 100_000 for size in sizes[:-1])
    assert sinks.rows(path) == list(range(50_000))


def test_files_of_other_columns_are_not_joined(path):
    sink = FileSink(path, compact_below="1m", mode="append")
    batches = [pa.record_batch({"n": [1]}), pa.record_batch({"n": [2], "m": [3]})]
    committer, committables = staged(sink, "job", [*batches, batches[0]])
    schemas = [parquet.read_schema(path / f).names for f in committer.commit(1, committables).files]
    assert sorted(schemas) == [["n"], ["n", "m"]]
    assert sinks.rows(path) == [1, 1, 2]


def test_a_small_file_that_has_changed_is_an_error_and_nothing_is_visible(path):
    sink = FileSink(path, compact_below="1m", mode="append")
    committer, committables = staged(
        sink, "job", [pa.record_batch({"n": range(100)}), pa.record_batch({"n": [2]})]
    )
    file, *_ = sorted(path.glob("_staging/*/*/part-*"))
    whole_file = file.read_bytes()
    file.write_bytes(whole_file[:-1])
    with pytest.raises(SinkError, match="is missing or has changed"):
        committer.commit(1, committables)
    damaged = bytearray(whole_file)
    damaged[30] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(SinkError, match="cannot read"):
        committer.commit(1, committables)
    with pytest.raises(SinkError, match="twice"):
        committer.commit(1, committables[1:] * 2)
    assert sinks.rows(path) == []
    file.write_bytes(whole_file)
    committer.commit(1, committables)
    assert sinks.rows(path) == sorted([*range(100), 2])
    assert sinks.left(path) == []


def test_a_batch_joins_its_files_too(path):
    sink = FileSink(path, compact_below="1m", max_rows_per_file=2)
    assert len(write(sinks.numbers(0, 9), sink).files) == 5
    big = FileSink(path, compact_below="1m", mode="overwrite")
    job = sinks.new_batch()
    committer = big.create_committer(job)
    committer.start(None)
    tasks = [sinks.stage(big, job.job, sinks.numbers(n, n + 5), n) for n in (0, 5)]
    assert len(committer.commit(0, tasks).files) == 1
    assert sinks.rows(path) == list(range(10))


def test_file_systems_without_a_rename_have_folders_and_joined_files_too():
    memory = fs._MockFileSystem()
    sink = FileSink("out", filesystem=memory, partition_by="p", compact_below="1m", mode="append")
    batch = pa.record_batch({"n": [1, 2], "p": ["a/b", None]})
    committer, committables = staged(sink, "job", [batch, batch])
    files = committer.commit(1, committables).files
    assert sorted(file.split("/")[0] for file in files) == [
        "p=__HIVE_DEFAULT_PARTITION__",
        "p=a%2Fb",
    ]
    tables = [
        parquet.read_table(f"out/{file}", filesystem=memory, partitioning=None) for file in files
    ]
    assert sorted(table["n"].to_pylist() for table in tables) == [[1, 1], [2, 2]]
    infos = memory.get_file_info(fs.FileSelector("out", recursive=True))
    assert {info.path for info in infos if info.is_file and "_headgate" not in info.path} == {
        f"out/{file}" for file in files
    }
