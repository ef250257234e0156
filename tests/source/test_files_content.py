"""Text files whose bytes are not as their names or the options say: encodings, compression, delimiters, headers."""

import bz2
import codecs
import csv
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.errors import OptionError, SchemaMismatchError, SourceError, UnknownColumnError
from headgate.source import CsvOptions, FileSource
from headgate.source.local import read

TEXTS = ["Müller", 'naïve; "quoted"', "", "two\nlines", "plain"]
STRINGS = pa.schema([("n", pa.string()), ("größe", pa.string())])


def table_of(source):
    return pa.Table.from_batches(read(source), source.schema)


def write(path, texts, encoding, *, newline="\n"):
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, lineterminator=newline)
        writer.writerows([["n", "größe"], *([str(n), text] for n, text in enumerate(texts))])


def by_python(path, encoding):
    with path.open(encoding=encoding, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("schema", [None, STRINGS], ids=["inferred", "declared"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "encoding",
    [
        "latin-1",
        "cp1252",
        "cp437",
        "utf8",
        "UTF-8",
        "utf-8-sig",
        "utf-16",
        "utf-16-be",
        "utf-32",
        "cp037",
    ],
)
def test_csv_in_many_encodings_is_read_as_python_reads_it(tmp_path, encoding, newline, schema):
    path = tmp_path / "a.csv"
    write(path, TEXTS * 50, encoding, newline=newline)
    source = FileSource(path, "csv", schema=schema, csv=CsvOptions(encoding=encoding))
    found = [{**row, "n": str(row["n"])} for row in table_of(source).to_pylist()]
    assert found == by_python(path, encoding)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "shift_jis", "gb18030", "euc_kr"])
def test_byte_ranges_of_encodings_that_extend_ascii(tmp_path, encoding):
    texts = {"shift_jis": "ソ表\\", "gb18030": "中𠀀", "euc_kr": "한국"}.get(encoding, "Müß")
    path = tmp_path / "a.csv"
    path.write_bytes(
        ("n,t\n" + "".join(f"{n},{texts * (n % 9)}\n" for n in range(300))).encode(encoding)
    )
    dialect = CsvOptions(encoding=encoding, newlines_in_values=False)
    source = FileSource(path, "csv", csv=dialect, split_size=100)
    rows = sorted(table_of(source).to_pylist(), key=lambda row: row["n"])
    assert rows == [{"n": n, "t": texts * (n % 9)} for n in range(300)]


def test_rows_that_are_larger_in_utf_8_than_in_the_file(tmp_path):
    text = "€" * 600_000
    (tmp_path / "a.csv").write_bytes(f"n,t\n1,{text}\n".encode("cp1252"))
    for newlines in (True, False):
        dialect = CsvOptions(encoding="cp1252", newlines_in_values=newlines)
        assert table_of(FileSource(tmp_path, "csv", csv=dialect))["t"].to_pylist() == [text]


@pytest.mark.parametrize(
    "encoding",
    [
        "utf-16",
        "utf-16-le",
        "utf-32",
        "utf-7",
        "cp037",
        "iso2022_jp",
        "iso2022_kr",
        "hz",
        "unicode_escape",
    ],
)
def test_byte_ranges_of_other_encodings_are_refused(encoding):
    with pytest.raises(OptionError, match="needs newlines_in_values=True"):
        CsvOptions(encoding=encoding, newlines_in_values=False)


@pytest.mark.parametrize("encoding", ["utf9", "", "a\0", "base64", "rot13", "undefined", None, 8])
def test_unknown_encodings_are_refused(encoding):
    with pytest.raises(OptionError, match="encoding="):
        CsvOptions(encoding=encoding)


#: Place of a byte that is not UTF-8 -> header and rows.
OTHERS = {
    "name": ("n,gr\u00f6\u00dfe", "1,x"),
    "value": ("n,t", "1,M\u00fcller"),
    "later": ("n,t", "1,plain\n" * 200_000 + "2,M\u00fcller"),
}


