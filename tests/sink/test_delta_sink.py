"""The sink of Delta tables: rows of complete checkpoints, once, whatever crashes; files that no checkpoint names go."""

import pickle
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.kit import sinks, stream_sinks

from headgate.errors import NotBuiltError, OptionError, SchemaMismatchError, SinkError
from headgate.sink import CommitterContext, WriterContext, write
from headgate.sink.delta import DeltaSink

SCHEMA = pa.schema([("n", pa.int64())])


class Faulty(DeltaSink):
    """A sink on a storage whose steps are counted."""

    faults = None

    def _storage(self):
        return sinks.FaultyStorage(super()._storage(), self.faults)


def job(path, faults):
    def make_sink(faults):
        if faults is None:
            return DeltaSink(path, schema=SCHEMA)
        sink = Faulty(path, schema=SCHEMA)
        object.__setattr__(sink, "faults", faults)
        return sink

    return stream_sinks.StreamJob(make_sink, lambda: rows(path), faults)


def rows(path):
    if not DeltaTable.is_deltatable(str(path)):
        return []
    return sorted(DeltaTable(path).to_pyarrow_table()["n"].to_pylist())


def files(path):
    return {file.name for file in path.glob("*.parquet")}


def listed(path):
    return {uri.rpartition("/")[2] for uri in DeltaTable(path).file_uris()}


def context(restored=None, name="job", attempt="a", index=0):
    return WriterContext(name, index, 1, attempt, restored)


def staged(sink, numbers, checkpoint, restored=None, name="job"):
    with sink.create_writer(context(restored, name)) as writer:
        writer.write(pa.record_batch({"n": pa.array(numbers, pa.int64())}))
        return writer.prepare_commit(checkpoint)


def started(path, restored=None, name="job"):
    sink = DeltaSink(path, schema=SCHEMA)
    committer = sink.create_committer(CommitterContext(name))
    committer.start(restored)
    return sink, committer


@pytest.mark.soak
def test_a_crash_at_every_step(tmp_path):
    def check(path, crashes):
        assert files(path) == listed(path), crashes

    assert len(stream_sinks.crash_everywhere(job, tmp_path, 2, check)) > 15


@stream_sinks.any_script(examples=25, actions=12, steps=120)
def test_any_job_with_a_crash_at_any_step(tmp_path_factory, script, at):
    path = tmp_path_factory.mktemp("delta") / "table"
    stream_sinks.play(job(path, sinks.Faults(at)), script)


def test_two_committers_commit_the_same_checkpoint(tmp_path, monkeypatch):
    sink, committer = started(tmp_path)
    one = staged(sink, [1, 2], 1)
    before = DeltaTable(tmp_path)
    other = sink.create_committer(CommitterContext("job"))
    committer.commit(1, [one])
    # The other one has looked at the table before that commit.
    monkeypatch.setattr(DeltaSink, "table", lambda self: before)
    with pytest.raises(SinkError, match="Concurrent transaction failed"):
        other.commit(1, [one])
    monkeypatch.undo()
    other.commit(1, [one])
    assert rows(tmp_path) == [1, 2]


def test_rows_get_the_types_of_the_table(tmp_path):
    schema = pa.schema(
        [("at", pa.timestamp("us", "UTC")), ("name", pa.string()), ("n", pa.int32())]
    )
    sink = DeltaSink(tmp_path, schema=schema)
    committer = sink.create_committer(CommitterContext("job"))
    committer.start(None)
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    columns = {
        "n": pa.array([1], pa.int64()),
        "name": pa.array(["x"], pa.large_string()),
        "at": pa.array([time], pa.timestamp("ms", "UTC")),
    }
    with sink.create_writer(context()) as writer:
        writer.write(pa.record_batch(columns))
        committer.commit(1, [writer.prepare_commit(1)])
    assert DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [
        {"at": time, "name": "x", "n": 1}
    ]


def test_an_existing_table_is_appended_to_and_keeps_its_schema(tmp_path):
    write_deltalake(str(tmp_path), pa.table({"n": [1]}))
    sink = DeltaSink(tmp_path)
    committer = sink.create_committer(CommitterContext("job"))
    committer.start(None)
    committer.commit(4, [staged(sink, [2], 4)])
    assert rows(tmp_path) == [1, 2]
    assert DeltaTable(tmp_path).transaction_version("headgate-job") == 4
    with (
        sink.create_writer(context(4)) as writer,
        pytest.raises(SchemaMismatchError, match="no column 'n'"),
    ):
        writer.write(pa.record_batch({"m": [1]}))


