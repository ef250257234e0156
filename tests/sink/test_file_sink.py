"""The files of a file sink, and its errors."""

import os
import pickle
import resource
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import dataset, fs, parquet
from tests.kit import sinks

from headgate.errors import (
    ClosedError,
    OptionError,
    SchemaMismatchError,
    SinkError,
    UnsupportedTypeError,
)
from headgate.sink import FileSink, LocalWrite, WriterContext, WriteResult, write
from headgate.sink.local_storage import LocalStorage
from headgate.sink.staging import Committable

TABLE = pa.table(
    {
        "n": pa.array([1, 2, None, 4], pa.int64()),
        "s": ["a", None, "ü", ""],
        "t": pa.array([0, 1, 2, None], pa.timestamp("us", "UTC")),
        "l": [[1], [], None, [2, None]],
    }
)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_a_table_comes_back(path, kind, mode):
    result = write(TABLE, FileSink(path, format=kind, mode=mode))
    (file,) = result.files
    assert (result.rows, result.bytes) == (4, (path / file).stat().st_size)
    assert dataset.dataset(path, format=kind).to_table().equals(TABLE)
    assert {p.name for p in path.iterdir()} == {file, "_SUCCESS"}


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), max_size=8),
    per_file=st.none() | st.integers(1, 50),
    target=st.sampled_from(["1k", "64k", "512m"]),
    kind=st.sampled_from(["parquet", "arrow"]),
)
def test_rows_in_are_rows_out(tmp_path_factory, sizes, per_file, target, kind):
    path = tmp_path_factory.mktemp("round")
    schema, batches, start = pa.schema([("n", pa.int64())]), [], 0
    for size in sizes:
        array = pa.array(range(start, start + size), pa.int64())
        batches.append(pa.RecordBatch.from_arrays([array], schema=schema))
        start += size
    options = {"format": kind, "max_rows_per_file": per_file, "target_file_size": target}
    result = write(iter(batches), FileSink(path, **options), schema=schema)
    assert sinks.rows(path) == list(range(start))
    files = [dataset.dataset(path / name, format=kind).to_table() for name in result.files]
    assert result.rows == start == sum(file.num_rows for file in files)
    assert result.bytes == sum((path / name).stat().st_size for name in result.files)
    assert all(0 < file.num_rows <= (per_file or start) for file in files) or start == 0
    if per_file:
        assert len(files) >= max(1, -(-start // per_file))
    assert sinks.left(path) == []


def test_files_end_at_their_sizes(path):
    some = pa.table({"n": pa.array(range(100_000), pa.int64())})
    sink = FileSink(path, target_file_size="100k", compression="none")
    result = write(some.to_batches(1000), sink)
    sizes = [(path / name).stat().st_size for name in result.files]
    assert len(sizes) > 3
    assert all(90_000 < size < 250_000 for size in sizes[:-1])
    assert sinks.rows(path) == list(range(100_000))


def test_small_batches_become_one_row_group(path):
    write(sinks.numbers(0, 1000, chunk=1), FileSink(path))
    (file,) = path.glob("part-*")
    assert parquet.ParquetFile(file).metadata.num_row_groups == 1


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_no_rows_leave_the_columns(path, kind):
    assert write(TABLE.slice(0, 0), FileSink(path, format=kind)).rows == 0
    assert dataset.dataset(path, format=kind).schema.equals(TABLE.schema)
    assert write([], FileSink(path.parent / "nothing")) == WriteResult(0, 0, ())


def test_compression_is_what_was_asked_for(path):
    for name, written in (("zstd", "ZSTD"), ("none", "UNCOMPRESSED"), (None, "SNAPPY")):
        write(TABLE, FileSink(path, mode="overwrite", compression=name))
        (file,) = path.glob("part-*")
        column = parquet.ParquetFile(file).metadata.row_group(0).column(0)
        assert column.compression == written


def test_modes(path):
    first = write(sinks.numbers(0, 3), FileSink(path))
    with pytest.raises(SinkError) as caught:
        write(sinks.numbers(3, 6), FileSink(path))
    assert str(path) in str(caught.value)
    assert 'mode="append"' in str(caught.value)
    assert first.files[0] in str(caught.value)
    write(sinks.numbers(3, 6), FileSink(path, mode="append"))
    assert sinks.rows(path) == list(range(6))
    (path / "k=1").mkdir()
    parquet.write_table(pa.table({"n": [100]}), path / "k=1" / "other.parquet")
    (path / "_ours").mkdir()
    write(sinks.numbers(6, 9), FileSink(path, mode="overwrite"))
    assert sinks.rows(path) == [6, 7, 8]
    assert {p.name.split("-")[0] for p in path.iterdir()} == {"part", "_SUCCESS", "_ours"}


def test_mode_error_is_checked_again_at_the_commit(path):
    def batches():
        yield from sinks.numbers(0, 3)
        write(sinks.numbers(10, 13), FileSink(path, mode="append"))

    with pytest.raises(SinkError, match="holds data already"):
        write(batches(), FileSink(path))
    assert sinks.rows(path) == [10, 11, 12]
    assert sinks.left(path) == []


def test_nothing_is_visible_until_the_end(path):
    with LocalWrite(FileSink(path, max_rows_per_file=2)) as job:
        for batch in sinks.numbers(0, 9):
            job.write(batch)
            assert sinks.rows(path) == []
            assert not (path / "_SUCCESS").exists()
        with pytest.raises(ClosedError):
            _ = job.result
    assert job.result.rows == 9
    with pytest.raises(ClosedError):
        job.write(batch)


def test_an_exception_leaves_nothing(tmp_path, path):
    def batches():
        yield from sinks.numbers(0, 3)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        write(batches(), FileSink(path))
    assert list(tmp_path.iterdir()) == []


def test_schemas_are_kept(path):
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    fitting = pa.record_batch(
        {"s": pa.array(["x"], pa.large_string()), "n": pa.array([1], pa.int8())}
    )
    assert write([fitting], FileSink(path), schema=schema).rows == 1
    assert dataset.dataset(path).to_table().to_pylist() == [{"n": 1, "s": "x"}]
    sink = FileSink(path, mode="append")
    for wrong, said in (
        (pa.record_batch({"n": [1]}), "no column 's'"),
        (pa.record_batch({"n": [1], "s": ["x"], "z": [0]}), "z"),
        (pa.record_batch({"n": ["word"], "s": ["x"]}), "declared int64"),
    ):
        with pytest.raises(SchemaMismatchError, match=said):
            write([fitting, wrong], sink, schema=schema)
    strict = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(SchemaMismatchError, match="declared NOT NULL"):
        write([pa.record_batch({"n": [1, None]})], sink, schema=strict)
    with pytest.raises(SchemaMismatchError, match="at least one column"):
        write([pa.table({"n": [1]}).select([]).to_batches()[0]], sink)
    assert dataset.dataset(path).count_rows() == 1
    assert sinks.left(path) == []


def test_types_that_a_format_lacks_are_named(path):
    interval = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    table = pa.table({"n": [1], "i": interval})
    with pytest.raises(UnsupportedTypeError, match="i: month_day_nano_interval"):
        write(table, FileSink(path))
    assert not path.exists()
    assert write(table, FileSink(path, format="arrow")).rows == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": ""}, "path"),
        ({"path": 3}, "path=3"),
        ({"format": "parqet"}, 'format="parquet"'),
        ({"mode": "ignore"}, 'mode takes "error" or "append" or "overwrite"'),
        ({"compression": "zip"}, "compression='zip'"),
        ({"format": "arrow", "compression": "snappy"}, "arrow"),
        ({"max_rows_per_file": 0}, "max_rows_per_file=0"),
        ({"max_rows_per_file": "7"}, "max_rows_per_file='7'"),
        ({"target_file_size": "big"}, "target_file_size='big'"),
        ({"target_file_size": 0}, "below the limit of 1"),
        ({"stale_after": "later"}, "stale_after='later'"),
        ({"filesystem": "s3"}, "filesystem is a str"),
    ],
)
def test_options_are_refused_by_name(options, said):
    with pytest.raises(OptionError, match=said):
        FileSink(**{"path": "/tmp/x", **options})


