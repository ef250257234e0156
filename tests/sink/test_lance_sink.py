"""The sink of Lance datasets: rows of complete checkpoints, once, whatever crashes and whatever others do to the dataset."""

import pickle
from datetime import timedelta

import lance
import pyarrow as pa
import pytest
from tests.kit import sinks, stream_jobs, stream_sinks

from headgate._changes import change_field
from headgate.errors import ClosedError, OptionError, SchemaMismatchError, SinkError
from headgate.sink import CommitterContext, WriterContext, write
from headgate.sink.lance import LanceSink

SCHEMA = pa.schema([("n", pa.int64())])
KEY = b"headgate.job"
FLOATS = pa.list_(pa.float32())


class Faulty(LanceSink):
    """A sink whose looks at the dataset are steps."""

    faults = None

    def dataset(self):
        self.faults.step("dataset", self.path)
        return super().dataset()


def job(path, faults):
    def make_sink(faults):
        if faults is None:
            return LanceSink(path, schema=SCHEMA)
        sink = Faulty(path, schema=SCHEMA)
        object.__setattr__(sink, "faults", faults)
        return sink

    return stream_sinks.StreamJob(make_sink, lambda: rows(path), faults)


def rows(path):
    if not (path / "_versions").exists():
        return []
    return sorted(lance.dataset(path).to_table()["n"].to_pylist())


def files(path):
    return {file.name for file in (path / "data").glob("*.lance")}


def context(restored=None, name="job", attempt="a"):
    return WriterContext(name, 0, 1, attempt, restored)


def staged(sink, numbers, checkpoint, restored=None, name="job"):
    with sink.create_writer(context(restored, name)) as writer:
        writer.write(pa.record_batch({"n": pa.array(numbers, pa.int64())}))
        return writer.prepare_commit(checkpoint)


def started(path, restored=None, name="job"):
    sink = LanceSink(path, schema=SCHEMA)
    committer = sink.create_committer(CommitterContext(name))
    committer.start(restored)
    return sink, committer


def append(path, *numbers):
    """Append rows as another program does."""
    lance.write_dataset(pa.table({"n": pa.array(numbers, pa.int64())}), path, mode="append")


@pytest.mark.soak
def test_a_crash_at_every_step(tmp_path):
    def check(path, crashes):
        assert rows(path) == list(range(len(rows(path)))), crashes

    assert len(stream_sinks.crash_everywhere(job, tmp_path, 2, check)) > 5


@stream_sinks.any_script(examples=8, actions=8, steps=60)
def test_any_job_with_a_crash_at_any_step(tmp_path_factory, script, at):
    path = tmp_path_factory.mktemp("lance") / "dataset"
    stream_sinks.play(job(path, sinks.Faults(at)), script)


class Stale(LanceSink):
    """A sink that looks at versions of before, and lets others change the dataset behind each look."""

    def dataset(self):
        dataset = super().dataset()
        if self.others:
            self.others.pop(0)()
        return dataset


def stale(path, others):
    sink = Stale(path)
    object.__setattr__(sink, "others", others)
    return sink.create_committer(CommitterContext("job"))


def test_two_committers_commit_the_same_checkpoint(tmp_path):
    sink, committer = started(tmp_path)
    committable = staged(sink, [1, 2], 1)
    other = stale(tmp_path, [lambda: committer.commit(1, [committable])])
    other.commit(1, [committable])
    assert rows(tmp_path) == [1, 2]
    assert lance.dataset(tmp_path).schema.metadata == {KEY: b"1"}


@pytest.mark.parametrize(
    "change",
    [
        lambda path: append(path, 7),
        lambda path: lance.dataset(path).delete("n = 0"),
        lambda path: lance.dataset(path).update({"n": "9"}, where="n = 0"),
        lambda path: lance.dataset(path).optimize.compact_files(),
        lambda path: lance.dataset(path).create_scalar_index("n", "BTREE"),
        lambda path: lance.dataset(path).update_config({"a": "b"}),
        lambda path: lance.dataset(path).update_schema_metadata({"k": "v"}),
        lambda path: lance.dataset(path).add_columns({"m": "n + 1"}),
    ],
    ids=["append", "delete", "update", "compact", "index", "config", "metadata", "add a column"],
)
def test_a_commit_loses_nothing_of_what_others_do_meanwhile(tmp_path, change):
    sink, _ = started(tmp_path)
    append(tmp_path, 0)
    append(tmp_path, 1)
    committable = staged(sink, [2, 3], 1)
    before = []

    def others():
        change(tmp_path)
        before.extend(rows(tmp_path))

    stale(tmp_path, [others]).commit(1, [committable])
    assert rows(tmp_path) == sorted([*before, 2, 3])
    dataset = lance.dataset(tmp_path)
    assert dataset.schema.metadata[KEY] == b"1"
    assert dataset.to_table(filter="n = 3").num_rows == 1


