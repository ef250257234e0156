"""Starts that would read or write what they should not, or that ask for what has no effect: refused at the call."""

import time
from collections import deque

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until

from headgate import errors
from headgate.sink import FileSink, FunctionSink
from headgate.source import FileSource, HybridSource, NumberSequenceSource, RateSource
from headgate.stream import stream


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "in" / "a.parquet")
    return tmp_path


def job(source, sink=None):
    return stream(source).sink(sink or FunctionSink(len))


@pytest.mark.parametrize(
    ("reads", "writes", "is_loop"),
    [
        ("in", "in", True),
        ("in", "in/out", True),
        ("in/", "in/day=1/out", True),
        ("in", "link", True),
        ("link", "in/out", True),
        ("*", "out", False),
        ("*/*.parquet", "out", True),
        ("**/*.parquet", "out/deep", True),
        ("in", ".", False),
        ("in", "in2", False),
        ("in", "in/_out", False),
        ("in/a.parquet", "in/out", False),
        ("in/*.parquet", "in/out", False),
        ("in/*.csv", "in", False),
        ("*/a*", "out", False),
    ],
)
def test_a_sink_in_the_folder_of_a_source_is_refused(files, reads, writes, is_loop):
    (files / "link").symlink_to(files / "in")
    schema = pa.schema([("id", pa.int64())])
    source = FileSource(f"{files}/{reads}", schema=schema)
    sink = FileSink(f"{files}/{writes}", mode="append")
    made = job(source, sink)
    hybrid = HybridSource.builder(NumberSequenceSource(0, 9)).add_source(source).build()
    assert hybrid.would_list(*sink.new_file) == is_loop
    if is_loop:
        with pytest.raises(errors.StreamError, match="would read its files as input"):
            made.start()
        return
    query = made.start()
    assert query.await_termination(60)
    assert all("part-" not in file.path for file in source.files())


@pytest.mark.parametrize(
    "option",
    [
        {"interval": "1s"},
        {"restarts": 5},
        {"restart_delay": 3},
        {"retained": 2},
        {"min_pause": "1s"},
        {"tolerable_failures": 1},
    ],
)
def test_options_of_checkpoints_need_a_folder(tmp_path, option):
    made = job(NumberSequenceSource(0, 9))
    with pytest.raises(errors.OptionError, match="does nothing without a folder for checkpoints"):
        made.start(**option)
    made.run(**option, checkpoint=str(tmp_path / "checkpoints"))


def test_options_that_ask_for_nothing_need_no_folder():
    job(NumberSequenceSource(0, 9)).run(interval=None, restarts=0, min_pause=0)


@pytest.mark.parametrize("collection", [[], deque()])
def test_a_function_that_fills_a_copy_is_refused(collection):
    made = job(NumberSequenceSource(0, 9), FunctionSink(collection.append))
    with pytest.raises(errors.StreamError, match="would fill a copy"):
        made.start(workers=1)
    made.run()
    assert sum(batch.num_rows for batch in collection) == 9


def test_the_checkpoints_of_a_job_that_wrote_elsewhere_are_refused(files):
    checkpoint = str(files / "checkpoints")
    job(FileSource(files / "in"), FileSink(files / "one")).run(checkpoint=checkpoint)
    other = job(FileSource(files / "in"), FileSink(files / "other"))
    with pytest.raises(errors.CheckpointError, match=r"sink-1 was FileSink\(.*one\)") as refused:
        other.start(checkpoint=checkpoint)
    assert 'restore="latest"' in refused.value.remedy
    (files / "one").rename(files / "other")
    other.run(checkpoint=checkpoint, restore="latest")
    assert stream_jobs.rows_of(files / "other").num_rows == 10


def test_a_sink_with_rows_of_others_is_refused_at_the_start(files):
    job(FileSource(files / "in"), FileSink(files / "out")).run(checkpoint=str(files / "one"))
    with pytest.raises(errors.SinkError, match="holds data already") as refused:
        job(FileSource(files / "in"), FileSink(files / "out")).start()
    assert refused.value.remedy == 'mode="append" · another path'
    with pytest.raises(errors.OptionError, match="is not for streams"):
        job(FileSource(files / "in"), FileSink(files / "out", mode="overwrite")).start()


