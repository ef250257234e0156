"""Columns of Parquet files that workers may read in place of Spark, by their types, forms and notes. No Spark here."""

import datetime as dt
import os

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from headgate.source import read
from headgate.source.files import FileSource
from headgate.source.files.footer import Footer
from headgate.spark.plan.read_auto.columns import Unmarked
from headgate.spark.plan.read_auto.files import checked
from headgate.spark.plan.read_auto.scan import Unsure

LOCAL = pafs.LocalFileSystem()
DAY = dt.date(1500, 1, 1)
NOON = dt.datetime(2026, 3, 29, 12, tzinfo=dt.UTC)
TIMES = pa.timestamp("us", "Asia/Tokyo")
STRUCT = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string()), ("d", pa.float64())]))])
PARTS = {"a": 1, "b": {"c": "x", "d": 2.0}}
MAP = pa.map_(pa.string(), STRUCT)
OF_SPARK = {"org.apache.spark.version": "4.1.0"}
#: Modes of calendars before Spark 4, and since.
OLD, NEW = Unmarked(int96=False, others=False), Unmarked(int96=True, others=True)
#: Type in a file, values, type in Spark -> the rows that are read, or a part of the reason to leave them to Spark.
CASES = [
    (pa.int32(), [1, None], pa.int32(), [1, None]),
    (pa.int32(), [1], pa.int64(), "is int32 in a file, and int64 in Spark"),
    (pa.uint8(), [1], pa.int8(), "is uint8"),
    (pa.large_string(), ["a"], pa.string(), ["a"]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", None, "a"], pa.string(), ["a", None, "a"]),
    (pa.list_(pa.uint8()), [[1]], pa.list_(pa.int16()), "is list<element: uint8>"),
    (pa.timestamp("ms", "UTC"), [NOON], TIMES, [NOON]),
    (pa.timestamp("ns", "UTC"), [NOON], TIMES, "is timestamp[ns"),
    (pa.timestamp("us"), [NOON.replace(tzinfo=None)], TIMES, "is timestamp[us]"),
    (STRUCT, [PARTS, None], STRUCT, [PARTS, None]),
    # Spark asks for fewer fields, in another order, and for new ones.
    (STRUCT, [PARTS, None], pa.struct([("n", pa.int8()), ("a", pa.int32())]), [{"n": None, "a": 1}, None]),
    (
        pa.list_(STRUCT),
        [[PARTS, None], [], None],
        pa.list_(pa.struct([("b", pa.struct([("d", pa.float64())]))])),
        [[{"b": {"d": 2.0}}, None], [], None],
    ),
    (MAP, [[("k", PARTS)]], pa.map_(pa.string(), pa.struct([("a", pa.int32())])), [[("k", {"a": 1})]]),
    (STRUCT, [PARTS], pa.struct([("n", pa.int8())]), "has none of the fields of a struct"),
    (STRUCT, [PARTS], pa.struct([("a", pa.int32()), ("B", pa.int8())]), "another spelling of the field 'B'"),
    (STRUCT, [PARTS], pa.struct([("a", pa.int64())]), "is struct<"),
    (STRUCT, [PARTS], pa.string(), "is struct<"),
    (pa.date32(), [DAY], pa.date32(), "before the Gregorian calendar"),
    (pa.list_(pa.date32()), [[DAY]], pa.list_(pa.date32()), "before the Gregorian calendar"),
    (pa.list_(pa.date32()), [[], None], pa.list_(pa.date32()), [[], None]),
]  # fmt: skip


def write(path, kind, values, notes=None, **options):
    table = pa.table({"first": pa.nulls(len(values), pa.int8()), "x": pa.array(values, kind)})
    pq.write_table(table.replace_schema_metadata(notes), path, **options)
    return str(path)


@pytest.mark.parametrize(("kind", "values", "wanted", "expected"), CASES)
def test_a_column_is_read_or_left_to_spark(tmp_path, kind, values, wanted, expected):
    path, schema = write(tmp_path / "a.parquet", kind, values), pa.schema([("x", wanted)])
    if isinstance(expected, str):
        with pytest.raises(Unsure) as caught:
            checked(LOCAL, [path], schema, OLD)
        assert expected in str(caught.value)
        assert path in str(caught.value)
        return
    with read(FileSource(checked(LOCAL, [path], schema, OLD), schema=schema)) as batches:
        rows = pa.Table.from_batches(list(batches), schema)
    assert rows.schema == schema
    assert rows["x"].to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "notes", "expected"),
    [
        (pa.date32(), {}, "before the Gregorian"),
        (pa.date32(), OF_SPARK, ""),
        (pa.date32(), {"org.apache.spark.version": "2.4.8"}, "before the Gregorian"),
        (pa.date32(), {**OF_SPARK, "org.apache.spark.legacyDateTime": ""}, "before the Gregorian"),
        (pa.date32(), {**OF_SPARK, "org.apache.spark.legacyINT96": ""}, ""),
        # Spark takes times without a zone as they are.
        (pa.timestamp("us"), {}, ""),
        (pa.timestamp("us", "UTC"), {}, "before the Gregorian"),
    ],
)
def test_old_days_are_read_by_the_notes_of_the_writer(tmp_path, kind, notes, expected):
    day = pa.array([DAY]).cast(kind).to_pylist()
    path, schema = write(tmp_path / "a.parquet", kind, day, notes), pa.schema([("x", kind)])
    if expected:
        with pytest.raises(Unsure, match=expected):
            checked(LOCAL, [path], schema, OLD)
    else:
        checked(LOCAL, [path], schema, OLD)