def test_changes_of_others_that_began_before_a_commit_go_on_behind_it(tmp_path):
    sink, committer = started(tmp_path)
    append(tmp_path, 0, 1)
    old = [lance.dataset(tmp_path) for _ in range(3)]
    fragment = lance.fragment.write_fragments(pa.table({"n": [5]}), old[0])
    committer.commit(1, [staged(sink, [2], 1)])
    operation = lance.LanceOperation.Append(fragment)
    lance.LanceDataset.commit(old[0], operation, read_version=old[0].version)
    old[1].delete("n = 0")
    old[2].create_scalar_index("n", "BTREE")
    assert rows(tmp_path) == [1, 2, 5]
    assert lance.dataset(tmp_path).schema.metadata == {KEY: b"1"}


def test_a_commit_gives_up_if_others_change_the_dataset_at_each_attempt(tmp_path, monkeypatch):
    monkeypatch.setattr("headgate.sink.lance._ATTEMPTS", 3)
    sink, committer = started(tmp_path)
    committable = staged(sink, [1], 1)
    with pytest.raises(SinkError, match="in each of 3 attempts"):
        stale(tmp_path, [lambda: append(tmp_path, 0)] * 3).commit(1, [committable])
    committer.commit(1, [committable])
    assert rows(tmp_path) == [0, 0, 0, 1]


@pytest.mark.parametrize("has_stable_ids", [False, True])
def test_the_number_outlives_what_others_do(tmp_path, has_stable_ids):
    path, rest = tmp_path, pa.array([0.5, 1.5])
    lance.write_dataset(
        pa.table({"x": rest, "n": [0, 1]}), path, enable_stable_row_ids=has_stable_ids
    )
    lance.dataset(path).create_scalar_index("n", "BTREE")
    # A field whose id is no longer its place.
    lance.dataset(path).drop_columns(["x"])
    sink = LanceSink(path)
    committer = sink.create_committer(CommitterContext("job"))
    committer.start(None)
    last = staged(sink, [2, 3], 4)
    committer.commit(4, [last])
    for change in (
        lambda dataset: dataset.delete("n = 0"),
        lambda dataset: dataset.update({"n": "30"}, where="n = 3"),
        lambda dataset: dataset.optimize.compact_files(),
        lambda dataset: dataset.optimize.optimize_indices(),
        lambda dataset: dataset.add_columns({"m": "n + 1"}),
        lambda dataset: dataset.alter_columns({"path": "m", "name": "k"}),
        lambda dataset: dataset.drop_columns(["k"]),
        lambda dataset: dataset.cleanup_old_versions(timedelta(0)),
    ):
        change(lance.dataset(path))
        assert lance.dataset(path).schema.metadata[KEY] == b"4"
        committer.commit(4, [last])
    assert rows(path) == [1, 2, 30]
    committer.commit(5, [last, staged(sink, [6], 5, 4)])
    assert rows(path) == [1, 2, 6, 30]
    table = lance.dataset(path).to_table(filter="n >= 2", with_row_id=True)
    assert sorted(table["n"].to_pylist()) == [2, 6, 30]
    assert len(set(table["_rowid"].to_pylist())) == 3


def test_rows_get_the_types_of_the_dataset(tmp_path):
    schema = pa.schema([("vector", pa.list_(pa.float32(), 2)), ("name", pa.string())])
    sink = LanceSink(tmp_path, schema=schema)
    committer = sink.create_committer(CommitterContext("job"))
    committer.start(None)
    columns = {"name": pa.array(["x"], pa.large_string()), "vector": pa.array([[0.5, 1.0]], FLOATS)}
    with sink.create_writer(context()) as writer:
        writer.write(pa.record_batch(columns))
        committer.commit(1, [writer.prepare_commit(1)])
        for wrong in (
            {"name": ["y"]},
            {"name": ["y"], "vector": pa.array([[0.5]], FLOATS)},
            {"name": ["y"], "vector": pa.array([[0.5, 1.0]])},  # of doubles
        ):
            with pytest.raises(SchemaMismatchError):
                writer.write(pa.record_batch(wrong))
    dataset = lance.dataset(tmp_path)
    assert dataset.schema.remove_metadata() == schema
    assert dataset.to_table().to_pylist() == [{"vector": [0.5, 1.0], "name": "x"}]


def test_files_have_as_many_bytes_as_was_said(tmp_path):
    sink = LanceSink(tmp_path, schema=SCHEMA, file_bytes=800)
    committer = sink.create_committer(CommitterContext("job"))
    committer.start(None)
    with sink.create_writer(context()) as writer:
        for start in range(0, 500, 50):
            writer.write(pa.record_batch({"n": range(start, start + 50)}))
        committable = writer.prepare_commit(1)
        assert writer.prepare_commit(2) is None, "no rows are nothing to commit"
    assert len(files(tmp_path)) == 5
    assert rows(tmp_path) == []
    committer.commit(1, [committable])
    assert rows(tmp_path) == list(range(500))
    assert lance.dataset(tmp_path).version == 2


