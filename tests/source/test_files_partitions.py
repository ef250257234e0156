"""Columns in the names of folders: rows equal to pyarrow's datasets, and skipped files."""

from __future__ import annotations

import datetime as dt
import json
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pac
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from tests.kit.contexts import enumerated, read_all, table_of

from headgate.errors import OptionError, SchemaMismatchError, SourceError
from headgate.source import FileSource
from headgate.source.files.partitions import folder_values, with_folder_columns

WRITERS = {
    "parquet": lambda table, path: pq.write_table(table, path, row_group_size=2),
    "arrow": lambda table, path: feather.write_feather(table, path, compression="uncompressed"),
    "csv": pac.write_csv,
    "json": lambda table, path: path.write_text(
        "".join(json.dumps(row) + "\n" for row in table.to_pylist())
    ),
}


def written(folder, kind):
    first = 0
    for day in ("1", "2", "3"):
        for place in ("a b", "ü/x", "__HIVE_DEFAULT_PARTITION__"):
            name = place.replace("/", "%2F").replace(" ", "%20")
            path = folder / f"day={day}" / f"place={name}" / f"f.{kind}"
            path.parent.mkdir(parents=True)
            WRITERS[kind](pa.table({"id": range(first, first + 4)}), path)
            first += 4
    return folder


def rows(source):
    splits = enumerated(source)
    table = table_of(source, read_all(source, splits))
    return sorted(map(repr, table.to_pylist())), len({split.path for split in splits})


@pytest.mark.parametrize("kind", sorted(WRITERS))
@pytest.mark.parametrize(
    ("row_filter", "files", "with_statistics"),
    [
        (None, 9, 9),
        (pc.field("day") == 2, 3, 3),
        ((pc.field("day") > 1) & (pc.field("place") == "ü/x"), 2, 2),
        (pc.field("place").is_null(), 3, 3),
        ((pc.field("day") == 1) | (pc.field("id") > 30), 9, 5),
        ((pc.field("day") == 3) & (pc.field("id") > 32), 3, 1),
        (~(pc.field("day") == 1) & (pc.field("place") != "a b"), 2, 2),
    ],
)
def test_rows_are_those_of_a_dataset(kind, row_filter, files, with_statistics, tmp_path):
    folder = written(tmp_path, kind)
    source = FileSource(folder, kind, partitioning="hive", filter=row_filter)
    assert source.schema == pa.schema(
        [("id", pa.int64()), ("day", pa.int64()), ("place", pa.string())]
    )
    hive = ds.partitioning(pa.schema([("day", pa.int64()), ("place", pa.string())]), flavor="hive")
    table = ds.dataset(folder, format=kind, partitioning=hive).to_table()
    wanted = table if row_filter is None else table.filter(row_filter)
    found, read = rows(source)
    assert found == sorted(map(repr, wanted.to_pylist()))
    assert read == (with_statistics if kind == "parquet" else files)


@pytest.mark.parametrize("kind", sorted(WRITERS))
def test_only_columns_of_folders(kind, tmp_path):
    source = FileSource(written(tmp_path, kind), kind, partitioning="hive", columns=["day"])
    assert rows(source)[0] == sorted(repr({"day": day}) for day in (1, 2, 3) for _ in range(12))


def test_statistics_count_beside_a_filter_on_folders(tmp_path):
    row_filter = (pc.field("day") == 1) & (pc.field("id") >= 2) & (pc.field("place") == "a b")
    source = FileSource(
        written(tmp_path, "parquet"), partitioning="hive", filter=row_filter, split_size=1
    )
    assert [(split.start, split.end) for split in enumerated(source)] == [(1, 2)]


def test_a_folder_wins_over_a_column_of_the_file(tmp_path):
    (tmp_path / "day=7").mkdir()
    pq.write_table(pa.table({"day": [1, 2], "id": [3, 4]}), tmp_path / "day=7" / "a.parquet")
    source = FileSource(tmp_path, partitioning="hive", filter=pc.field("day") == 7)
    assert source.schema.names == ["id", "day"]
    assert rows(source)[0] == [repr({"id": 3, "day": 7}), repr({"id": 4, "day": 7})]


def test_without_partitioning_they_are_only_names(tmp_path):
    assert FileSource(written(tmp_path, "parquet")).schema.names == ["id"]


