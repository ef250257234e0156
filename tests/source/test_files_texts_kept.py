"""Text files whose rows and times would change on the way in: read as they are, or an error."""

import csv
import datetime as dt
import json
import random

import pyarrow as pa
import pytest

from headgate.errors import SchemaMismatchError, SourceError
from headgate.source import FileSource
from headgate.source.files import CsvOptions
from headgate.source.local import read

ONE_LINE = CsvOptions(newlines_in_values=False)
AT = dt.datetime.fromisoformat("2026-07-01T10:00:00")
ID_NAME = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows_of(path, kind, **options):
    source = FileSource(path, kind, **options)
    return pa.Table.from_batches(read(source), source.schema).to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        'id,name\n1,x\n2,"b\n3,c\n',
        'id,name\n1,x\n2,"b, c and m',
        'id,name\n1,"x"\n2,"b""\n3,c\n',
    ],
)
def test_a_quote_that_is_never_closed_is_an_error(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(SourceError, match="is never closed"):
        rows_of(tmp_path, "csv")


@pytest.mark.parametrize("options", [CsvOptions(), ONE_LINE])
def test_quotes_within_values_are_none(tmp_path, options):
    (tmp_path / "a.csv").write_text('id,name\n1,5" pipe\n2,"a ""b"""\n3,"5"" x 3"""\n')
    if options is ONE_LINE:
        with pytest.raises(SourceError, match=r"line '1,5\" pipe' has a newline or a single quote"):
            rows_of(tmp_path, "csv", csv=options)
        return
    names = [row["name"] for row in rows_of(tmp_path, "csv", csv=options)]
    assert names == ['5" pipe', 'a "b"', '5" x 3"']


def test_random_rows_are_those_of_python(tmp_path):
    choose = random.Random(3)
    parts = ["a", '"', ",", "\n", "é", " ", "x" * 200]
    rows = [[str(n), "".join(choose.choices(parts, k=choose.randrange(9)))] for n in range(3000)]
    with (tmp_path / "a.csv").open("w", encoding="utf8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["id", "name"], *rows])
    found = rows_of(tmp_path, "csv", schema=ID_NAME)
    assert [[str(row["id"]), row["name"]] for row in found] == rows


@pytest.mark.parametrize("split_size", ["64m", "10k"])
def test_values_with_newlines_need_the_option(tmp_path, split_size):
    lines = [f'{n},"a\nb"' if n % 100 == 7 else f"{n},x" for n in range(20_000)]
    (tmp_path / "a.csv").write_text("id,name\n" + "\n".join(lines) + "\n")
    with pytest.raises(SourceError, match="has a newline or a single quote"):
        rows_of(tmp_path, "csv", csv=ONE_LINE, schema=ID_NAME, split_size=split_size)
    assert len(rows_of(tmp_path, "csv", schema=ID_NAME, split_size=split_size)) == 20_000


@pytest.mark.parametrize(
    ("header", "wrong"),
    [
        ("id, name", "' name'.*'name'"),
        ("id,Name", "'Name'.*'name'"),
        ("id,name,name", "'name' 2 times"),
    ],
)
def test_a_header_that_is_almost_right_is_an_error(tmp_path, header, wrong):
    (tmp_path / "a.csv").write_text(f"{header}\n1,x{',y' * (header.count(',') - 1)}\n")
    with pytest.raises(SourceError, match=wrong):
        rows_of(tmp_path, "csv", schema=ID_NAME)


def test_objects_without_any_of_the_fields_are_an_error(tmp_path):
    (tmp_path / "a.json").write_text('{"ID": 1, "NAME": "x"}\n' * 10)
    with pytest.raises(SchemaMismatchError, match="none of the columns") as error:
        rows_of(tmp_path, "json", schema=ID_NAME)
    assert "ID, NAME" in error.value.have
    (tmp_path / "a.json").write_text('{"id": null, "other": 1}\n' * 10)
    assert rows_of(tmp_path, "json", schema=ID_NAME) == [{"id": None, "name": None}] * 10


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("kind", "text", "right"),
    [
        (pa.timestamp("us"), "2026-07-01T10:00:00", AT),
        (pa.timestamp("us"), "2026-07-01 10:00:00.25", AT + dt.timedelta(milliseconds=250)),
        (pa.timestamp("us"), "2026-07-01T10:00:00+02:00", None),
        (pa.timestamp("us"), "2026-07-01T10:00:00Z", None),
        (pa.timestamp("us", "Europe/Berlin"), "2026-07-01T10:00:00", None),
        (
            pa.timestamp("us", "Europe/Berlin"),
            "2026-07-01T10:00:00+05:30",
            dt.datetime(2026, 7, 1, 4, 30, tzinfo=dt.UTC),
        ),
        (pa.timestamp("s"), "2026-07-01T10:00:00.5", None),
    ],
)
def test_times_of_json_keep_their_meaning_or_are_errors(tmp_path, kind, text, right, nested):
    value = {"at": [text]} if nested else text
    (tmp_path / "a.json").write_text(json.dumps({"t": value}) + "\n")
    schema = pa.schema([("t", pa.struct([("at", pa.list_(kind))]) if nested else kind)])
    if right is None:
        with pytest.raises(SourceError):
            rows_of(tmp_path, "json", schema=schema)
        return
    ((row,),) = (rows_of(tmp_path, "json", schema=schema),)
    assert (row["t"]["at"][0] if nested else row["t"]) == right


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2026-07-01", "2026-07-02"], pa.date32()),
        (["2026-07-01T10:00:00", "2026-07-02"], pa.timestamp("us")),
        (["2026-07-01T10:00:00+02:00", "2026-07-01T10:00:00Z"], pa.timestamp("us", "UTC")),
        (["2026-07-01T10:00:00+02:00", "2026-07-01T10:00:00"], pa.string()),
    ],
)
def test_inferred_times_of_json_keep_their_offsets(tmp_path, texts, kind):
    (tmp_path / "a.json").write_text("".join(json.dumps({"t": text}) + "\n" for text in texts))
    source = FileSource(tmp_path, "json")
    assert source.schema.field("t").type == kind
    table = pa.Table.from_batches(read(source), source.schema)
    assert table["t"].to_pylist() == pa.array(texts).cast(kind).to_pylist()