def test_a_uri_without_a_file_system_is_refused():
    with pytest.raises(OptionError, match="nowhere://"):
        write(TABLE, FileSink("nowhere://x/y"))


def test_paths_of_all_kinds(path, monkeypatch):
    write(sinks.numbers(0, 2), FileSink(f"file://{path}"))
    write(sinks.numbers(2, 4), FileSink(f"file:{path}/", mode="append"))
    local = fs.SubTreeFileSystem(str(path.parent), fs.LocalFileSystem())
    write(sinks.numbers(4, 6), FileSink(path.name, filesystem=local, mode="append"))
    monkeypatch.chdir(path.parent)
    write(sinks.numbers(6, 8), FileSink(path.name, mode="append"))
    assert sinks.rows(path) == list(range(8))
    assert sinks.left(path) == []


def test_file_systems_without_a_rename():
    memory = fs._MockFileSystem()
    for mode, rows in (("error", 4), ("append", 8), ("overwrite", 4)):
        write(TABLE, FileSink("bucket/out", filesystem=memory, mode=mode))
        assert dataset.dataset("bucket/out", filesystem=memory).count_rows() == rows
    with pytest.raises(SinkError, match="bucket/out holds data"):
        write(TABLE, FileSink("bucket/out", filesystem=memory))
    files = memory.get_file_info(fs.FileSelector("bucket", recursive=True))
    names = [f.path for f in files if f.is_file and "part-" not in f.path]
    assert names == ["bucket/out/_SUCCESS"]


