"""Versions of Delta tables have the rows that deltalake's own engine reads; what is not known is refused by its name."""

from __future__ import annotations

import base64
import datetime as dt
import json
import pickle
import shutil
import struct
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap
from tests.kit.contexts import table_of
from tests.kit.tables import sorted_rows

from headgate.errors import NotBuiltError, OptionError, SchemaMismatchError, SourceError
from headgate.source import plan_splits, read
from headgate.source.delta import DeltaSource
from headgate.source.registry import source_from_options
from headgate.source.testing import SourceTestBase

UTC = dt.UTC


def rows(source, **options):
    return table_of(source, list(read(source, **options)))


def by_engine(path, version=None):
    """Return the rows of a version as deltalake's engine reads them."""
    table = pa.table(DeltaTable(str(path), version=version).scan().read_all())
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    kinds = [field.with_type(views.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(kinds))


def same(actual, wanted):
    assert actual.column_names == wanted.column_names
    assert sorted_rows(actual) == sorted_rows(wanted.cast(actual.schema))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 30), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.integers(0, 30), st.integers(0, 3)),
        st.tuples(st.just("update"), st.integers(0, 30), st.integers(0, 3)),
        st.tuples(st.just("overwrite"), st.integers(1, 10), st.integers(0, 3)),
        st.tuples(st.just("optimize"), st.just(0), st.just(0)),
        st.tuples(st.just("column"), st.just(0), st.just(0)),
    ),
    min_size=1,
    max_size=6,
)
FILTERS = st.sampled_from(
    [
        None,
        "n > 12",
        "n between 3 and 9 and s is not null",
        "part = 'a b/%é'",
        "part is null or n = 5",
        "s >= 'r2' and part <> 'x'",
        "d < date '2020-01-10'",
        "x > 2.5",
    ]
)
PARTS = ["a b/%é", "x", None, "y=z"]


def orders(first, count, part):
    numbers = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "s": [None if n % 5 == 3 else f"r{n}" for n in numbers],
            "x": [float("nan") if n % 7 == 6 else n / 2 for n in numbers],
            "d": pa.array([dt.date(2020, 1, 1) + dt.timedelta(n) for n in numbers]),
            "part": pa.array([PARTS[(n + part) % 4] for n in numbers], pa.string()),
        }
    )


def merges(table):
    """Return how to write fewer columns than a table has."""
    return "merge" if len(table.schema().fields) > 5 else None


def step(path, kind, first, part):
    table = DeltaTable(path)
    match kind:
        case "append":
            write_deltalake(path, orders(first, 7, part), mode="append", schema_mode=merges(table))
        case "delete":
            table.delete(f"n % 4 = {part}")
        case "update":
            table.update(updates={"s": "'u'"}, predicate=f"n >= {first}")
        case "overwrite":
            write_deltalake(
                path, orders(first, 3, part), mode="overwrite", schema_mode=merges(table)
            )
        case "optimize":
            table.optimize.compact()
        case "column":
            extra = orders(100, 2, 0).append_column(f"c{table.version()}", pa.array([1, 2]))
            write_deltalake(path, extra, mode="append", schema_mode="merge")


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, condition=FILTERS, mapped=st.booleans(), data=st.data())
def test_each_version_has_the_rows_of_deltalakes_engine(
    tmp_path_factory, steps, condition, mapped, data
):
    path = str(tmp_path_factory.mktemp("delta"))
    properties = {"delta.columnMapping.mode": "name"} if mapped else {}
    write_deltalake(path, orders(0, 20, 0), partition_by=["part"], configuration=properties)
    for kind, first, part in steps:
        if not (mapped and kind in {"column", "optimize"}):
            step(path, kind, first, part)
    version = data.draw(st.integers(0, DeltaTable(path).version()))
    wanted = by_engine(path, version)
    options = {}
    if condition is not None:
        options["filter"] = EXPRESSIONS[condition]
        wanted = duckdb.sql(f"select * from wanted where {condition}").to_arrow_table()
    same(rows(DeltaSource(path, version=version, split_size=1, **options), parallelism=2), wanted)


