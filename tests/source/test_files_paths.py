"""Paths that a file source refuses: tables, names that are not UTF-8, URIs beside a file system; secrets in texts."""

from __future__ import annotations

import os
import pickle

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from headgate._error import masked
from headgate.errors import HeadgateError, OptionError, SourceError
from headgate.sink import FileSink
from headgate.sink.delta import DeltaSink
from headgate.source import FileSource, read

TABLE = pa.table({"id": [1, 2, 3]})
MARKS = {
    "a Delta table": "_delta_log/00000000000000000000.json",
    "an Iceberg table": "metadata/v1.metadata.json",
    "a Hudi table": ".hoodie/hoodie.properties",
    "the output of a streaming query of Spark": "_spark_metadata/0",
}


@pytest.mark.parametrize("kind", MARKS)
class TestTables:
    """A folder of a table has files of deleted rows."""

    @pytest.fixture
    def table(self, tmp_path, kind):
        for path in (MARKS[kind], "data/day=1/a.parquet"):
            (tmp_path / "t" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / MARKS[kind]).write_text("{}")
        pq.write_table(TABLE, tmp_path / "t" / "data" / "day=1" / "a.parquet")
        return tmp_path / "t"

    @pytest.mark.parametrize("below", ["", "..", "data", "data/day=1", "**/*.parquet"])
    def test_its_folder_is_refused(self, table, kind, below):
        paths = str(table / below) if below != ".." else str(table.parent)
        for source in (FileSource(paths), FileSource(paths, schema=TABLE.schema)):
            with pytest.raises(SourceError, match=f"{table} is {kind}: ") as caught:
                list(read(source))
            assert "FileSource(" in caught.value.remedy or "spark.read" in caught.value.remedy

    def test_its_files_may_be_named(self, table):
        with read(FileSource([str(table / "data/day=1/a.parquet")])) as records:
            assert records.to_reader().read_all() == TABLE


def test_a_delta_table_by_the_remedy(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path, TABLE)
    deltalake.DeltaTable(tmp_path).delete("id = 2")
    with pytest.raises(SourceError, match=r"DeltaSource\(path\)"):
        _ = FileSource(tmp_path).schema
    with read(FileSource(deltalake.DeltaTable(tmp_path).file_uris())) as records:
        assert sorted(records.to_reader().read_all()["id"].to_pylist()) == [1, 3]


class TestNames:
    """Pyarrow takes names in UTF-8 only."""

    @pytest.fixture
    def folder(self, tmp_path):
        pq.write_table(TABLE, tmp_path / "a.parquet")
        return tmp_path

    def test_a_file_in_a_folder(self, folder):
        os.link(folder / "a.parquet", os.fsencode(folder) + b"/_hidden\xff.parquet")
        assert FileSource(folder).schema == TABLE.schema
        os.link(folder / "a.parquet", os.fsencode(folder) + b"/b\xff.parquet")
        with pytest.raises(SourceError, match=r"b\\xff.parquet' is not UTF-8") as caught:
            _ = FileSource(folder).schema
        str(caught.value).encode()

    def test_a_path(self, folder):
        with pytest.raises(OptionError, match="is not UTF-8") as caught:
            FileSource(os.fsdecode(os.fsencode(folder) + b"/b\xff.parquet"))
        str(caught.value).encode()


class TestUris:
    """A URI has its file system, and its secrets are not shown."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda path, system: FileSource(path, filesystem=system),
            lambda path, system: FileSink(path, filesystem=system),
            lambda path, system: DeltaSink(path, filesystem=system),
        ],
        ids=["FileSource", "FileSink", "DeltaSink"],
    )
    def test_one_beside_a_file_system(self, make):
        with pytest.raises(OptionError, match="is a URI, and filesystem= has") as caught:
            make("s3://bucket/folder", pafs.LocalFileSystem())
        assert "'bucket/folder' as the path" in caught.value.remedy

    @pytest.mark.parametrize(
        "uri",
        [
            "s3://KEY:SECRET@bucket/x?nosuch=1",
            "s3a://KEY:SECRET@bucket/x?nosuch=1",
            "s3://KEY:SEC/RET@bucket/x?nosuch=1",
            "nosuch://host/x?secret_key=SECRET&a=1",
            "nosuch://host/x?a=1&Password=SECRET",
        ],
    )
    def test_no_error_and_no_repr_has_a_secret(self, uri):
        makers = (
            lambda: FileSource(uri),
            lambda: FileSource("x", filesystem=uri),
            lambda: FileSource([uri, "/x"]),
            lambda: FileSource.from_options({"path": uri, "paths": uri}),
            lambda: FileSink(uri).storage(),
            lambda: DeltaSink(uri)._storage(),
        )
        for make in makers:
            with pytest.raises(HeadgateError) as caught:
                make()
            error = caught.value
            for text in (str(error), repr(error), repr(error.details), repr(error.__cause__)):
                assert not {"SECRET", "SEC/RET"} & set(text.replace("@", "'").split("'")), text
                assert "SECRET" not in text
                assert "SEC/RET" not in text
        for sink in (FileSink(uri), DeltaSink(uri, uri=uri)):
            assert "***" in repr(sink)
            assert "SECRET" not in repr(sink)
            assert pickle.loads(pickle.dumps(sink)).path == uri

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("no 'a:b@c'", "no 'a:b@c'"),
            ("s3://bucket/x", "s3://bucket/x"),
            ("hdfs://user@host:8020/x", "hdfs://user@host:8020/x"),
            ("'s3://K:S@b' and s3://L:T@c/d", "'s3://***@b' and s3://***@c/d"),
            ("s3://b?region=x&secret_key=S", "s3://b?region=x&secret_key=***"),
        ],
    )
    def test_masked(self, text, shown):
        assert masked(text) == shown
