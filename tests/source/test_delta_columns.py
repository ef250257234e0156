"""Columns of Delta tables that were renamed, dropped, added and widened, in logs that are written by hand."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headgate.errors import NotBuiltError, SchemaMismatchError
from headgate.source import read
from headgate.source.delta import DeltaSource


def field(name, kind, key=None, number=None):
    """Return a field of a schema in the log."""
    mapping = {} if key is None else {"delta.columnMapping.physicalName": key}
    if number is not None:
        mapping["delta.columnMapping.id"] = number
    return {"name": name, "type": kind, "nullable": True, "metadata": mapping}


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


def array(kind):
    return {"type": "array", "elementType": kind, "containsNull": True}


def mapping(key, kind):
    return {"type": "map", "keyType": key, "valueType": kind, "valueContainsNull": True}


def with_id(name, kind, number):
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def written(folder, schema, files, mode=None, features=()):
    """Write a table with a log by hand, and return its path."""
    (folder / "_delta_log").mkdir(parents=True)
    configuration = {} if mode is None else {"delta.columnMapping.mode": mode}
    names = [*features, *(["columnMapping"] if mode else [])]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    actions = [
        {"protocol": {**versions, "readerFeatures": names, "writerFeatures": names}},
        {
            "metaData": {
                "id": "by-hand",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(struct(*schema)),
                "partitionColumns": [],
                "configuration": configuration,
            }
        },
    ]
    for number, table in enumerate(files):
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        add = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size}
        actions.append({"add": {**add, "modificationTime": 1, "dataChange": True}})
    log = folder / "_delta_log" / f"{0:020}.json"
    log.write_text("\n".join(map(json.dumps, actions)))
    return str(folder)


def rows(source):
    with read(source) as batches:
        table = batches.to_reader().read_all()
    return sorted(table.to_pylist(), key=repr)


OLD = pa.table(
    {
        "c1": pa.array([1, 2, None, 4], pa.int32()),
        "c2": ["dropped"] * 4,
        "c3": pa.array(
            [{"f1": 1, "f2": "y"}, None, {"f1": None, "f2": "z"}, {"f1": 4, "f2": None}],
            pa.struct([("f1", pa.int32()), ("f2", pa.string())]),
        ),
        "c4": pa.array(
            [[{"g1": 1, "g2": 2}, None], [], None, [{"g1": None, "g2": 5}]],
            pa.list_(pa.struct([("g1", pa.int64()), ("g2", pa.int64())])),
        ),
        "c5": pa.array(
            [[("k", {"h1": 1})], [], None, [("j", None), ("i", {"h1": 3})]],
            pa.map_(pa.string(), pa.struct([("h1", pa.int32())])),
        ),
    }
)
NEW = pa.table(
    {
        "c6": pa.array([6.5]),
        "c5": pa.array([[("n", {"h1": 9})]], OLD.schema.field("c5").type),
        "c1": pa.array([6], pa.int32()),
        "c3": pa.array([{"f3": 7, "f1": 6}], pa.struct([("f3", pa.int64()), ("f1", pa.int32())])),
        "c4": pa.array([[{"g2": 8}]], pa.list_(pa.struct([("g2", pa.int64())]))),
    }
)
#: The column of the old name "c2" is another one now, and so is that which is called "c1".
SCHEMA = [
    field("c2", "integer", "c1", 1),
    field("s", struct(field("w", "long", "f3", 8), field("x", "integer", "f1", 4)), "c3", 3),
    field("l", array(struct(field("q", "long", "g2", 10))), "c4", 9),
    field("m", mapping("string", struct(field("z", "integer", "h1", 12))), "c5", 11),
    field("c1", "double", "c6", 13),
]
WANTED = [
    {"c2": 1, "s": {"w": None, "x": 1}, "l": [{"q": 2}, None], "m": [("k", {"z": 1})], "c1": None},
    {"c2": 2, "s": None, "l": [], "m": [], "c1": None},
    {"c2": None, "s": {"w": None, "x": None}, "l": None, "m": None, "c1": None},
    {
        "c2": 4,
        "s": {"w": None, "x": 4},
        "l": [{"q": 5}],
        "m": [("j", None), ("i", {"z": 3})],
        "c1": None,
    },
    {"c2": 6, "s": {"w": 7, "x": 6}, "l": [{"q": 8}], "m": [("n", {"z": 9})], "c1": 6.5},
]


def test_columns_and_fields_are_found_by_their_physical_names(tmp_path):
    path = written(tmp_path / "table", SCHEMA, [OLD, NEW], "name")
    assert rows(DeltaSource(path)) == sorted(WANTED, key=repr)
    assert rows(DeltaSource(path, batch_rows=1)) == sorted(WANTED, key=repr)
    parts = {"twice": pc.field("c2") * 2, "number": pc.field("c1"), "x": pc.field("s", "x")}
    computed = DeltaSource(path, columns=parts, filter=pc.field("c2") > 2)
    assert computed.schema.names == ["twice", "number", "x"]
    expected = [{"twice": 12, "number": 6.5, "x": 6}, {"twice": 8, "number": None, "x": 4}]
    assert rows(computed) == expected
    assert rows(computed.with_columns(["x"])) == [{"x": 4}, {"x": 6}]


def test_deletion_vectors_beside_widened_types_are_refused(tmp_path):
    features = ("deletionVectors", "typeWidening")
    path = written(tmp_path / "table", SCHEMA, [OLD], "name", features)
    with pytest.raises(NotBuiltError, match="does not read the deletion vectors") as refusal:
        DeltaSource(path).files()
    assert 'spark.read.format("delta")' in refusal.value.remedy


def test_columns_get_other_types_of_the_same_values(tmp_path):
    path = written(tmp_path / "table", SCHEMA, [OLD, NEW], "name")
    fields_of_s = pa.struct([("x", pa.int64()), ("w", pa.int64())])
    table = DeltaSource(path, columns=["s", "c2"])
    source = table.with_types(pa.schema([("s", fields_of_s)]))
    assert source.schema == pa.schema([("s", fields_of_s), ("c2", pa.int32())])
    expected = [{name: row[name] for name in ("s", "c2")} for row in WANTED]
    for row in rows(source):
        expected.remove(row)
    assert not expected
    for more in (pa.schema([("c9", pa.int8())]), pa.schema([("s", pa.struct([("y", pa.int8())]))])):
        with pytest.raises(SchemaMismatchError, match="other columns"):
            table.with_types(more)
    engine = pa.table(DeltaTable(path).scan(columns=["c2", "c1"]).read_all()).to_pylist()
    assert rows(DeltaSource(path, columns=["c2", "c1"])) == sorted(engine, key=repr)


@pytest.mark.parametrize(
    ("condition", "places"),
    [
        (pc.field("c2") > 1, [1, 3, 4]),  # the file's own column of that name has texts
        (pc.field("c1") > 1, [4]),
        (pc.field("c1").is_null(), [0, 1, 2, 3]),
        (pc.field("c2").is_null(), [2]),
    ],
)
def test_a_filter_means_the_names_of_the_table(tmp_path, condition, places):
    path = written(tmp_path / "table", SCHEMA, [OLD, NEW], "name")
    wanted = sorted((WANTED[place] for place in places), key=repr)
    assert rows(DeltaSource(path, filter=condition)) == wanted
    assert rows(DeltaSource(path, filter=condition, split_size=1)) == wanted


def test_columns_and_fields_are_found_by_their_ids(tmp_path):
    inner = pa.struct([with_id("any", pa.int32(), 4)])
    kinds = [with_id("c6", pa.int32(), 1), with_id("other", inner, 3), pa.field("c1", pa.int32())]
    file = pa.table([pa.array([1, 2]), [{"any": 5}, None], [8, 9]], schema=pa.schema(kinds))
    schema = [SCHEMA[0], SCHEMA[1], SCHEMA[4]]
    path = written(tmp_path / "table", schema, [file], "id")
    assert rows(DeltaSource(path)) == [
        {"c2": 1, "s": {"w": None, "x": 5}, "c1": None},
        {"c2": 2, "s": None, "c1": None},
    ]


def test_widened_types(tmp_path):
    old = {
        "n": pa.array([1, None], pa.int32()),
        "b": pa.array([2, -3], pa.int8()),
        "d": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
        "x": pa.array([0.5, float("inf")], pa.float32()),
        "s": pa.array([{"v": 5}, None], pa.struct([("v", pa.int16())])),
    }
    schema = [
        field("n", "long"),
        field("b", "integer"),
        field("d", "decimal(10,4)"),
        field("x", "double"),
        field("s", struct(field("v", "integer"))),
    ]
    path = written(tmp_path / "table", schema, [pa.table(old)], features=["typeWidening"])
    assert rows(DeltaSource(path)) == [
        {"n": 1, "b": 2, "d": Decimal("1.2500"), "x": 0.5, "s": {"v": 5}},
        {"n": None, "b": -3, "d": None, "x": float("inf"), "s": None},
    ]
    later = written(
        tmp_path / "later",
        [field("d", "timestamp_ntz")],
        [pa.table({"d": pa.array([1], pa.date32())})],
        features=["typeWidening", "timestampNtz"],
    )
    with pytest.raises(SchemaMismatchError, match=r"type date32\[day\], not timestamp"):
        rows(DeltaSource(later))


def test_variants_are_refused_unless_they_are_left_out(tmp_path):
    schema = [field("n", "long"), field("v", array("variant"))]
    path = written(tmp_path / "table", schema, [pa.table({"n": [1]})], features=["variantType"])
    with pytest.raises(NotBuiltError, match="has the type variant"):
        DeltaSource(path).schema  # noqa: B018
    assert rows(DeltaSource(path, columns=["n"])) == [{"n": 1}]