EXPRESSIONS = {
    "n > 12": pc.field("n") > 12,
    "n between 3 and 9 and s is not null": (pc.field("n") >= 3)
    & (pc.field("n") <= 9)
    & pc.field("s").is_valid(),
    "part = 'a b/%é'": pc.field("part") == "a b/%é",
    "part is null or n = 5": pc.field("part").is_null() | (pc.field("n") == 5),
    "s >= 'r2' and part <> 'x'": (pc.field("s") >= "r2") & (pc.field("part") != "x"),
    "d < date '2020-01-10'": pc.field("d") < dt.date(2020, 1, 10),
    "x > 2.5": (pc.field("x") > 2.5) | pc.is_nan(pc.field("x")),  # NaN is above all numbers there
}


def test_files_that_no_row_can_be_of_are_not_read(tmp_path):
    path = str(tmp_path)
    for first in range(0, 50, 10):
        write_deltalake(path, orders(first, 10, 0), mode="append", partition_by=["part"])

    def splits(**options):
        return len(plan_splits(DeltaSource(path, **options)).splits)

    assert splits() == 20
    assert splits(filter=pc.field("part") == "x") == 5
    assert splits(filter=(pc.field("part") == "x") & (pc.field("n") < 15)) == 2
    assert splits(filter=pc.field("s") > "r9") < 20
    assert splits(filter=pc.field("d") > dt.date(2030, 1, 1)) == 0
    assert splits(filter=pc.field("x") > 1e9) == 20, "limits say nothing of NaN"


#: Alphabets of base 85: of Python, and of Delta (Z85).
B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector(positions):
    bits = struct.pack("<iqi", 1681511377, 1, 0) + BitMap(positions).serialize()
    bits += b"\0" * (-len(bits) % 4)
    text = base64.b85encode(bits).translate(bytes.maketrans(B85, Z85)).decode()
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(bits),
        "cardinality": len(positions),
    }


def commit(path, *actions):
    version = DeltaTable(path).version() + 1
    info = {"commitInfo": {"timestamp": 1, "operation": "DELETE"}}
    lines = map(json.dumps, (info, *actions))
    Path(path, "_delta_log", f"{version:020}.json").write_text("\n".join(lines))


def deleted_by_vectors(path, positions):
    """Commit a deletion vector for each file of a table, of the file's rows at some positions."""
    log = Path(path, "_delta_log", f"{0:020}.json").read_text().splitlines()
    adds = [line["add"] for line in map(json.loads, log) if "add" in line]
    columns = ("path", "partitionValues", "size")
    fresh = {"deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True}
    removes = [{**fresh, **{name: add[name] for name in columns}} for add in adds]
    vectors = [{**add, "deletionVector": deletion_vector(positions)} for add in adds]
    commit(path, *({"remove": each} for each in removes), *({"add": each} for each in vectors))


@pytest.mark.parametrize("positions", [[0], [3, 4, 5, 11, 24], range(25)])
def test_rows_under_deletion_vectors_are_left_out(tmp_path, positions):
    path = str(tmp_path / "té st")
    properties = {"delta.enableDeletionVectors": "true"}
    write_deltalake(path, orders(0, 100, 0), partition_by=["part"], configuration=properties)
    deleted_by_vectors(path, positions)
    wanted = by_engine(path)
    assert wanted.num_rows == 100 - 4 * len(positions)
    same(rows(DeltaSource(path, batch_rows=2), parallelism=2), wanted)
    some_rows = DeltaSource(path, filter=pc.field("n") < 50, split_size=1)
    same(rows(some_rows), wanted.filter(pc.field("n") < 50))
    assert rows(DeltaSource(path, version=0)).num_rows == 100


def test_changes_under_deletion_vectors_are_refused(tmp_path):
    path = str(tmp_path)
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    write_deltalake(path, orders(0, 20, 0), configuration=properties)
    deleted_by_vectors(path, [1])
    with pytest.raises(SourceError, match="under a deletion vector"):
        rows(DeltaSource(path, changes=True, after=-1))


def test_what_is_not_known_is_refused_by_its_name(tmp_path):
    path = tmp_path / "table"
    write_deltalake(str(path), pa.table({"n": [1]}))
    log = path / "_delta_log" / f"{1:020}.json"
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["futureFeature"],
        "writerFeatures": ["futureFeature"],
    }
    log.write_text(json.dumps({"protocol": protocol}))
    with pytest.raises((NotBuiltError, SourceError), match="futureFeature"):
        DeltaSource(str(path)).schema  # noqa: B018
    source = DeltaSource(str(path), version=0)
    assert rows(source).num_rows == 1
    with pytest.raises((NotBuiltError, SourceError), match="futureFeature"):
        rows(DeltaSource(str(path), after=0))


