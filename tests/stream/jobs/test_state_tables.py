"""State of jobs as tables: what a savepoint has, and state that a job begins with."""

import random

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint

from headgate.errors import CheckpointError, OptionError, StateError, UnknownColumnError
from headgate.sink import FileSink
from headgate.stream import (
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessFunction,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    read_state,
    write_state,
)

COUNT = ReducingStateDescriptor("count", "count", pa.int64())


def counts(folder, rows=1000, **options):
    return (
        stream_jobs.numbers(rows, **options)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="counts")
        .sink(FileSink(str(folder / "out")), name="files")
    )


def as_dict(table, value="value"):
    return dict(zip(table["key"].to_pylist(), table[value].to_pylist(), strict=True))


def highest(folder):
    rows = stream_jobs.rows_of(folder / "out").group_by("key").aggregate([("count", "max")])
    return as_dict(rows, "count_max")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_begins_with_the_state_of_a_table(tmp_path, parallelism):
    before = pa.table({"key": pa.array(range(10)), "count": [100 * n or None for n in range(10)]})
    folder = write_state(str(tmp_path / "state"), "counts", before, keys=["key"], states=[COUNT])
    assert as_dict(read_state(folder, "counts", "count")) == {n: 100 * n for n in range(1, 10)}
    counts(tmp_path).run(
        savepoint=folder, checkpoint=str(tmp_path / "checkpoints"), parallelism=parallelism
    )
    assert highest(tmp_path) == {
        key: len(range(key, 1000, 13)) + (100 * key if key < 10 else 0) for key in range(13)
    }


def test_a_job_that_fails_before_its_first_checkpoint_begins_with_it_again(tmp_path):
    before = pa.table({"key": range(13), "count": [1000] * 13})
    folder = write_state(str(tmp_path / "state"), "counts", before, keys=["key"], states=[COUNT])
    fail = stream_jobs.FailOnce(tmp_path / "failed", 300)
    (
        stream_jobs.numbers(1000)
        .map(fail)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="counts")
        .sink(FileSink(str(tmp_path / "out")), name="files")
    ).run(savepoint=folder, checkpoint=str(tmp_path / "checkpoints"), restart_delay=0)
    assert (tmp_path / "failed").exists()
    assert highest(tmp_path) == {key: 1000 + len(range(key, 1000, 13)) for key in range(13)}


def test_state_of_a_savepoint_and_of_checkpoints(tmp_path):
    checkpoints, savepoint = str(tmp_path / "checkpoints"), str(tmp_path / "savepoint")
    query = counts(tmp_path, 40_000, rate=4000).start(
        checkpoint=checkpoints, interval=0.1, parallelism=2
    )
    wait_for_a_checkpoint(query)
    assert sum(as_dict(read_state(checkpoints, "counts", "count")).values()) > 0
    query.stop(savepoint=savepoint)
    state = read_state(savepoint, "counts")
    assert list(state) == ["count"]
    assert as_dict(state["count"]) == highest(tmp_path)
    assert as_dict(read_state(checkpoints, "counts", "count")) == highest(tmp_path)
    for wrong, problem in (
        (("counts", "counter"), "has no state 'counter'"),
        (("count",), "uid='counts'"),
        (("files",), "no state of 'files'"),
    ):
        with pytest.raises(StateError, match=problem):
            read_state(savepoint, *wrong)
    with pytest.raises(CheckpointError, match="is no savepoint"):
        read_state(str(tmp_path / "nothing"), "counts")


def test_a_finished_job_has_none(tmp_path):
    counts(tmp_path).run(checkpoint=str(tmp_path / "checkpoints"))
    with pytest.raises(StateError, match="because its job had ended"):
        read_state(str(tmp_path / "checkpoints"), "counts")


class AllKinds(ProcessFunction):
    """Emits what it begins with."""

    STATES = (
        ValueStateDescriptor("name", pa.string()),
        ReducingStateDescriptor("most", "max", pa.float64()),
        ListStateDescriptor("last", pa.int64()),
        MapStateDescriptor("by_day", pa.int32(), pa.string()),
    )

    def open(self, context):
        self.states = [context.get_state(descriptor) for descriptor in self.STATES]

    def process(self, batch, context):
        name, most, last, by_day = self.states
        of_keys = context.keys.append_column("name", name.get()).append_column("most", most.get())
        texts = [
            sorted(f"{day}={text}" for day, text in days) for days in by_day.items().to_pylist()
        ]
        lists = pa.array(texts, pa.list_(pa.string()))
        return of_keys.append_column("last", last.get()).append_column("by_day", lists)