@pytest.mark.parametrize("place", OTHERS)
@pytest.mark.parametrize("newlines", [True, False])
def test_other_bytes_than_utf_8_are_an_error_that_names_encoding(tmp_path, place, newlines):
    (tmp_path / "a.csv").write_bytes("\n".join([*OTHERS[place], ""]).encode("latin-1"))
    with pytest.raises(SourceError, match="not utf8") as caught:
        table_of(FileSource(tmp_path, "csv", csv=CsvOptions(newlines_in_values=newlines)))
    assert 'csv=CsvOptions(encoding="latin-1")' in caught.value.remedy
    if place != "name":
        schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
        with pytest.raises(SourceError, match="not utf8") as caught:
            table_of(
                FileSource(
                    tmp_path, "csv", schema=schema, csv=CsvOptions(newlines_in_values=newlines)
                )
            )
        assert "encoding=" in caught.value.remedy
        raw = FileSource(tmp_path, "csv", schema=schema.set(1, pa.field("t", pa.binary())))
        assert table_of(raw)["t"].to_pylist()[-1] == "M\u00fcller".encode("latin-1")


def test_bytes_that_are_not_of_the_encoding_are_an_error_that_names_it(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"n,t\n" + b"1,a\n" * 500_000 + b"2,\x81\n")
    with pytest.raises(SourceError, match="not cp1252") as caught:
        table_of(FileSource(tmp_path, "csv", csv=CsvOptions(encoding="cp1252")))
    assert "encoding=" in caught.value.remedy


@pytest.mark.parametrize("text", ['{"a": "M\u00fc"}\n', '{"M\u00fc": 1}\n'])
@pytest.mark.parametrize("schema", [None, pa.schema([("a", pa.string())])])
def test_json_of_another_encoding_is_an_error(tmp_path, text, schema):
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(SourceError, match="bytes that are not UTF-8") as caught:
        table_of(FileSource(tmp_path, "json", schema=schema))
    assert "write the file as UTF-8" in caught.value.remedy


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(("kind", "text"), [("csv", "id,n\n1,a\n"), ("json", '{"id": 1}\n')])
def test_wide_encodings_are_named(tmp_path, encoding, kind, text):
    (tmp_path / f"a.{kind}").write_bytes(text.encode(encoding))
    for schema in (None, pa.schema([("id", pa.string())])):
        with pytest.raises(SourceError, match=r"it seems to be UTF-(16|32).*, not UTF-8") as caught:
            table_of(FileSource(tmp_path, kind, schema=schema))
        assert "encoding=" in caught.value.remedy or kind == "json"


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, b""])
def test_the_mark_of_utf_8_is_no_part_of_a_name(tmp_path, mark):
    (tmp_path / "a.csv").write_bytes(mark + b"id\n1\n")
    (tmp_path / "a.json").write_bytes(mark + b'{"id": 1}\n')
    for kind in ("csv", "json"):
        assert table_of(FileSource(tmp_path / f"a.{kind}", kind)).to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("name", ["a.CSV.GZ", "a.csv.Gz", "a.csv.gz"])
@pytest.mark.parametrize(("kind", "text"), [("csv", b"id\n1\n"), ("json", b'{"id": 1}\n')])
def test_suffixes_of_compression_ignore_case(tmp_path, name, kind, text):
    (tmp_path / name).write_bytes(gzip.compress(text))
    for dialect in (None, CsvOptions(newlines_in_values=False))[: 2 if kind == "csv" else 1]:
        assert table_of(FileSource(tmp_path, kind, csv=dialect)).to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("schema", [None, pa.schema([("id", pa.string())])])
