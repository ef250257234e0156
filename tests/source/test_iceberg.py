"""Snapshots of Iceberg tables have the rows that PyIceberg reads; what is not known is refused by its name."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import shutil
import struct
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DecimalType, DoubleType, LongType, UUIDType
from pyroaring import BitMap
from tests.kit.contexts import table_of
from tests.kit.tables import sorted_rows

from headgate.errors import NotBuiltError, OptionError, SourceError
from headgate.source import plan_splits, read
from headgate.source.iceberg import IcebergSource
from headgate.source.registry import source_from_options
from headgate.source.testing import SourceTestBase

UTC = dt.UTC


class Warehouse:
    """A catalog in a file of SQLite, with one table."""

    def __init__(self, folder):
        properties = {
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/tables",
        }
        self.properties = {"name": "lake", "type": "sql", **properties}
        self.catalog = SqlCatalog("lake", **properties)
        self.catalog.create_namespace("db")

    def make(self, table, *partitions, **options):
        created = self.catalog.create_table("db.t", table.schema, **options)
        if partitions:
            with created.update_spec() as spec:
                for name in partitions:
                    spec.add_identity(name)
        self.table.append(table)
        return self

    @property
    def table(self):
        return self.catalog.load_table("db.t")

    def source(self, **options):
        return IcebergSource("db.t", catalog=self.properties, **options)

    def close(self):
        self.catalog.close()


@pytest.fixture
def warehouse(tmp_path):
    opened = Warehouse(tmp_path)
    yield opened
    opened.close()


def rows(source, **options):
    return table_of(source, list(read(source, **options)))


def same(actual, wanted):
    assert actual.column_names == wanted.column_names
    assert sorted_rows(actual) == sorted_rows(wanted.cast(actual.schema))


PARTS = ["a b/%é", "x", None, "y=z"]


def orders(first, count, part=0):
    numbers = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int32()),
            "s": [None if n % 5 == 3 else f"r{n}" for n in numbers],
            "x": pa.array([float("nan") if n % 7 == 6 else n / 2 for n in numbers], pa.float32()),
            "d": pa.array([dt.date(2020, 1, 1) + dt.timedelta(n) for n in numbers]),
            "at": pa.array(
                [dt.datetime(2020, 1, 1, n % 24, tzinfo=UTC) for n in numbers],
                pa.timestamp("us", "UTC"),
            ),
            "price": pa.array([decimal.Decimal(n) / 4 for n in numbers], pa.decimal128(9, 2)),
            "part": pa.array([PARTS[(n + part) % 4] for n in numbers], pa.string()),
        }
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 30)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("overwrite"), st.integers(1, 10)),
        st.tuples(st.just("columns"), st.just(0)),
        st.tuples(st.just("partition"), st.just(0)),
    ),
    min_size=1,
    max_size=5,
)


def step(table, kind, number):
    names = {field.field_id: field.name for field in table.schema().fields}
    match kind:
        case "append" | "overwrite":
            fresh = orders(number, 6, number)
            fresh = fresh.rename_columns(
                [names[place + 1] for place in range(len(fresh.column_names))]
            )
            arrow = table.schema().as_arrow()
            fresh = pa.table(
                {name: fresh[name].cast(arrow.field(name).type) for name in fresh.column_names}
            )
            getattr(table, kind)(fresh)
        case "delete":
            table.delete(f"{names[1]} >= {number} and {names[1]} < {number + 4}")
        case "columns" if "n" in names.values():
            with table.update_schema() as change:
                change.update_column("n", LongType())
                change.update_column("x", DoubleType())
                change.update_column("price", DecimalType(18, 2))
                change.rename_column("s", "text")
                change.rename_column("n", "number")
            with table.update_schema() as change:
                change.add_column("s", DateType())
                change.move_first("s")
        case "partition":
            with table.update_spec() as spec:
                if len(table.spec().fields) < 2:
                    spec.add_identity(names[4])


CONDITIONS = {
    "part = 'x' and d < date '2020-01-12'": (pc.field("part") == "x")
    & (pc.field("d") < dt.date(2020, 1, 12)),
    "part is null or price > 3": pc.field("part").is_null()
    | (pc.field("price") > decimal.Decimal(3)),
    "x > 2.5": (pc.field("x") > 2.5) | pc.is_nan(pc.field("x")),
}


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, condition=st.sampled_from([None, *CONDITIONS]), data=st.data())
def test_each_snapshot_has_the_rows_of_pyiceberg(tmp_path_factory, steps, condition, data):
    warehouse = Warehouse(tmp_path_factory.mktemp("iceberg")).make(orders(0, 20), "part")
    for kind, number in steps:
        step(warehouse.table, kind, number)
    chosen = data.draw(
        st.sampled_from([None, *(each.snapshot_id for each in warehouse.table.snapshots())])
    )
    wanted = warehouse.table.scan(snapshot_id=chosen).to_arrow()
    options = {}
    if condition is not None:
        options["filter"] = CONDITIONS[condition]
        wanted = duckdb.sql(f"select * from wanted where {condition}").to_arrow_table()
    same(rows(warehouse.source(snapshot_id=chosen, split_size=1, **options), parallelism=2), wanted)
    warehouse.close()


def test_fields_inside_of_columns_are_found_by_their_ids(warehouse):
    inner = pa.struct([("x", pa.int64()), ("y", pa.string())])
    items = pa.list_(pa.struct([("p", pa.int64()), ("q", pa.string())]))
    schema = pa.schema(
        [("id", pa.int64()), ("c", inner), ("l", items), ("m", pa.map_(pa.string(), inner))]
    )
    first = [
        {
            "id": 1,
            "c": {"x": 1, "y": "a"},
            "l": [{"p": 1, "q": "b"}, None],
            "m": [("k", {"x": 5, "y": "c"})],
        },
        {"id": 2, "c": None, "l": [], "m": []},
    ]
    warehouse.make(pa.Table.from_pylist(first, schema))
    with warehouse.table.update_schema() as change:
        change.rename_column("c.x", "xx")
        change.delete_column("c.y")
        change.add_column(("c", "y"), LongType())
        change.rename_column("l.element.p", "pp")
        change.rename_column("m.value.x", "z")
    actual = rows(warehouse.source())
    same(actual, warehouse.table.scan().to_arrow())
    assert actual.to_pylist()[0] == {
        "id": 1,
        "c": {"xx": 1, "y": None},
        "l": [{"pp": 1, "q": "b"}, None],
        "m": [("k", {"z": 5, "y": "c"})],
    }


def positions_file(folder, positions):
    """Write positional deletes, and return what a manifest says of their file."""
    path = f"{folder}/deletes-{len(positions)}.parquet"
    pq.write_table(pa.Table.from_pylist(positions), path)
    return delete_file(path, FileFormat.PARQUET)


def vectors_file(folder, positions):
    """Write a deletion vector for each data file, and return what a manifest says of their file."""
    data, blobs = b"PFA1", []
    for location in sorted({each["file_path"] for each in positions}):
        bits = BitMap(each["pos"] for each in positions if each["file_path"] == location)
        vector = struct.pack("<qi", 1, 0) + bits.serialize()
        blob = struct.pack(">i", len(vector) + 4) + b"\xd1\xd3\x39\x64" + vector + bytes(4)
        of_blob = {"type": "deletion-vector-v1", "fields": [], "snapshot-id": -1}
        of_blob |= {"sequence-number": -1, "offset": len(data), "length": len(blob)}
        names = {"referenced-data-file": location, "cardinality": str(len(bits))}
        blobs.append({**of_blob, "properties": names})
        data += blob
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    data += b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
    Path(folder, "vectors.puffin").write_bytes(data)
    return delete_file(f"{folder}/vectors.puffin", FileFormat.PUFFIN)


def delete_file(path, form):
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{path}",
        file_format=form,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )


@pytest.mark.parametrize("write", [positions_file, vectors_file])
def test_rows_that_are_deleted_by_positions_are_left_out(warehouse, tmp_path, monkeypatch, write):
    """PyIceberg writes no such deletes, so its plan is given them; it reads them by itself."""
    warehouse.make(orders(0, 60), "part")
    plan = DataScan.plan_files
    locations = [task.file.file_path for task in plan(warehouse.table.scan())]
    pairs = [(each, place) for each in locations[:3] for place in (0, 1, 7, 14)]
    deletes = [write(tmp_path, [{"file_path": each, "pos": place} for each, place in pairs])]
    if write is positions_file:
        deletes.append(write(tmp_path, [{"file_path": locations[0], "pos": 5}]))

    def planned(scan):
        return [FileScanTask(task.file, set(deletes), task.residual) for task in plan(scan)]

    monkeypatch.setattr(DataScan, "plan_files", planned)
    wanted = warehouse.table.scan().to_arrow()
    assert wanted.num_rows == 60 - 12 - (len(deletes) - 1)
    same(rows(warehouse.source(batch_rows=2), parallelism=2), wanted)
    same(rows(warehouse.source(filter=pc.field("n") < 30)), wanted.filter(pc.field("n") < 30))


def test_files_without_ids_are_read_by_the_mapping_of_names(warehouse, tmp_path):
    warehouse.make(orders(0, 3))
    table = warehouse.table
    with table.transaction() as change:
        change.set_properties(
            **{
                "schema.name-mapping.default": create_mapping_from_schema(
                    table.schema()
                ).model_dump_json()
            }
        )
    pq.write_table(orders(50, 5), tmp_path / "added.parquet")
    warehouse.table.add_files([f"file://{tmp_path}/added.parquet"])
    with warehouse.table.update_schema() as change:
        change.rename_column("s", "text")
    actual = rows(warehouse.source())
    same(actual, warehouse.table.scan().to_arrow())
    assert actual.num_rows == 8


def test_files_that_no_row_can_be_of_are_not_read(warehouse):
    warehouse.make(orders(0, 10), "part")
    for first in range(10, 50, 10):
        warehouse.table.append(orders(first, 10))

    def splits(**options):
        return len(plan_splits(warehouse.source(**options)).splits)

    assert splits() == 20
    assert splits(filter=pc.field("n") < 15) == 8
    assert splits(filter=pc.field("s") == "r7") < 20
    assert splits(filter=pc.field("at") > pa.scalar(dt.datetime(2030, 1, 1, tzinfo=UTC))) == 0
    assert splits(filter=pc.field("x") > 1e9) == 20, "limits say nothing of NaN"


def test_snapshots_times_and_branches(warehouse):
    warehouse.make(orders(0, 4))
    first = warehouse.table.current_snapshot()
    warehouse.table.manage_snapshots().create_tag(first.snapshot_id, "old").commit()
    warehouse.table.append(orders(4, 4))
    at = dt.datetime.fromtimestamp(first.timestamp_ms / 1000, UTC)
    for options, count in (
        ({}, 8),
        ({"snapshot_id": first.snapshot_id}, 4),
        ({"timestamp": at}, 4),
        ({"ref": "old"}, 4),
        ({"ref": "main"}, 8),
        ({"after": first.snapshot_id}, 4),
        ({"after": -1}, 8),
        ({"after": "latest"}, 0),
    ):
        assert rows(warehouse.source(**options)).num_rows == count, options
    static = IcebergSource(warehouse.table.metadata_location)
    assert rows(static).num_rows == 8
    for options, message in (
        ({"snapshot_id": 5}, "no snapshot 5"),
        ({"timestamp": "2001-01-01T00:00:00Z"}, "no snapshot 2001"),
        ({"ref": "nothing"}, "no branch or tag 'nothing'"),
        ({"after": 5}, "does not have snapshot 5 any more"),
    ):
        with pytest.raises(SourceError, match=message):
            rows(warehouse.source(**options))
    for options in (
        {"snapshot_id": 1, "ref": "old"},
        {"snapshot_id": 1, "after": 1},
        {"catalog": 5},
    ):
        with pytest.raises(OptionError):
            IcebergSource("db.t", **options)
    with pytest.raises(OptionError, match="nothing new appears"):
        IcebergSource(warehouse.table.metadata_location, discovery_interval=1)
    with pytest.raises(SourceError, match="cannot be loaded"):
        rows(IcebergSource("db.nothing", catalog=warehouse.properties))


def test_default_values_stand_in_for_columns_that_a_file_lacks(warehouse, tmp_path):
    """PyIceberg writes no table of format 3, so its file of metadata is changed by hand."""
    location = warehouse.make(orders(0, 5)).table.metadata_location
    metadata = json.loads(Path(location.removeprefix("file://")).read_text())
    metadata |= {"format-version": 3, "next-row-id": 0}
    fields = metadata["schemas"][0]["fields"]
    for number, (kind, value) in enumerate(
        {"long": 7, "string": "x y", "date": "2020-01-01"}.items()
    ):
        fresh = {"id": 100 + number, "name": kind, "required": False, "type": kind}
        fields.append({**fresh, "initial-default": value, "write-default": value})
    changed = tmp_path / "changed.metadata.json"
    changed.write_text(json.dumps(metadata))
    names = [*orders(0, 1).column_names, "long", "string"]
    source = IcebergSource(f"file://{changed}", columns=names)
    assert rows(source).to_pylist()[4] == {
        **orders(0, 5).to_pylist()[4],
        "long": 7,
        "string": "x y",
    }
    for number, count in ((7, 5), (8, 0)):
        assert rows(source.with_filter(pc.field("long") == number)).num_rows == count
    with pytest.raises(NotBuiltError, match="a default value of the type date"):
        IcebergSource(f"file://{changed}").schema  # noqa: B018


def test_a_table_without_a_snapshot_is_empty(warehouse):
    warehouse.catalog.create_table("db.t", orders(0, 1).schema)
    assert rows(warehouse.source()).num_rows == 0


def test_types_that_are_not_known_are_refused_unless_they_are_left_out(warehouse):
    warehouse.make(orders(0, 2))
    with warehouse.table.update_schema() as change:
        change.add_column("key", UUIDType())
    with pytest.raises(NotBuiltError, match="has the type uuid") as caught:
        warehouse.source().schema  # noqa: B018
    assert "columns=['n'" in caught.value.remedy
    assert rows(warehouse.source(columns=["n"])).num_rows == 2


def test_a_file_of_another_format_is_refused(warehouse, monkeypatch):
    warehouse.make(orders(0, 2))
    task = next(iter(warehouse.table.scan().plan_files()))
    monkeypatch.setattr(type(task.file), "file_format", type(task.file.file_format).ORC)
    with pytest.raises(SourceError, match="a data file that is ORC"):
        rows(warehouse.source())


def test_options(warehouse):
    warehouse.make(orders(0, 5))
    catalog = {f"catalog.{name}": text for name, text in warehouse.properties.items()}
    source = source_from_options(
        {"source": "iceberg", "table": "db.t", "columns": "n,part", **catalog}
    )
    assert rows(source).num_rows == 5
    assert "sqlite" not in repr(source._table)
    for wrong in ({}, {"table": "db.t", "format": "x"}, {"table": "db.t", "after": "soon"}):
        with pytest.raises(OptionError):
            source_from_options({"source": "iceberg", **wrong})


class TestContract(SourceTestBase):
    """A table with partitions."""

    @classmethod
    def setup_class(cls):
        cls.folder = tempfile.mkdtemp(prefix="headgate-")
        cls.warehouse = Warehouse(cls.folder).make(orders(0, 40), "part")
        cls.warehouse.table.append(orders(40, 20))

    @classmethod
    def teardown_class(cls):
        cls.warehouse.close()
        shutil.rmtree(cls.folder)

    def create_source(self):
        return self.warehouse.source(batch_rows=3, columns=["n", "s", "part", "d"])

    def expected_records(self):
        return orders(0, 60).select(["n", "s", "part", "d"])