ALL = pa.schema(
    [
        ("key", pa.int64()),
        ("name", pa.string()),
        ("most", pa.float64()),
        ("last", pa.list_(pa.int64())),
        ("by_day", pa.list_(pa.string())),
    ]
)


@pytest.mark.parametrize("seed", range(4))
def test_all_kinds_of_state_against_a_naive_model(tmp_path, seed):
    """Random rows, some without a value, in one table or in parts of chunks."""
    chance = random.Random(seed)

    def maybe(value):
        return value if chance.random() < 0.7 else None

    rows = [
        {
            "key": key,
            "name": maybe(f"n{key}"),
            "most": maybe(chance.random()),
            "last": maybe([chance.randrange(9) for _ in range(chance.randrange(4))]),
            "by_day": maybe([(day, maybe(f"d{day}")) for day in range(chance.randrange(4))]),
        }
        for key in range(26)
    ]
    types = [*ALL.types[:-1], pa.map_(pa.int32(), pa.string())]
    schema = pa.schema(list(zip(ALL.names, types, strict=True)))
    table = pa.Table.from_pylist(rows, schema=schema)
    table = pa.concat_tables([table.slice(0, 7), table.slice(7, 0), table.slice(7)])
    folder = write_state(
        str(tmp_path / "state"), "all", table, keys=["key"], states=AllKinds.STATES
    )
    keys = stream_jobs.numbers(26).map(
        lambda batch: pa.record_batch({"key": batch["id"]}), schema=pa.schema([ALL.field(0)])
    )
    (
        keys.key_by("key")
        .process(AllKinds, schema=ALL, name="all")
        .sink(FileSink(str(tmp_path / "out")))
    ).run(savepoint=folder, parallelism=chance.choice([1, 2, 3]))
    result = stream_jobs.rows_of(tmp_path / "out").sort_by("key").to_pylist()
    naive = [
        {
            **row,
            "last": row["last"] or [],
            "by_day": sorted(f"{day}={text}" for day, text in row["by_day"] or []),
        }
        for row in rows
    ]
    assert result == naive


def test_several_operators_and_rows_of_any_library(tmp_path):
    folder = str(tmp_path / "state")
    table = pa.table({"user": ["a", "b"], "n": [1, 2]})
    write_state(folder, "arrow", table, keys=["user"])
    write_state(folder, "batches", table.to_batches()[0], keys=["user"])
    write_state(folder, "pandas", pd.DataFrame({"user": ["a", "b"], "n": [1, 2]}), keys=["user"])
    write_state(folder, "polars", pl.DataFrame({"user": ["a", "b"], "n": [1, 2]}), keys=["user"])
    for uid in ("arrow", "batches", "pandas", "polars"):
        state = read_state(folder, uid, "n")
        assert dict(zip(*state.to_pydict().values(), strict=True)) == {"a": 1, "b": 2}
    with pytest.raises(StateError, match="has state of 'arrow' already"):
        write_state(folder, "arrow", table, keys=["user"])
    with pytest.raises(StateError, match="max_parallelism=64 is not that"):
        write_state(folder, "more", table, keys=["user"], max_parallelism=64)


def test_what_is_no_state_is_refused(tmp_path):
    table = pa.table({"user": ["a", "a"], "n": [1, 2]})

    def write(rows=table, name="state", **options):
        write_state(str(tmp_path / name), "f", rows, **{"keys": ["user"], **options})

    with pytest.raises(StateError, match="a key is there twice"):
        write()
    with pytest.raises(UnknownColumnError, match="no column 'id'"):
        write(keys=["id"])
    with pytest.raises(UnknownColumnError, match="no column 'count'"):
        write(states=[COUNT])
    with pytest.raises(OptionError, match="keys"):
        write(keys=[])
    with pytest.raises(OptionError, match="states"):
        write(states=["n"])
    query = counts(tmp_path, rate=1000).start()
    query.stop(savepoint=str(tmp_path / "savepoint"))
    with pytest.raises(CheckpointError, match="has a savepoint already"):
        write(pc.take(table, pa.array([0])), "savepoint")