def test_a_writer_that_aborts_removes_its_files(tmp_path):
    sink, _ = started(tmp_path)
    with sink.create_writer(context()) as writer:
        writer.write(pa.record_batch({"n": [1]}))
        assert writer.prepare_commit(1) is not None
        named = files(tmp_path)
        writer.write(pa.record_batch({"n": [2]}))
        writer._write_file()
        assert len(files(tmp_path)) == 2
        writer.abort()
        assert files(tmp_path) == named
        with pytest.raises(SinkError, match="come in the order of their numbers"):
            writer.prepare_commit(1)
    with pytest.raises(ClosedError):
        writer.write(pa.record_batch({"n": [3]}))


def test_a_missing_file_is_not_listed(tmp_path):
    sink, committer = started(tmp_path)
    committer.commit(1, [staged(sink, [1], 1)])
    committable = staged(sink, [2, 3], 2, 1)
    lance.dataset(tmp_path).cleanup_old_versions(timedelta(0), delete_unverified=True)
    with pytest.raises(SinkError, match="missing or has changed") as caught:
        committer.commit(2, [committable])
    assert "delete_unverified" in caught.value.remedy
    assert rows(tmp_path) == [1]


def test_a_job_that_would_repeat_its_rows_is_refused(tmp_path):
    sink, committer = started(tmp_path)
    committer.commit(3, [staged(sink, [1], 3)])
    for restored in (None, 2):
        with pytest.raises(SinkError, match="has rows of job job that the job would write again"):
            started(tmp_path, restored)
    started(tmp_path, 3)
    other, committer = started(tmp_path, name="other")
    committer.commit(1, [staged(other, [2], 1, name="other")])
    assert rows(tmp_path) == [1, 2]
    metadata = lance.dataset(tmp_path).schema.metadata
    assert metadata == {KEY: b"3", b"headgate.other": b"1"}


def test_committables_of_others_and_damaged_ones_are_refused(tmp_path):
    sink, committer = started(tmp_path)
    committable = staged(sink, [1], 2)
    for data, checkpoint, text in (
        (staged(sink, [1], 1, name="other"), 1, "of another job"),
        (staged(sink, [1], 3, restored=2), 1, "of a later checkpoint"),
        (committable.replace(b"physical_rows", b"physical_rowz"), 2, "no committable"),
        (b"{}", 2, "no committable"),
    ):
        with pytest.raises(SinkError, match=text):
            committer.commit(checkpoint, [data])
    assert rows(tmp_path) == []


def test_no_dataset_and_wrong_arguments(tmp_path):
    committer = LanceSink(tmp_path / "none").create_committer(CommitterContext("job"))
    with pytest.raises(SinkError, match="cannot be read as a Lance dataset") as caught:
        committer.start(None)
    assert "schema=" in caught.value.remedy
    assert ".rs:" not in str(caught.value), "places in the code of pylance are left out"
    (tmp_path / "file").touch()
    committer = LanceSink(tmp_path / "file", schema=SCHEMA).create_committer(
        CommitterContext("job")
    )
    with pytest.raises(SinkError):
        committer.start(None)
    with pytest.raises(OptionError):
        LanceSink(7)
    with pytest.raises(OptionError):
        LanceSink(tmp_path, file_bytes="much")


def test_another_form_of_schemas_is_refused(tmp_path):
    _, committer = started(tmp_path)

    class Other:
        def to_pyarrow(self):
            return SCHEMA

    with pytest.raises(SinkError, match="makes schemas in a way") as caught:
        committer._marked(Other(), 1)
    assert "pylance>=14" in caught.value.remedy


def test_changes_are_refused():
    changes = pa.schema([*SCHEMA, change_field()])
    sink = LanceSink("dataset")
    with pytest.raises(SinkError, match="are changes"):
        sink.check_schema(changes)
    sink.check_schema(SCHEMA)
    LanceSink("dataset", schema=changes).check_schema(changes)


def test_the_sink_has_a_name_without_secrets_and_can_be_pickled():
    sink = LanceSink("s3://user:secret@bucket/dataset", storage_options={"key": "secret"})
    assert "secret" not in sink.name
    assert "secret" not in repr(sink)
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_a_batch_is_one_version(tmp_path):
    write(pa.table({"n": [1, 2]}).to_batches(), LanceSink(tmp_path, schema=SCHEMA))
    write(pa.table({"n": [3]}).to_batches(), LanceSink(tmp_path))
    assert rows(tmp_path) == [1, 2, 3]


def test_a_streaming_job_goes_on_where_it_stopped(tmp_path):
    def run(**more):
        numbers = stream_jobs.numbers(2000, rate=2000)
        ids = numbers.map(lambda batch: batch.select(["id"]), name="ids")
        sink = LanceSink(tmp_path / "dataset", schema=pa.schema([("id", pa.int64())]))
        return ids.sink(sink, name="dataset").start(
            checkpoint=str(tmp_path / "checkpoints"), interval=0.1, parallelism=2, **more
        )

    with run() as query:
        stream_jobs.wait_for_a_checkpoint(query)
        query.cancel()
    assert lance.dataset(tmp_path / "dataset").count_rows() < 2000
    assert run().await_termination(60)
    ids = lance.dataset(tmp_path / "dataset").to_table()["id"].to_pylist()
    assert sorted(ids) == list(range(2000))
