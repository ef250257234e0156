"""CSV and JSON lines: byte ranges that are cut anywhere give every row once."""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import itertools
import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pac
import pyarrow.json as paj
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.contexts import enumerated, read_all, table_of

from headgate.errors import OptionError, SchemaMismatchError, SourceError
from headgate.source import CsvOptions, FileSource, read
from headgate.source.files import lines
from headgate.source.files.listing import Files

ONE_LINE = CsvOptions(newlines_in_values=False)

CSV_FILES = [
    'id,text\n1,a\n2,"b,c"\n3,\n',
    "id,text\r\n1,a\r\n2,bb\r\n3,c",
    "id,text\n1,ä€𝄞\n\n2,b\n\n",
    "\ufeffid,text\n1,a\n2,b\n",
    "\n\nid,text\n1,a\n",
    "id,text\r1,a\r2,bb\r\r3,c\r",
    "\r\rid,text\r\n1,a\n2,bb\r3,c",
]
JSON_FILES = [
    '{"id": 1, "text": "a"}\n{"id": 2}\n\n  \n{"text": "ä€𝄞\\n", "id": 3}\n',
    '{"id": 1, "text": "a"}\r\n{"id": 2, "text": null}',
    '{"id": 1, "other": [1, {"x": 2}]}\n{"id": 2, "text": "b"}\n',
    '{"id": 1, "text": "a"}\r{"id": 2, "text": "b"}\r\r{"id": 3, "text": "c"}',
]
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def rows(source, splits):
    return [row for batch in read_all(source, splits) for row in batch.to_pylist()]


