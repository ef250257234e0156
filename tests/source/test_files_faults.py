"""Files that are gone, changed, damaged or of another schema: the error names split and file."""

from __future__ import annotations

import os
import struct

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from tests.kit.contexts import (
    Collected,
    FakeEnumeratorContext,
    FakeReaderContext,
    enumerated,
    is_end,
    polled,
    read_all,
    table_of,
)

from headgate.errors import OptionError, SchemaMismatchError, SourceError, UnknownColumnError
from headgate.source import FileSource, read

TABLE = pa.table({"id": range(100), "text": [f"row {n}" for n in range(100)]})


@pytest.fixture
def folder(tmp_path):
    for name in "abc":
        pq.write_table(TABLE, tmp_path / f"{name}.parquet", row_group_size=20)
    return tmp_path


def failure_of(source, splits, kind=SourceError):
    reader = source.create_reader(FakeReaderContext())
    try:
        reader.start()
        reader.add_splits(splits)
        reader.notify_no_more_splits()
        with pytest.raises(kind) as caught:
            polled(reader, Collected(), is_end)
    finally:
        reader.close()
    return caught.value


def test_a_file_deleted_after_it_was_listed(folder):
    source = FileSource(folder)
    splits = enumerated(source)
    (folder / "b.parquet").unlink()
    error = failure_of(source, splits)
    path = str(folder / "b.parquet")
    assert error.summary.startswith(f"{path} is gone")
    assert f"split {path}[row groups 0:5]" in error.summary
    assert error.details == {"path": path, "splits": [f"{path}[row groups 0:5]"]}


def test_a_file_deleted_between_the_look_and_the_opening(folder, monkeypatch):
    source = FileSource(folder / "a.parquet")
    splits = enumerated(source)
    (folder / "a.parquet").unlink()
    monkeypatch.setattr("headgate.source.files.listing.Files.check", lambda *_: None)
    error = failure_of(source, splits)
    assert "is gone" in error.summary
    assert isinstance(error.__cause__, FileNotFoundError)


@pytest.mark.parametrize("same_size", [False, True])
def test_a_file_changed_after_it_was_listed(folder, same_size):
    source = FileSource(folder)
    splits = enumerated(source)
    path = folder / "b.parquet"
    if same_size:
        os.utime(path, ns=(1, 1))
    else:
        pq.write_table(TABLE.slice(3), path)
    error = failure_of(source, splits)
    assert "has changed since it was listed" in error.summary
    assert f"{path}[row groups 0:5]" in error.summary
    assert "bytes, modified" in error.have


def test_a_corrupt_row_group(folder):
    path = folder / "b.parquet"
    start = pq.read_metadata(path).row_group(3).column(0).data_page_offset
    start = pq.read_metadata(path).row_group(3).column(0).dictionary_page_offset or start
    data = bytearray(path.read_bytes())
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    source = FileSource(folder, split_size=1)
    error = failure_of(source, enumerated(source))
    assert error.summary.startswith(f"{path} cannot be read: ")
    assert f"split {path}[row groups 3:4]" in error.summary
    assert isinstance(error.__cause__, (OSError, pa.ArrowException))


def test_the_other_row_groups_of_a_corrupt_file_can_be_read(folder):
    path = folder / "b.parquet"
    test_a_corrupt_row_group(folder)
    source = FileSource(path, split_size=1)
    splits = [split for split in enumerated(source) if split.start != 3]
    assert table_of(source, read_all(source, splits)).num_rows == 80


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_file_that_is_none_of_its_format(kind, tmp_path):
    (tmp_path / f"a.{kind}").write_bytes(b"no such thing " * 10)
    with pytest.raises(SourceError, match=f"a.{kind} cannot be read as a {kind} file"):
        _ = FileSource(tmp_path, kind).schema
    with pytest.raises(SourceError, match=f"a.{kind} cannot be cut into splits"):
        enumerated(FileSource(tmp_path, kind, schema=TABLE.schema))


def test_a_truncated_arrow_file(tmp_path):
    path = tmp_path / "a.arrow"
    feather.write_feather(TABLE, str(path), chunksize=20, compression="uncompressed")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"a\.arrow cannot be cut into splits"):
        enumerated(FileSource(path, "arrow", schema=TABLE.schema))