def test_savepoints_need_new_folders(files):
    with job(RateSource(100)).start() as query:
        # At once: it waits for the tasks.
        assert query.savepoint(str(files / "one"), timeout=60)
        for folder, wrong in (("one", "has a savepoint already"), ("in", "is no new folder")):
            with pytest.raises(errors.CheckpointError, match=wrong):
                query.savepoint(str(files / folder))
            with pytest.raises(errors.CheckpointError, match=wrong):
                query.stop(savepoint=str(files / folder))
        assert query.savepoint(str(files / "two"), timeout=60)
    with pytest.raises(errors.CheckpointError, match="ended before the savepoint") as refused:
        query.savepoint(str(files / "three"))
    assert "stop(savepoint=" in refused.value.remedy


def test_checkpoints_that_take_too_long_say_what_helps(tmp_path):
    made = stream(RateSource(1000)).map(lambda batch: (time.sleep(0.1), batch)[1])
    query = made.sink(FunctionSink(len)).start(
        checkpoint=str(tmp_path / "checkpoints"),
        interval="10ms",
        checkpoint_timeout="1ms",
        restarts=0,
    )
    with pytest.raises(errors.CheckpointError, match="too many checkpoints") as failed:
        query.await_termination(60)
    assert "checkpoint_timeout" in failed.value.remedy


def test_a_tilde_is_the_folder_of_the_user(files, monkeypatch):
    monkeypatch.setenv("HOME", str(files))
    job(FileSource("~/in"), FileSink("~/out")).run(checkpoint="~/checkpoints")
    assert (files / "checkpoints").is_dir()
    assert stream_jobs.rows_of(files / "out").num_rows == 10


def test_a_relative_folder_is_that_of_the_start(files, monkeypatch):
    monkeypatch.chdir(files)
    sink = FileSink("out")
    monkeypatch.chdir("/")
    assert sink.path == str(files / "out")


@pytest.mark.parametrize("name", [None, "mine"])
def test_going_back_to_a_savepoint_is_refused_before_checkpoints_go(files, name):
    def start(**options):
        schema = pa.schema([("id", pa.int64())])
        source = FileSource(files / "in", schema=schema)
        sink = FileSink(files / "out", mode="append")
        made = stream(source, name="in").sink(sink, name="out")
        query = made.start(until="now", name=name, **options)
        assert query.await_termination(60)

    def rows():
        return sorted(stream_jobs.rows_of(files / "out")["id"].to_pylist())

    checkpoint, savepoint = str(files / "checkpoints"), str(files / "savepoint")
    start(checkpoint=checkpoint)
    with (
        stream(FileSource(files / "in", discovery_interval=0.05), name="in")
        .sink(FileSink(files / "out", mode="append"), name="out")
        .start(checkpoint=checkpoint, name=name) as query
    ):
        query.stop(savepoint=savepoint)
    pq.write_table(pa.table({"id": range(10, 20)}), files / "in" / "b.parquet")
    start(checkpoint=checkpoint)
    assert rows() == [*range(20)]
    for folder, options in ((checkpoint, {"restore": "savepoint"}), (str(files / "new"), {})):
        with pytest.raises(errors.SinkError, match="would write again"):
            start(checkpoint=folder, savepoint=savepoint, **options)
    pq.write_table(pa.table({"id": range(20, 30)}), files / "in" / "c.parquet")
    start(checkpoint=checkpoint)
    assert rows() == [*range(30)]


def test_another_name_than_that_of_the_checkpoints_is_refused(files):
    checkpoint = str(files / "checkpoints")
    job(FileSource(files / "in"), FileSink(files / "out")).run(checkpoint=checkpoint, name="mine")
    with pytest.raises(errors.CheckpointError, match="whose name= was mine, and is other now"):
        job(FileSource(files / "in"), FileSink(files / "out")).start(
            checkpoint=checkpoint, name="other"
        )
    query = job(FileSource(files / "in"), FileSink(files / "out")).start(checkpoint=checkpoint)
    assert query.await_termination(60)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_status_has_all_rows_also_after_a_stop(tmp_path, workers):
    made = stream(RateSource(5000)).sink(FileSink(tmp_path / "out", format="csv"))
    query = made.start(checkpoint=str(tmp_path / "checkpoints"), workers=workers, parallelism=2)
    wait_until(lambda: sum(task.rows for task in query.status.tasks) > 1000)
    query.stop()
    files = [path.read_text() for path in (tmp_path / "out").glob("part-*")]
    assert sum(task.rows for task in query.status.tasks) == sum(
        text.count("\n") - 1 for text in files
    )