def test_types_of_a_schema(tmp_path):
    schema = pa.schema([("day", pa.date32()), ("id", pa.int64())])
    for day in ("2026-01-31", "2026-02-01"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"day={day}" / "a.parquet")
    source = FileSource(tmp_path, schema=schema, partitioning="hive")
    less = source.with_filter(pc.field("day") > pa.scalar("2026-01-31").cast(pa.date32()))
    assert rows(source)[1] == 2
    assert rows(less) == (
        [repr({"day": pa.scalar("2026-02-01").cast(pa.date32()).as_py(), "id": 1})],
        1,
    )
    wrong = FileSource(tmp_path, schema=pa.schema([("day", pa.int64())]), partitioning="hive")
    with pytest.raises(SchemaMismatchError, match=r"day=2026-01-31 in the path .* is no int64"):
        enumerated(wrong)


def test_values_of_folders():
    assert folder_values("/x=1/data/a=2/b/c=%3D/f", ["/x=1/data"]) == {"a": "2", "c": "="}
    assert folder_values("/x=1/data/a=2/f", ["/x=1/data/a=2", "/x=1/data/a=2/f"]) == {}
    assert folder_values("/data/=1/a=/f", ["/data"]) == {"a": ""}


def test_types_that_are_inferred():
    file = pa.schema([("x", pa.int32())])
    values = [{"n": "-5", "z": "07", "e": None}, {"n": "12", "z": "8", "x": "b"}]
    assert with_folder_columns(file, values) == pa.schema(
        [("n", pa.int64()), ("z", pa.string()), ("e", pa.string()), ("x", pa.string())]
    )


@pytest.mark.parametrize("text", ["07", "-0", "+1", " 1", "1.0", "", "x", "٣", str(2**63)])
def test_texts_that_are_no_integers(text):
    values = [{"n": "1"}, {"n": text}]
    assert with_folder_columns(pa.schema([]), values) == pa.schema([("n", pa.string())])


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, -(2**63)])
def test_texts_that_are_integers(number):
    values = [{"n": str(number)}, {"n": None}]
    assert with_folder_columns(pa.schema([]), values) == pa.schema([("n", pa.int64())])


def test_another_way_of_partitioning():
    with pytest.raises(OptionError, match="partitioning='directory'"):
        FileSource("/data", partitioning="directory")


def two_files(tmp_path):
    """Return two files, values of columns for each, and the schema of all columns."""
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    for first, path in enumerate(paths):
        pq.write_table(pa.table({"id": [2 * first, 2 * first + 1], "k": ["own", "own"]}), path)
    values = {paths[0]: {"k": "x", "day": dt.date(2026, 1, 31)}, paths[1]: {"k": None, "day": None}}
    return values, pa.schema([("id", pa.int64()), ("k", pa.string()), ("day", pa.date32())])


def test_values_that_are_given_for_each_file(tmp_path):
    values, schema = two_files(tmp_path)
    wanted = [
        {"id": 2 * place + n, **columns}
        for place, columns in enumerate(values.values())
        for n in (0, 1)
    ]
    source = FileSource(list(values), schema=schema, partitioning=values)
    travelled = pickle.loads(pickle.dumps(source))
    assert rows(travelled) == (sorted(map(repr, wanted)), 2)
    less = FileSource(
        list(values), schema=schema, partitioning=values, filter=pc.field("k").is_null()
    )
    assert rows(less) == (sorted(map(repr, wanted[2:])), 1)


def test_values_that_are_wrong_or_missing(tmp_path):
    values, schema = two_files(tmp_path)
    first, *_ = values
    with pytest.raises(OptionError, match="has columns without a type"):
        FileSource(list(values), schema=schema.remove(2), partitioning=values)
    with pytest.raises(SchemaMismatchError, match=f"the value 'x' of day for {first} is no date32"):
        FileSource(list(values), schema=schema, partitioning={first: {"day": "x"}})
    source = FileSource(list(values), schema=schema, partitioning={first: values[first]})
    with pytest.raises(SourceError, match=r"partitioning has no values for .*b.parquet"):
        enumerated(source)


def test_it_is_an_option(tmp_path):
    options = {"path": str(written(tmp_path, "parquet")), "partitioning": "hive"}
    assert FileSource.from_options(options).schema.names == ["id", "day", "place"]