def test_a_damaged_batch_of_an_arrow_file(tmp_path):
    path = tmp_path / "a.arrow"
    feather.write_feather(TABLE, str(path), chunksize=20, compression="uncompressed")
    source = FileSource(path, "arrow", split_size=1)
    splits = enumerated(source)
    assert sorted(split.start for split in splits) == [0, 1, 2, 3, 4]
    before = path.stat().st_mtime_ns
    data = bytearray(path.read_bytes())
    place = data.index(b"row 55")
    while data[place : place + 4] != b"\xff\xff\xff\xff":  # The start of a message.
        place -= 1
    data[place + 4 : place + 8] = struct.pack("<i", 2**30)
    path.write_bytes(data)
    os.utime(path, ns=(before, before))
    error = failure_of(source, splits)
    assert f"split {path}[batches 2:3]" in error.summary
    assert isinstance(error.__cause__, (OSError, pa.ArrowException))


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(SourceError, match=r"there is no file or folder .*nothing"):
        list(read(FileSource(tmp_path / "nothing", schema=TABLE.schema)))
    with pytest.raises(SourceError, match=r"there is no file or folder .*nothing"):
        _ = FileSource(tmp_path / "nothing").schema


def test_an_empty_folder_has_no_schema_but_may_be_read_with_one(tmp_path):
    with pytest.raises(SourceError, match="to take the schema from"):
        _ = FileSource(tmp_path).schema
    assert list(read(FileSource(tmp_path, schema=TABLE.schema))) == []


class TestSchemas:
    def test_a_column_that_a_file_has_not_is_null(self, tmp_path):
        pq.write_table(TABLE, tmp_path / "a.parquet")
        pq.write_table(TABLE.select(["text"]), tmp_path / "b.parquet")
        pq.write_table(pa.table({"more": [1.5]}), tmp_path / "c.parquet")
        source = FileSource(tmp_path)
        table = table_of(source, read_all(source, enumerated(source)))
        assert table.num_rows == 201
        assert table["id"].null_count == 101
        assert table["text"].null_count == 1
        kept = source.with_filter(pc.field("id").is_null() & pc.field("text").is_null())
        assert sum(batch.num_rows for batch in read(kept)) == 1

    def test_but_not_where_it_may_not_be(self, folder):
        schema = pa.schema([("id", pa.int64()), pa.field("more", pa.int64(), nullable=False)])
        source = FileSource(folder / "a.parquet", schema=schema)
        error = failure_of(source, enumerated(source), SchemaMismatchError)
        path = str(folder / "a.parquet")
        assert error.summary == f"{path} has no column 'more'"
        assert error.details["column"] == "more"
        assert error.details["path"] == path
        assert error.details["splits"] == [f"{path}[row groups 0:5]"]

    def test_two_columns_of_one_name(self, tmp_path):
        twice = pa.table([[1], [2]], names=["x", "x"])
        pq.write_table(twice, tmp_path / "b.parquet")
        with pytest.raises(SchemaMismatchError, match=r"b\.parquet has more than one column 'x'"):
            _ = FileSource(tmp_path).schema
        with pytest.raises(SchemaMismatchError, match="the schema has more than one column 'x'"):
            FileSource(tmp_path, schema=twice.schema)
        pq.write_table(pa.table({"x": [3]}), tmp_path / "a.parquet")
        source = FileSource(tmp_path)
        error = failure_of(source, enumerated(source), SchemaMismatchError)
        assert error.summary == f"{tmp_path / 'b.parquet'} has more than one column 'x'"

    @pytest.mark.parametrize(
        "kind", [*TABLE.schema.types, pa.float32(), pa.float64(), pa.list_(pa.int8())], ids=str
    )
    def test_a_column_without_a_type_is_null(self, kind, tmp_path):
        pq.write_table(pa.table({"x": pa.nulls(3)}), tmp_path / "a.parquet")
        source = FileSource(tmp_path, schema=pa.schema([("x", kind)]))
        column = table_of(source, read_all(source, enumerated(source)))["x"]
        assert (column.type, column.null_count) == (kind, 3)

    @pytest.mark.parametrize("encoded", [False, True])
    def test_a_double_as_a_float(self, encoded, tmp_path):
        column = pa.array([0.5, None, float("nan"), float("-inf"), 0.1], pa.float64())
        column = column.dictionary_encode() if encoded else column
        schema = pa.schema([("x", pa.float32())])
        pq.write_table(pa.table({"x": column[:4]}), tmp_path / "a.parquet")
        values = [x for batch in read(FileSource(tmp_path, schema=schema)) for x in batch["x"]]
        assert repr([x.as_py() for x in values]) == "[0.5, None, nan, -inf]"
        pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
        source = FileSource(tmp_path, schema=schema)
        error = failure_of(source, enumerated(source), SchemaMismatchError)
        assert "does not fit float: 0.1 changes" in error.summary

    def test_nulls_where_none_may_be(self, tmp_path):
        pq.write_table(pa.table({"id": pa.array([1, None])}), tmp_path / "a.parquet")
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        source = FileSource(tmp_path, schema=schema)
        error = failure_of(source, enumerated(source), SchemaMismatchError)
        assert "column 'id' of" in error.summary
        assert "has nulls, but is declared not null" in error.summary

    def test_a_column_of_another_type(self, tmp_path):
        pq.write_table(TABLE, tmp_path / "a.parquet")
        pq.write_table(pa.table({"id": ["x"], "text": ["y"]}), tmp_path / "b.parquet")
        source = FileSource(tmp_path)
        error = failure_of(source, enumerated(source), SchemaMismatchError)
        path = tmp_path / "b.parquet"
        assert error.summary == f"column 'id' of {path} is of type string, not int64"

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            (pa.int8(), pa.int64()),
            (pa.int64(), pa.int8()),
            (pa.float32(), pa.float64()),
            (pa.string(), pa.large_string()),
            (pa.timestamp("s"), pa.timestamp("us")),
            (pa.null(), pa.int64()),
        ],
    )
    def test_types_of_one_family_are_cast(self, given, wanted, tmp_path):
        values = ["1"] if pa.types.is_string(given) else [1]
        values = pa.nulls(1) if pa.types.is_null(given) else pa.array(values).cast(given)
        feather.write_feather(pa.table({"x": values}), str(tmp_path / "a.arrow"))
        source = FileSource(tmp_path, "arrow", schema=pa.schema([("x", wanted)]))
        table = table_of(source, list(read(source)))
        assert table["x"].combine_chunks().equals(values.cast(wanted))

    def test_a_value_that_does_not_fit_is_an_error(self, tmp_path):
        pq.write_table(pa.table({"id": [1, 300]}), tmp_path / "a.parquet")
        source = FileSource(tmp_path, schema=pa.schema([("id", pa.int8())]))
        error = failure_of(source, enumerated(source), SchemaMismatchError)
        assert f"column 'id' of {tmp_path / 'a.parquet'} does not fit int8" in error.summary

    def test_statistics_are_not_used_where_types_differ(self, tmp_path):
        pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), tmp_path / "a.parquet")
        source = FileSource(
            tmp_path, schema=pa.schema([("id", pa.int64())]), filter=pc.field("id") == 2
        )
        assert [batch.to_pylist() for batch in read(source)] == [[{"id": 2}]]