def test_it_travels(path):
    sink = FileSink(path, format="arrow", filesystem=fs.LocalFileSystem(), max_rows_per_file=2)
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_what_is_committed_is_checked(path):
    committer, good = sinks.begun(path)
    with pytest.raises(SinkError, match="twice"):
        committer.commit(0, [good, good])
    with pytest.raises(SinkError, match="another job"):
        committer.commit(0, [Committable("other", 0, 0, "a", ()).to_bytes()])
    staged = sinks.staged(path)
    staged.write_bytes(b"")
    with pytest.raises(SinkError, match=r"is missing or has changed.*\n.*have  0 bytes"):
        committer.commit(0, [good])
    staged.unlink()
    with pytest.raises(SinkError, match="no file"):
        committer.commit(0, [good])
    committer.abort_unknown([])
    committer.abort_unknown([])
    assert not path.exists()


def test_of_each_task_only_the_committed_attempt_stays(path):
    sink, job = FileSink(path), sinks.new_batch()
    committer = sink.create_committer(job)
    committer.start(None)
    attempts = [
        sinks.stage(sink, job.job, sinks.numbers(start, start + 10), start // 10)
        for start in (0, 0, 10)
    ]
    lost, late = (sink.create_writer(WriterContext(job.job, n, is_batch=True)) for n in (2, 3))
    lost.write(sinks.numbers(50, 60)[0])
    result = committer.commit(0, attempts[1:])
    assert result.rows == 20
    assert sinks.rows(path) == list(range(20))
    assert sinks.left(path) == []
    # An attempt that outlives its job has no folder to write to.
    with pytest.raises(SinkError, match="cannot write"):
        late.write(sinks.numbers(0, 1)[0])
    lost.close()
    late.close()
    assert sinks.left(path) == []
    with pytest.raises(ClosedError):
        late.write(sinks.numbers(0, 1)[0])


def test_a_commit_can_be_asked_for_again(path, monkeypatch):
    monkeypatch.setattr("headgate.sink.file_committer.Owner.of", sinks.dead_owner)
    for number in (1, 2, 3):
        faults, job = sinks.Faults(), sinks.new_batch()
        sink = sinks.faulty(path, faults, mode="append", max_rows_per_file=3)
        committer = sink.create_committer(job)
        committer.start(None)
        staged = sinks.stage(sink, job.job, sinks.numbers(0, 10))
        faults.at = len(faults.seen) + 14 + number
        faults.error = sinks.disk_full()
        with pytest.raises(SinkError, match="decided"):
            committer.commit(0, [staged])
        committer.abort_unknown([])
        assert committer.commit(0, [staged]).rows == 10
        assert sinks.rows(path) == sorted(list(range(10)) * number)
        assert sinks.left(path) == []


def test_paths_that_cannot_be_written(path):
    path.parent.mkdir()
    path.write_text("a file")
    with pytest.raises(SinkError, match="is a file"):
        write(TABLE, FileSink(path))
    with pytest.raises(SinkError, match=str(path)):
        write(TABLE, FileSink(path / "below"))
    with pytest.raises(SinkError, match=r"/proc/nothing/here"):
        write(TABLE, FileSink("/proc/nothing/here"))
    assert path.read_text() == "a file"


def _write_with_little_room(path, pipe):
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    noise = pa.table({"s": [os.urandom(1000) for _ in range(1000)]})
    try:
        write(noise.to_batches(100), FileSink(path))
    except SinkError as error:
        pipe.send(str(error))
    finally:
        pipe.close()


def test_a_full_disk_is_one_clear_error(path):
    ours, theirs = sinks.processes.Pipe()
    child = sinks.processes.Process(target=_write_with_little_room, args=(path, theirs))
    child.start()
    theirs.close()
    said = ours.recv()
    child.join()
    ours.close()
    assert child.exitcode == 0
    assert said.startswith("[HG-6004] cannot write")
    assert str(path) in said
    assert "target_file_size" in said
    assert not path.exists()


def test_files_and_folders_are_synced(path, monkeypatch):
    events, sync, move = [], os.fsync, LocalStorage.move

    def fsync(number):
        events.append(("sync", Path(f"/proc/self/fd/{number}").readlink()))
        sync(number)

    def moved(self, source, target):
        events.append(("move", Path(source), Path(target)))
        move(self, source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(LocalStorage, "move", moved)
    monkeypatch.setattr(LocalStorage, "move_new", moved)
    result = write(sinks.numbers(0, 10), FileSink(path, max_rows_per_file=5))
    renames = [e for e in events if e[0] == "move" and e[2].parent == path and e[2].suffix]
    assert [e[2].name for e in renames] == list(result.files)
    first, last = events.index(renames[0]), events.index(renames[-1])
    for _, source, _ in renames:
        assert ("sync", source) in events[:first]
        assert ("sync", source.parent) in events[:first]
    (journal,) = (e for e in events if e[-1].name == "_commit.json")
    decided = events.index(journal)
    assert ("sync", journal[1]) in events[:decided]
    assert ("sync", journal[2].parent) in events[decided:first]
    assert ("sync", path) in events[last:]