def cut_anywhere(source, path):
    """Yield all ways to cut the only file of a source in three."""
    (whole,) = enumerated(source)
    size = path.stat().st_size
    for first in range(size + 1):
        for second in {first, min(first + 1, size), (first + size) // 2, size}:
            edges = [0, first, second, size]
            yield [
                replace(whole, start=start, end=end)
                for start, end in itertools.pairwise(edges)
                if start < end
            ]


@pytest.mark.parametrize("text", CSV_FILES)
def test_csv_cut_anywhere(text, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    wanted = pac.read_csv(path).to_pylist()
    source = FileSource(path, "csv", csv=ONE_LINE)
    opener = source.split_opener()
    for splits in cut_anywhere(source, path):
        found = [row for split in splits for batch, _ in opener(split) for row in batch.to_pylist()]
        assert found == wanted, splits


@pytest.mark.parametrize("text", JSON_FILES)
def test_json_cut_anywhere(text, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(text.encode())
    wanted = [
        {"id": row.get("id"), "text": row.get("text")}
        for row in (json.loads(line) for line in text.splitlines() if line.strip())
    ]
    source = FileSource(path, "json", schema=SCHEMA)
    opener = source.split_opener()
    for splits in cut_anywhere(source, path):
        found = [row for split in splits for batch, _ in opener(split) for row in batch.to_pylist()]
        assert found == wanted, splits


@given(
    st.lists(st.text(alphabet="ab\u00e4\u20ac\r ", max_size=6), max_size=12),
    st.integers(1, 12),
    st.booleans(),
    st.integers(1, 9),
    st.integers(1, 20),
)
@settings(deadline=None, max_examples=200)
def test_every_line_is_in_one_range(texts, parts, ends, search, chunk):
    data = "\n".join(texts).encode() + (b"\n" if ends else b"")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_SEARCH", search)
        Path(folder, "a").write_bytes(data)
        files = Files(folder)
        (file,) = files.listed(missing_ok=False)
        edges = [len(data) * part // parts for part in range(parts + 1)]
        found = [
            list(lines.line_chunks(files, lines.split_of(file, "json", start, end, 0), chunk))
            for start, end in itertools.pairwise(edges)
        ]
    assert b"".join(part for parts in found for part in parts) == data
    cuts = itertools.accumulate(len(part) for parts in found for part in parts)
    assert set(cuts) <= {end.end() for end in re.finditer(rb"\r\n|\n|\r|\Z", data)}


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_large_files_are_cut_and_equal(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("headgate.source.files.format._SMALLEST_SPLIT", 1000)
    table = pa.table({"id": range(5000), "text": [f"row {n}" * (n % 7) for n in range(5000)]})
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        pac.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    csv = ONE_LINE if kind == "csv" else None
    source = FileSource(path, kind, split_size=4000, batch_rows=100, csv=csv)
    splits = enumerated(source, readers=4)
    assert len(splits) > 20
    assert {split.size <= 4000 for split in splits} == {True}
    with read(source, parallelism=3) as records:
        batches = list(records)
    assert max(batch.num_rows for batch in batches) <= 100
    assert table_of(source, batches).sort_by("id").equals(table)


def test_values_with_newlines_keep_a_file_in_one_split(tmp_path):
    path = tmp_path / "a.csv"
    table = pa.table({"id": [1, 2, 3], "text": ["a\nb", 'q"q', "c\r\nd"]})
    pac.write_csv(table, path)
    source = FileSource(path, "csv", split_size=1)
    assert len(enumerated(source)) == 1
    assert table_of(source, list(read(source))).equals(table)


def test_columns_of_files_in_another_order_and_missing_ones(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a\n")
    (tmp_path / "b.csv").write_text("text,id\nb,2\n")
    (tmp_path / "c.csv").write_text("id\n3\n")
    (tmp_path / "d.csv").write_text("text\nd\n")
    for csv in (CsvOptions(), ONE_LINE):
        source = FileSource(tmp_path, "csv", csv=csv, filter=pc.field("id").is_valid())
        found = sorted(rows(source, enumerated(source)), key=lambda row: row["id"])
        assert [(row["id"], row["text"]) for row in found] == [(1, "a"), (2, "b"), (3, None)]
        only = source.with_columns(["text"])
        assert sorted(str(row["text"]) for row in rows(only, enumerated(only))) == [
            "None",
            "a",
            "b",
        ]


def test_how_csv_is_written(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1;'x;y';-\n2;'it''s';b\n")
    options = CsvOptions(
        delimiter=";",
        quote_char="'",
        header=False,
        column_names=["id", "text", "more"],
        null_values=["-"],
        strings_can_be_null=True,
    )
    wanted = [
        {"id": 1, "text": "x;y", "more": None},
        {"id": 2, "text": "it's", "more": "b"},
    ]
    for csv in (options, replace(options, newlines_in_values=False)):
        source = FileSource(path, "csv", csv=csv)
        assert rows(source, enumerated(source)) == wanted
    unnamed = FileSource(path, "csv", csv=replace(options, column_names=None))
    assert unnamed.schema.names == ["f0", "f1", "f2"]
    renamed = FileSource(path, "csv", csv=replace(options, header=True))
    assert rows(renamed, enumerated(renamed)) == wanted[1:]


def test_compressed_files_are_one_split(tmp_path):
    lines_of = "".join(json.dumps({"id": n, "text": "x" * 50}) + "\n" for n in range(3000))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(lines_of.encode()))
    source = FileSource(tmp_path, "json", split_size=100)
    assert len(enumerated(source)) == 1
    assert [row["id"] for row in rows(source, enumerated(source))] == list(range(3000))
    text = "id,text\n" + "".join(f"{n},x\n" for n in range(3000))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    for csv in (CsvOptions(), ONE_LINE):
        source = FileSource(tmp_path / "a.csv.gz", "csv", csv=csv, split_size=100)
        assert [row["id"] for row in rows(source, enumerated(source))] == list(range(3000))


def test_types_of_a_schema(tmp_path):
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us")),
            ("money", pa.decimal128(9, 2)),
            ("small", pa.int16()),
            ("flag", pa.bool_()),
        ]
    )
    row = {
        "day": dt.date(2020, 2, 29),
        "at": dt.datetime(2020, 2, 29, 12, 30),  # noqa: DTZ001 - no time zone
        "money": decimal.Decimal("12.50"),
        "small": -7,
        "flag": True,
    }
    (tmp_path / "a.csv").write_text(
        "day,at,money,small,flag\n2020-02-29,2020-02-29 12:30:00,12.50,-7,true\n"
    )
    (tmp_path / "a.json").write_text(
        '{"day": "2020-02-29", "at": "2020-02-29 12:30:00", "money": "12.50", "small": -7, "flag": true}\n'
        "{}\n"
    )
    csv = FileSource(tmp_path / "a.csv", "csv", schema=schema)
    assert rows(csv, enumerated(csv)) == [row]
    texts = FileSource(tmp_path / "a.json", "json", schema=schema)
    assert rows(texts, enumerated(texts)) == [row, dict.fromkeys(row)]


def test_a_column_of_nulls_is_one_of_texts(tmp_path):
    (tmp_path / "a.json").write_text('{"a": null, "b": 1}\n')
    assert FileSource(tmp_path, "json").schema == pa.schema([("a", pa.string()), ("b", pa.int64())])
    (tmp_path / "a.csv").write_text("a,b\n,1\n")
    assert FileSource(tmp_path / "a.csv", "csv").schema.field("a").type == pa.string()


def test_inferred_types_are_those_of_pyarrow(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": {"x": [1]}, "t": "text", "f": 1.5}\n')
    assert FileSource(path, "json").schema == paj.read_json(path).schema


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("json", '{"a": 1}\n', '{"a": \n'),
        ("csv", "a,b\n1,2\n", "1,2,3\n"),
        ("csv", "a\n1\n", "x\n"),
    ],
)
def test_a_damaged_line_names_split_and_file(kind, good, bad, tmp_path):
    path = tmp_path / f"a.{kind}"
    path.write_text(good)
    csv = ONE_LINE if kind == "csv" else None
    source = FileSource(path, kind, schema=FileSource(path, kind, csv=csv).schema, csv=csv)
    path.write_text(good + bad)
    with pytest.raises(SourceError, match=r"a\.\w+ cannot be read: .*; split .*bytes 0:") as caught:
        list(read(source))
    assert isinstance(caught.value.__cause__, pa.ArrowInvalid)
    assert caught.value.details["path"] == str(path)


@pytest.mark.parametrize("name", ["delimiter", "quote_char", "escape_char"])
def test_characters_are_one(name):
    with pytest.raises(OptionError, match=name):
        CsvOptions(**{name: ";;"})


def test_a_type_that_was_guessed_wrong_says_to_give_the_schema(tmp_path):
    (tmp_path / "a.csv").write_text("n\n" + "1\n" * 600_000 + "x\n")
    with (
        read(FileSource(tmp_path, "csv")) as records,
        pytest.raises(SourceError, match=r"n is int64 by the first MiB.* 'x'") as caught,
    ):
        list(records)
    assert "give the schema" in caught.value.remedy


@pytest.mark.parametrize(
    ("header", "csv", "name"),
    [
        (True, CsvOptions(), "a.csv"),
        (False, CsvOptions(), "a.csv"),
        (False, ONE_LINE, "a.csv"),
        (False, CsvOptions(), "a.csv.gz"),
    ],
)
def test_rows_and_headers_that_are_larger_than_a_block(header, csv, name, tmp_path):
    wide = "x" * (9 * 1024 * 1024)
    title = "x" * 1_200_000 if header else "text"
    text = (f"id,{title}\n" + f"1,{wide}\n2,b\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(text, 1) if name.endswith("gz") else text)
    source = FileSource(tmp_path, "csv", csv=csv)
    assert source.schema.names == ["id", title]
    found = [list(row.values()) for row in rows(source, enumerated(source))]
    assert sorted((n, len(value)) for n, value in found) == [(1, len(wide)), (2, 1)]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_objects_that_are_larger_than_a_block(name, tmp_path):
    wide = "x" * (9 * 1024 * 1024)
    text = "".join(json.dumps({"id": n, "text": wide}) + "\n" for n in range(3)).encode()
    (tmp_path / name).write_bytes(gzip.compress(text, 1) if name.endswith("gz") else text)
    source = FileSource(tmp_path, "json")
    found = rows(source, enumerated(source))
    assert sorted((row["id"], len(row["text"])) for row in found) == [
        (n, len(wide)) for n in range(3)
    ]


def test_a_row_without_an_end_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("headgate.source.files.csv._LARGEST_ROW", 4 * 1024 * 1024)
    (tmp_path / "a.csv").write_text("id,text\n1,a\n" + '2,"' + "b\n" * 5_000_000)
    with pytest.raises(SourceError, match="a quote is never closed"):
        list(read(FileSource(tmp_path, "csv")))


NUMBERS = {
    "beyond 64 bits": (["12345678901234567890", "1"], pa.decimal128(38, 0)),
    "beyond a decimal": (["1" * 39, "1"], pa.string()),
    "cents": (["12345678901234567890.12", "1.5"], pa.decimal128(38, 2)),
    "an id among fractions": (["9007199254740993", "1.5"], pa.decimal128(38, 1)),
    "leading zeros": (["007", "08540"], pa.string()),
    "leading zeros of fractions": (["007.5", "1.5"], pa.string()),
    "hexadecimal": (["0xFFFFFFFFFFFFFFFF", "0x10"], pa.string()),
    "too large for a double": (["1e400", "1"], pa.string()),
    "too small for a double": (["1e-400", "1.5"], pa.string()),
    "doubles": (["0.1", "1e5", "-0.30000000000000004", "1.7976931348623157e308"], pa.float64()),
    "integers": (["0", "-9223372036854775808", "9223372036854775807"], pa.int64()),
    "zeros": (["0.0", "0", "-0.5"], pa.float64()),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("csv", [CsvOptions(), ONE_LINE], ids=["quoted", "one line"])
def test_numbers_of_csv_keep_their_digits(name, csv, tmp_path):
    texts, kind = NUMBERS[name]
    (tmp_path / "a.csv").write_text("n,t\n" + "".join(f"{text},x\n" for text in [*texts, ""]))
    source = FileSource(tmp_path, "csv", csv=csv)
    assert source.schema.field("n").type == kind
    values = [row["n"] for row in rows(source, enumerated(source))]
    if pa.types.is_string(kind):
        assert values == [*texts, ""]
    elif pa.types.is_floating(kind):
        assert values == [*map(float, texts), None]
    else:
        assert values == [*map(decimal.Decimal, texts), None]


@given(
    st.lists(
        st.one_of(
            st.integers(-(10**45), 10**45).map(str),
            st.floats(allow_nan=False, allow_infinity=False).map(repr),
            st.decimals(-(10**20), 10**20, places=3).map(str),
            st.sampled_from(["007", "1e400", "-0", "0x1f", "1.50"]),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(deadline=None, max_examples=150)
def test_no_inferred_type_changes_a_number(texts):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.csv").write_text("n,t\n" + "".join(f"{text},x\n" for text in texts))
        source = FileSource(folder, "csv")
        values = [row["n"] for row in rows(source, enumerated(source))]
    for text, value in zip(texts, values, strict=True):
        if isinstance(value, str):
            assert value == text
        elif isinstance(value, float):
            is_shortest = decimal.Decimal(repr(value)) == decimal.Decimal(text)
            assert is_shortest or len(decimal.Decimal(text).as_tuple().digits) <= 17
        else:
            assert decimal.Decimal(value) == decimal.Decimal(text)


def test_numbers_of_json_keep_their_digits(tmp_path):
    large = 12345678901234567890
    text = f'{{"a": {large}, "b": {{"c": [1, {large}.25]}}, "d": 0.1, "e": "007"}}\n' + "{}\n"
    (tmp_path / "a.json").write_text(text)
    source = FileSource(tmp_path, "json")
    first, _ = rows(source, enumerated(source))
    assert first == {
        "a": decimal.Decimal(large),
        "b": {"c": [decimal.Decimal(1), decimal.Decimal(f"{large}.25")]},
        "d": 0.1,
        "e": "007",
    }
    (tmp_path / "a.json").write_text(f'{{"a": {"1" * 39}}}\n')
    with pytest.raises(SourceError, match=r'a has numbers that no double .* schema="a double"'):
        _ = FileSource(tmp_path, "json").schema


@pytest.mark.parametrize("rows", ["2,b\n", "2,b\n3,c\n"])
@pytest.mark.parametrize("columns", [None, ["name"]])
def test_a_csv_file_without_the_header_is_refused(rows, columns, tmp_path):
    (tmp_path / "a.csv").write_text("id,name\n1,a\n")
    (tmp_path / "b.csv").write_text(rows)
    source = FileSource(tmp_path, format="csv", columns=columns)
    with pytest.raises(SchemaMismatchError, match=r"b\.csv has none of the columns") as caught:
        read_all(source, enumerated(source))
    assert "2, b (the file's header)" in str(caught.value)


def test_a_csv_file_may_lack_all_chosen_columns(tmp_path):
    (tmp_path / "a.csv").write_text("id,name\n1,a\n")
    (tmp_path / "b.csv").write_text("id\n2\n")
    source = FileSource(tmp_path, format="csv", columns=["name"])
    table = table_of(source, read_all(source, enumerated(source)))
    assert table["name"].to_pylist() == ["a", None]


@pytest.mark.parametrize("schema", [None, pa.schema([("id", pa.int64())])])
def test_an_array_of_json_is_refused(schema, tmp_path):
    (tmp_path / "a.json").write_text('[{"id": 1},\n {"id": 2}]\n')
    source = FileSource(tmp_path, format="json", schema=schema)
    with pytest.raises(SourceError, match="an array, not one object in each line"):
        read_all(source, enumerated(source))