def test_a_null_where_the_table_takes_none_is_refused(tmp_path):
    sink = DeltaSink(tmp_path, schema=pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    sink.create_committer(CommitterContext("job")).start(None)
    with sink.create_writer(context()) as writer, pytest.raises(SchemaMismatchError):
        writer.write(pa.record_batch({"n": pa.array([1, None])}))


def test_tables_with_rules_that_files_would_break_are_refused(tmp_path):
    write_deltalake(str(tmp_path / "parts"), pa.table({"n": [1], "day": [2]}), partition_by=["day"])
    write_deltalake(str(tmp_path / "rules"), pa.table({"n": [1]}))
    DeltaTable(tmp_path / "rules").alter.add_constraint({"positive": "n > 0"})
    for name, rule in (("parts", "day"), ("rules", "delta.constraints.positive")):
        committer = DeltaSink(tmp_path / name).create_committer(CommitterContext("job"))
        with pytest.raises(NotBuiltError) as caught:
            committer.start(None)
        assert rule in caught.value.have


def test_a_job_that_continues_from_before_its_last_commit_is_refused(tmp_path):
    sink, committer = started(tmp_path)
    committer.commit(3, [staged(sink, [1], 3)])
    for restored in (None, 2):
        with pytest.raises(SinkError, match="would write again"):
            started(tmp_path, restored)
    started(tmp_path, 3)
    started(tmp_path, name="another")


def test_files_of_committed_checkpoints_and_of_other_jobs_are_not_removed(tmp_path):
    sink, committer = started(tmp_path)
    committer.commit(1, [staged(sink, [1], 1)])
    committer.commit(2, [staged(sink, [2], 2, restored=1)])
    other = staged(sink, [3], 3, name="job-2")
    DeltaTable(tmp_path).optimize.compact()
    known, unknown = staged(sink, [4], 3, restored=2), staged(sink, [5], 4, restored=3)
    before = files(tmp_path)
    # Those of a newer driver's attempt stay.
    committer.abort_unknown([known], before="0")
    assert files(tmp_path) == before
    committer.abort_unknown([known], before="z")
    (gone,) = before - files(tmp_path)
    assert gone.encode() in unknown
    committer.commit(3, [known])
    assert rows(tmp_path) == [1, 2, 4]
    assert DeltaTable(tmp_path, version=1).to_pyarrow_table()["n"].to_pylist() == [1]
    assert other is not None


def test_damaged_files_and_committables_are_errors(tmp_path):
    sink, committer = started(tmp_path)
    one = staged(sink, [1], 1)
    (file,) = files(tmp_path)
    (tmp_path / file).write_bytes(b"short")
    with pytest.raises(SinkError, match="missing or has changed"):
        committer.commit(1, [one])
    assert rows(tmp_path) == []


def test_without_a_table_or_a_path_the_error_says_so(tmp_path):
    with pytest.raises(SinkError, match="cannot be read as a Delta table"):
        DeltaSink(tmp_path / "none").create_committer(CommitterContext("job")).start(None)
    with pytest.raises(OptionError, match="is not a path"):
        DeltaSink(3)
    sink = DeltaSink(tmp_path, storage_options={"key": "secret"})
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert "secret" not in repr(sink)


def test_without_the_package_the_error_says_what_to_install():
    program = (
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'deltalake' else real(name, *a)\n"
        "import headgate.sink\n"
        "try: import headgate.sink.delta\n"
        "except ImportError as error: print(error.code, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert "HG-1103" in done.stdout
    assert "headgate[delta]" in done.stdout


def test_a_committable_that_an_earlier_checkpoint_committed_is_left_out(tmp_path):
    sink, committer = started(tmp_path)
    first = staged(sink, [1], 1)
    committer.commit(1, [first])
    second = staged(sink, [2], 2, restored=1)
    committer.commit(2, [first, second])
    # Now their rows are in another file; listing the old ones again would repeat the rows.
    DeltaTable(tmp_path).optimize.compact()
    third = staged(sink, [3], 3, restored=2)
    committer.commit(3, [first, second, third])
    committer.commit(4, [third])
    assert rows(tmp_path) == [1, 2, 3]


def test_a_batch_is_one_version_of_the_table(tmp_path):
    sink = DeltaSink(tmp_path, schema=SCHEMA)
    for numbers in (range(3), range(3, 5), range(0)):
        table = pa.table({"n": pa.array(numbers, pa.int64())})
        assert write(table, sink).rows == len(numbers)

    def failing():
        yield pa.record_batch({"n": pa.array([7], pa.int64())})
        raise KeyError("planned")

    with pytest.raises(KeyError, match="planned"):
        write(failing(), sink)
    assert DeltaTable(tmp_path).version() == 2
    assert rows(tmp_path) == list(range(5))
    assert files(tmp_path) == listed(tmp_path)