def test_old_days_of_other_writers_are_read_as_they_are_since_spark_4(tmp_path):
    path, schema = (
        write(tmp_path / "a.parquet", pa.date32(), [DAY]),
        pa.schema([("x", pa.date32())]),
    )
    checked(LOCAL, [path], schema, NEW)
    path = write(tmp_path / "b.parquet", pa.date32(), [DAY], {"org.apache.spark.version": "2.4.8"})
    with pytest.raises(Unsure, match="before the Gregorian"):
        checked(LOCAL, [path], schema, NEW)


@pytest.mark.parametrize(
    ("kind", "wanted", "is_narrower"),
    [
        (pa.int8(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.float32(), pa.float64(), True),
        (pa.int32(), pa.float64(), False),
        (pa.decimal128(5, 2), pa.decimal128(10, 4), True),
        (pa.decimal128(5, 2), pa.decimal128(6, 4), False),
        (pa.list_(pa.int16()), pa.list_(pa.int32()), True),
    ],
)
def test_narrower_types_are_read_only_for_tables_that_widen_them(
    tmp_path, kind, wanted, is_narrower
):
    path, schema = write(tmp_path / "a.parquet", kind, [None]), pa.schema([("x", wanted)])
    with pytest.raises(Unsure, match="in a file"):
        checked(LOCAL, [path], schema, NEW)
    if is_narrower:
        checked(LOCAL, [path], schema, NEW, widens=True)
    else:
        with pytest.raises(Unsure, match="in a file"):
            checked(LOCAL, [path], schema, NEW, widens=True)


def test_a_footer_is_read_once_and_again_if_the_file_changes(tmp_path, monkeypatch):
    paths = [write(tmp_path / f"{n}.parquet", pa.int32(), [n]) for n in range(200)]
    schema, opened = pa.schema([("x", pa.int32())]), []
    whole = Footer.read

    def count(filesystem, path, size):
        opened.append(path)
        return whole(filesystem, path, size)

    monkeypatch.setattr(Footer, "read", count)
    checked(LOCAL, paths, schema, OLD)
    checked(LOCAL, paths, schema, OLD)
    assert sorted(opened) == sorted(paths)
    write(tmp_path / "7.parquet", pa.int64(), [7])
    with pytest.raises(Unsure, match=r"'x' is int64 in a file.*7\.parquet"):
        checked(LOCAL, paths, schema, OLD)
    assert opened[len(paths) :] == [paths[7]]


def test_files_of_one_writer_have_one_layout(tmp_path):
    """The bytes of Parquet's schema say so, whatever the files have as rows."""
    first = Footer.read(*_file(write(tmp_path / "a.parquet", pa.int32(), [1])))
    same = Footer.read(*_file(write(tmp_path / "b.parquet", pa.int32(), [2, None] * 500)))
    other = Footer.read(*_file(write(tmp_path / "c.parquet", pa.int64(), [1])))
    assert same.begins_with(first.beginning)
    assert not other.begins_with(first.beginning)
    assert 0 < len(first.beginning) < 200


def _file(path):
    return LOCAL, path, os.path.getsize(path)  # noqa: PTH202 - a text