@pytest.mark.parametrize(
    ("name", "compress"),
    [("gzip", gzip.compress), ("bzip2", bz2.compress), ("zstd", None), ("lz4", None)],
)
def test_a_compressed_file_without_its_suffix_is_a_clear_error(
    tmp_path, name, compress, kind, schema
):
    text = b"id\n1\n" if kind == "csv" else b'{"id": 1}\n'
    suffix = {"gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst", "lz4": ".lz4"}[name]
    data = (
        compress(text)
        if compress
        else pa.Codec(name if name != "lz4" else "lz4").compress(text, asbytes=True)
    )
    (tmp_path / f"a.{kind}").write_bytes(data)
    with pytest.raises(
        SourceError, match=f"compressed with {name}, and its name does not end in {suffix}"
    ):
        table_of(FileSource(tmp_path, kind, schema=schema))


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_another_delimiter_is_named(tmp_path, delimiter):
    path = tmp_path / "a.csv"
    path.write_text(f"id{delimiter}n\n1{delimiter}2\n")
    wanted = f"csv=CsvOptions(delimiter={json.dumps(delimiter)})"
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    with pytest.raises(SchemaMismatchError, match="has none of the columns") as caught:
        table_of(FileSource(path, "csv", schema=schema))
    assert wanted in caught.value.remedy
    with pytest.raises(UnknownColumnError) as unknown:
        table_of(FileSource(path, "csv", columns=["id"]))
    assert wanted in unknown.value.remedy
    path.write_text(f"id{delimiter}n\n1{delimiter}2,5\n")
    with pytest.raises(SourceError) as failed:
        table_of(FileSource(path, "csv"))
    assert wanted in failed.value.remedy
    path.write_text("id,n\n1;2,3,4\n")
    with pytest.raises(SourceError) as failed:
        table_of(FileSource(path, "csv"))
    assert "delimiter" not in failed.value.remedy


def test_the_file_of_the_columns_is_named(tmp_path):
    (tmp_path / "README.txt").write_text("hello\n")
    (tmp_path / "a.csv").write_text("id,b\n1,2\n")
    with pytest.raises(SchemaMismatchError) as caught:
        table_of(FileSource(tmp_path, "csv"))
    assert f"the columns are those of {tmp_path}/README.txt" in caught.value.have
    assert f"{tmp_path}/*.csv" in caught.value.remedy
    assert table_of(FileSource(f"{tmp_path}/*.csv", "csv")).to_pylist() == [{"id": 1, "b": 2}]


def test_the_file_of_the_columns_is_named_for_values_and_types_too(tmp_path):
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "b.csv").write_text("id\nx\n")
    with pytest.raises(SourceError, match=r"b\.csv cannot be read") as caught:
        table_of(FileSource(tmp_path, "csv"))
    assert f"the columns are those of {tmp_path}/a.csv" in caught.value.have
    for name, kind in (("a", pa.int64()), ("b", pa.string())):
        pq.write_table(pa.table({"id": pa.array(["1"]).cast(kind)}), tmp_path / f"{name}.parquet")
    with pytest.raises(SchemaMismatchError, match="is of type string, not int64") as mismatch:
        table_of(FileSource(f"{tmp_path}/*.parquet"))
    assert f"the columns are those of {tmp_path}/a.parquet" in mismatch.value.have


@pytest.mark.parametrize(
    ("kind", "text", "remedy"),
    [
        ("csv", "id,t\n1,1.25\n", "another type in the schema"),
        ("csv", "id,t\n1,2,3\n", "mend the row, which has more or fewer values"),
        ("json", '{"id": 1, "t": 1.5}\n', "another type in the schema"),
        ("json", '{"id": "x", "t": 1}\n', "a type of strings in the schema, for id"),
        ("json", '{"id": {"a": 1}, "t": 1}\n', "a type of objects in the schema, for id"),
    ],
)
def test_an_error_under_a_schema_does_not_ask_for_one(tmp_path, kind, text, remedy):
    (tmp_path / "a").write_text(text)
    schema = pa.schema([("id", pa.int64()), ("t", pa.int64())])
    with pytest.raises(SourceError) as caught:
        table_of(FileSource(tmp_path, kind, schema=schema))
    assert "give the schema" not in caught.value.remedy
    assert remedy in caught.value.remedy
    assert not caught.value.have


@pytest.mark.parametrize(
    ("zone", "text"), [("UTC", "2024-01-01 10:00:00"), (None, "2024-01-01 10:00:00Z")]
)
def test_times_with_and_without_a_zone(tmp_path, zone, text):
    (tmp_path / "a.csv").write_text(f"at\n{text}\n")
    with pytest.raises(SourceError) as caught:
        table_of(FileSource(tmp_path, "csv", schema=pa.schema([("at", pa.timestamp("us", zone))])))
    assert "timestamp_ntz in the schema for times without a zone" in caught.value.remedy