class TestArguments:
    def test_an_unknown_column(self, folder):
        with pytest.raises(UnknownColumnError, match="'x'"):
            _ = FileSource(folder, columns=["x"]).schema
        with pytest.raises(UnknownColumnError, match="'x'"):
            FileSource(folder).with_columns(["x"])
        with pytest.raises(UnknownColumnError, match="'text'"):
            FileSource(folder).with_columns(["id"]).with_columns(["text"])

    def test_no_column_at_all_cannot_be_read(self, folder):
        assert FileSource(folder).with_columns([]) is None

    @pytest.mark.parametrize(
        "wrong", [pc.field("x") == 1, pc.field("id") == "a", pc.field("id") + 1, pc.field("id")]
    )
    def test_a_filter_that_does_not_fit(self, folder, wrong):
        with pytest.raises(OptionError, match="filter "):
            FileSource(folder).with_filter(wrong)
        with pytest.raises(OptionError, match="filter "):
            _ = FileSource(folder, filter=wrong).schema

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"format": "orc"}, "format='orc'"),
            ({"split_size": 0}, "split_size=0"),
            ({"split_size": "many"}, "split_size='many'"),
            ({"batch_rows": 0}, "batch_rows=0"),
            ({"discovery_interval": 0}, "discovery_interval=0"),
            ({"discovery_interval": "soon"}, "discovery_interval='soon'"),
            ({"columns": ["id", "id"]}, "columns="),
            ({"filesystem": "nothing://x"}, "nothing://x"),
        ],
    )
    def test_values_outside_their_limits(self, arguments, named):
        with pytest.raises(OptionError, match=named):
            FileSource("/data", **arguments)

    def test_no_paths(self):
        with pytest.raises(OptionError, match="at least one path"):
            FileSource([])

    def test_what_an_enumerator_cannot_do_ends_the_job_once(self, folder):
        context = FakeEnumeratorContext()
        enumerator = FileSource(folder / "nothing").create_enumerator(context)
        enumerator.start()
        with pytest.raises(SourceError, match="there is no file"):
            context.run()