def test_a_mapping_of_columns_without_its_feature_is_refused(tmp_path):
    properties = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    write_deltalake(str(tmp_path), pa.table({"n": [1]}), configuration=properties)
    if "columnMapping" in DeltaTable(str(tmp_path)).protocol().reader_features:
        pytest.skip("this deltalake lists the feature")
    with pytest.raises(NotBuiltError, match="does not have the feature columnMapping"):
        DeltaSource(str(tmp_path)).schema  # noqa: B018


def test_partitions_by_timestamps_are_refused_unless_they_are_left_out(tmp_path):
    at = pa.array([dt.datetime(2020, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC"))
    write_deltalake(str(tmp_path), pa.table({"n": [1, 2], "at": at}), partition_by=["at"])
    with pytest.raises(NotBuiltError, match="in which zone") as caught:
        DeltaSource(str(tmp_path)).schema  # noqa: B018
    assert "columns=['n']" in caught.value.remedy
    assert rows(DeltaSource(str(tmp_path), columns=["n"]))["n"].to_pylist() == [1, 2]


def test_versions_and_times(tmp_path):
    path = str(tmp_path)
    for number in range(3):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    assert rows(DeltaSource(path, version=1)).num_rows == 2
    now = dt.datetime.now(UTC) + dt.timedelta(hours=1)
    assert rows(DeltaSource(path, timestamp=now)).num_rows == 3
    assert rows(DeltaSource(path, timestamp=now.isoformat())).num_rows == 3
    for wrong, message in (
        (DeltaSource(path, version=7), "version 7"),
        (DeltaSource(path, timestamp="2001-01-01T00:00:00Z"), "no version of 2001"),
        (DeltaSource(path, after=9), "no version 9"),
        (DeltaSource(str(tmp_path / "nothing")), "cannot be read as a Delta table"),
    ):
        with pytest.raises(SourceError, match=message):
            rows(wrong)
    for options in (
        {"version": -1},
        {"version": 1, "timestamp": now},
        {"version": 1, "after": 1},
        {"timestamp": "2020-01-01"},
        {"after": "earliest"},
        {"columns": []},
        {"filter": "n > 1"},
        {"changes": True, "skip_change_commits": True},
    ):
        with pytest.raises(OptionError):
            DeltaSource(path, **options)


def test_a_version_is_looked_up_once_and_travels_with_the_source(tmp_path):
    path = str(tmp_path)
    write_deltalake(path, pa.table({"n": [1]}))
    source = DeltaSource(path)
    assert source.schema == pa.schema([("n", pa.int64())])
    travelled = pickle.loads(pickle.dumps(source))
    write_deltalake(path, pa.table({"n": [2]}), mode="append")
    assert rows(source).num_rows == rows(travelled).num_rows == 1
    assert rows(DeltaSource(path)).num_rows == 2


def test_a_file_that_is_gone_or_changed_is_an_error_that_names_it(tmp_path):
    path = str(tmp_path)
    write_deltalake(path, pa.table({"n": [1]}))
    source = DeltaSource(path)
    source.schema  # noqa: B018
    (file,) = tmp_path.glob("*.parquet")
    with file.open("ab") as opened:
        opened.write(b"more")
    with pytest.raises(SourceError, match="another size"):
        rows(source)
    file.unlink()
    with pytest.raises(SourceError, match="is gone") as caught:
        rows(source)
    assert caught.value.details["path"] == str(file)


def test_the_change_feed_is_that_of_deltalake(tmp_path):
    path = str(tmp_path)

    def add(first, mode):  # deltalake's feed does not find files in folders whose names are escaped
        fresh = orders(first, 12, 0)
        part = pa.array([n % 2 if n % 3 else None for n in range(12)], pa.int64())
        fresh = fresh.set_column(4, "part", part)
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(path, fresh, mode=mode, partition_by=["part"], configuration=feed)

    add(0, "error")
    step(path, "update", 8, 0)
    step(path, "optimize", 0, 0)
    step(path, "delete", 0, 1)
    add(20, "append")
    add(40, "overwrite")
    for after in (-1, 1, 3):
        source = DeltaSource(path, changes=True, after=after)
        wanted = pa.table(DeltaTable(path).load_cdf(starting_version=after + 1).read_all())
        actual = rows(source, parallelism=2)
        assert sorted_rows(actual) == sorted_rows(
            wanted.select(actual.column_names).cast(actual.schema)
        )
    deletes = DeltaSource(path, changes=True, after=-1, filter=pc.field("_change_type") == "delete")
    assert set(rows(deletes)["_change_type"].to_pylist()) == {"delete"}
    first = rows(DeltaSource(path, changes=True))
    assert first.num_rows == by_engine(path).num_rows
    assert set(first["_change_type"].to_pylist()) == {"insert"}


def test_a_table_without_a_feed_has_no_changes(tmp_path):
    path = str(tmp_path)
    write_deltalake(path, pa.table({"n": [1]}))
    with pytest.raises(SourceError, match="no change data feed in version 0"):
        rows(DeltaSource(path, changes=True))


def test_a_value_that_does_not_fit_is_an_error(tmp_path):
    path = str(tmp_path)
    write_deltalake(path, pa.table({"n": [1]}))
    (file,) = tmp_path.glob("*.parquet")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"n": ["text"]}), file)
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["size"] = file.stat().st_size
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(SchemaMismatchError, match="type string, not int64"):
        rows(DeltaSource(path))


def test_options(tmp_path):
    path = str(tmp_path)
    write_deltalake(path, orders(0, 5, 0), partition_by=["part"])
    options = {
        "source": "delta",
        "path": path,
        "version": "0",
        "columns": "n,part",
        "splitsize": "1m",
    }
    source = source_from_options(options)
    assert source.schema.names == ["n", "part"]
    assert rows(source).num_rows == 5
    for wrong in ({"path": path, "format": "x"}, {}, {"path": path, "after": "soon"}):
        with pytest.raises(OptionError):
            source_from_options({"source": "delta", **wrong})


class TestContract(SourceTestBase):
    """A table with partitions, of several row groups a file."""

    @classmethod
    def setup_class(cls):
        import tempfile

        cls.folder = tempfile.mkdtemp(prefix="headgate-")
        for first in range(0, 60, 20):
            write_deltalake(cls.folder, orders(first, 20, 0), mode="append", partition_by=["part"])

    @classmethod
    def teardown_class(cls):
        shutil.rmtree(cls.folder)

    def create_source(self):
        return DeltaSource(self.folder, batch_rows=3, columns=["n", "s", "part", "d"])

    def expected_records(self):
        return orders(0, 60, 0).select(["n", "s", "part", "d"])
