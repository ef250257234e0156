"""Sinks of changes: the table or topic has the last row of each key, once, whatever crashes; others refuse them."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit import sinks, stream_jobs, stream_sinks

from headgate._changes import CHANGE_TYPE, change_field
from headgate.errors import (
    NotBuiltError,
    OptionError,
    SchemaMismatchError,
    SinkError,
    UnknownColumnError,
)
from headgate.sink import CommitterContext, FileSink, WriterContext, write
from headgate.sink.delta import DeltaSink
from headgate.sink.kafka.producing import check_schema, records_of
from headgate.stream import Aggregate

SCHEMA = pa.schema([("User Id", pa.string()), ("n", pa.int64())])
KEYS = ["User Id"]
CHANGES = pa.schema([*SCHEMA, change_field()])

changes = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.integers(0, 9),
        st.sampled_from(["insert", "update_before", "update_after", "delete"]),
    ),
    max_size=6,
)


def batch_of(rows):
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    arrays = [pa.array(c, f.type) for c, f in zip(columns, CHANGES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)


def table_of(path):
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return {row["User Id"]: row["n"] for row in rows}


def apply(model, rows):
    for user, n, change in rows:
        if change in ("insert", "update_after"):
            model[user] = n
        else:
            model.pop(user, None)


@settings(max_examples=25, deadline=None)
@given(checkpoints=st.lists(st.lists(changes, max_size=2), max_size=5), data=st.data())
def test_a_table_has_the_last_row_of_each_key(tmp_path_factory, checkpoints, data):
    path = tmp_path_factory.mktemp("delta") / "table"
    sink = DeltaSink(path, schema=SCHEMA, keys=KEYS)
    committer = sink.create_committer(CommitterContext("job"))
    committer.start(None)
    writer = sink.create_writer(WriterContext("job"))
    model, committables = {}, []
    for number, batches in enumerate(checkpoints, 1):
        for rows in batches:
            writer.write(batch_of(rows))
            apply(model, rows)
        committable = writer.prepare_commit(number)
        committables += [] if committable is None else [committable]
        if data.draw(st.booleans(), "is aborted"):
            continue
        committer.commit(number, committables)
        if data.draw(st.booleans(), "is committed again"):
            committer = sink.create_committer(CommitterContext("job"))
            committer.start(number)
            committer.commit(number, committables)
        assert table_of(path) == model
        if data.draw(st.booleans(), "is heard of"):
            committables = []
    writer.close()


class Faulty(DeltaSink):
    """A sink on a storage whose steps are counted."""

    faults = None

    def _storage(self):
        return sinks.FaultyStorage(super()._storage(), self.faults)


def numbers_job(path, faults):
    schema = pa.schema([("n", pa.int64())])

    def make_sink(faults):
        if faults is None:
            return DeltaSink(path, schema=schema, keys="n")
        sink = Faulty(path, schema=schema, keys="n")
        object.__setattr__(sink, "faults", faults)
        return sink

    def visible():
        if not DeltaTable.is_deltatable(str(path)):
            return []
        return DeltaTable(path).to_pyarrow_table()["n"].to_pylist()

    return stream_sinks.StreamJob(make_sink, visible, faults)


@stream_sinks.any_script(examples=10, actions=10, steps=120)
def test_any_job_that_merges_with_a_crash_at_any_step(tmp_path_factory, script, at):
    path = tmp_path_factory.mktemp("delta") / "table"
    stream_sinks.play(numbers_job(path, sinks.Faults(at)), script)


def test_two_committers_merge_the_same_checkpoint(tmp_path, monkeypatch):
    sink = DeltaSink(tmp_path, schema=SCHEMA, keys=KEYS)
    committer = sink.create_committer(CommitterContext("job"))
    committer.start(None)
    with sink.create_writer(WriterContext("job")) as writer:
        writer.write(batch_of([("a", 1, "insert")]))
        staged = writer.prepare_commit(1)
    monkeypatch.setattr("headgate.sink.delta.clean_until", lambda *_: None)
    before = DeltaTable(tmp_path)
    committer.commit(1, [staged])
    other = sink.create_committer(CommitterContext("job"))
    with monkeypatch.context() as patch:
        # The other one has looked at the table before that commit.
        patch.setattr(DeltaSink, "table", lambda self: before)
        with pytest.raises(SinkError, match="the merge into"):
            other.commit(1, [staged])
    other.commit(1, [staged])
    assert table_of(tmp_path) == {"a": 1}
    assert DeltaTable(tmp_path).version() == 1


def test_rows_without_changes_replace_those_of_their_keys(tmp_path):
    write_deltalake(
        str(tmp_path), pa.table({"User Id": ["a", "b"], "n": [1, 2]}), partition_by=["n"]
    )
    write(pa.table({"User Id": ["b", "c"], "n": [7, 8]}), DeltaSink(tmp_path, keys=KEYS))
    assert table_of(tmp_path) == {"a": 1, "b": 7, "c": 8}


def test_staged_rows_that_have_changed_are_not_merged(tmp_path):
    sink = DeltaSink(tmp_path / "table", schema=SCHEMA, keys=KEYS)
    committer = sink.create_committer(CommitterContext("job"))
    committer.start(None)
    with sink.create_writer(WriterContext("job")) as writer:
        writer.write(batch_of([("a", 1, "insert")]))
        staged = writer.prepare_commit(1)
    (file,) = (tmp_path / "table" / "_staging").rglob("*.arrow")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(SinkError, match="staged rows are missing or have changed"):
        committer.commit(1, [staged])
    assert table_of(tmp_path / "table") == {}


def test_tables_and_rows_that_cannot_be_merged_are_refused(tmp_path):
    with pytest.raises(OptionError, match="is empty"):
        DeltaSink(tmp_path, keys=[])
    with pytest.raises(OptionError, match="no name of a column"):
        DeltaSink(tmp_path, keys=[1])
    sink = DeltaSink(tmp_path, schema=SCHEMA, keys=["user"])
    with pytest.raises(UnknownColumnError, match="no column 'user'"):
        sink.check_schema(SCHEMA)
    with pytest.raises(UnknownColumnError, match="the table has no column 'user'"):
        sink.create_committer(CommitterContext("job")).start(None)
    computed = pa.field("n", pa.int64(), metadata={b"delta.generationExpression": b"1"})
    table = DeltaSink(tmp_path / "other", schema=pa.schema([computed]), keys=["n"])
    with pytest.raises((NotBuiltError, SinkError)):
        table.create_committer(CommitterContext("job")).start(None)


def test_a_call_refuses_a_sink_that_cannot_apply_its_changes(tmp_path):
    totals = stream_jobs.numbers(10).key_by("key").aggregate(Aggregate("count"))
    with pytest.raises(SinkError, match="appends"):
        totals.sink(DeltaSink(tmp_path))
    upserts = stream_jobs.numbers(10).key_by("key")
    upserts = upserts.aggregate(Aggregate("count"), update_before=False)
    with pytest.raises(SinkError, match="other keys"):
        upserts.sink(DeltaSink(tmp_path, keys=["count"]))
    upserts.sink(DeltaSink(tmp_path, keys=["key"]))
    keyed = stream_jobs.numbers(10).key_by("key")
    with pytest.raises(SinkError, match="several rows have the same keys"):
        keyed.top(2, by="id").map(stream_jobs.same).sink(DeltaSink(tmp_path, keys=["key"]))
    keyed.top(2, by="id").sink(DeltaSink(tmp_path, keys=["key", "id"]))
    keyed.top(2, by="id", rank="place").sink(DeltaSink(tmp_path, keys=["key", "place"]))
    keyed.top(1, by="id").sink(DeltaSink(tmp_path, keys=["key"]))
    totals.sink(FileSink(tmp_path))
    totals.sink(DeltaSink(tmp_path, schema=totals.schema))


def test_a_job_merges_its_updates_once_after_a_failure(tmp_path):
    rows = stream_jobs.numbers(2000, rate=3000).map(
        stream_jobs.FailOnce(tmp_path / "failed", 300), name="fails"
    )
    totals = rows.key_by("key").aggregate(Aggregate("count"), Aggregate("sum", "id"), name="totals")
    schema = pa.schema(list(totals.schema)[:-1])
    query = totals.sink(
        DeltaSink(tmp_path / "table", schema=schema, keys="key"), name="table"
    ).start(parallelism=2, checkpoint=str(tmp_path / "checkpoints"), interval=0.1)
    assert query.await_termination(60)
    assert query.status.restarts == 1
    merged = DeltaTable(tmp_path / "table").to_pyarrow_table().sort_by("key").to_pylist()
    ids = {key: range(key, 2000, stream_jobs.KEYS) for key in range(stream_jobs.KEYS)}
    assert merged == [{"key": k, "count": len(of), "sum_id": sum(of)} for k, of in ids.items()]


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(changes, max_size=4))
def test_a_compacted_topic_has_the_last_row_of_each_key(batches):
    topic, model = {}, {}
    for rows in batches:
        batch = batch_of(rows)
        values = pa.array(map(str, batch["n"].to_pylist()), pa.string())
        records = pa.RecordBatch.from_arrays(
            [batch["User Id"], values, batch[CHANGE_TYPE]], names=["key", "value", CHANGE_TYPE]
        )
        check_schema(records.schema)
        seen_keys = set()
        for record in records_of(records, "topic"):
            assert set(record) <= {"key", "value", "topic"}
            assert record.get("key") not in seen_keys
            seen_keys.add(record.get("key"))
            topic[record.get("key")] = record["value"]
        apply(model, rows)
    there = {key: value for key, value in topic.items() if value is not None}
    assert there == {key: str(n) for key, n in model.items()}


def test_changes_without_a_key_are_no_records():
    schema = pa.schema([("value", pa.string()), change_field()])
    with pytest.raises(SchemaMismatchError, match="without a key"):
        check_schema(schema)
