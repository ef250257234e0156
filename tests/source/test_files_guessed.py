"""Types that were inferred from the first MiB of the first file: later values that would change are errors."""

import json
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.errors import SourceError
from headgate.source import FileSource
from headgate.source.files import CsvOptions
from headgate.source.local import read

#: Rows that fill more than the first MiB.
MANY = 120_000


def rows_of(source):
    return pa.Table.from_batches(read(source), source.schema)


def last_of(rows):
    """Return the number of the last row of a file: ranges of bytes may be read in any order."""
    (last,) = rows.filter(pc.field("s") == "x")["n"].to_pylist()
    return last


def csv_file(folder, last, *, first="12345", name="a.csv", header="n,s"):
    path = folder / name
    rows = [header, *[f"{first},some text"] * MANY, f"{last},x"]
    path.write_text("\n".join(rows) + "\n")
    return path


def json_file(folder, last, first=12345):
    path = folder / "a.json"
    row = json.dumps({"n": first, "s": "some text"})
    path.write_text("\n".join([row] * MANY + [last]) + "\n")
    return path


@pytest.mark.parametrize("newlines", [True, False])
@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("12345", "007"),
        ("12345", "0x1F"),
        ("1.5", "007.5"),
        ("1.5", "9007199254740993"),
        ("1.5", "0.12345678901234567891"),
        ("1.5", "1e999"),
        ("1.5", "1e-999"),
        ("12345", str(2**63)),
        ("12345", "1.5"),
    ],
)
def test_numbers_of_csv_that_would_change_later_are_errors(tmp_path, first, last, newlines):
    csv_file(tmp_path, last, first=first)
    source = FileSource(tmp_path, "csv", csv=CsvOptions(newlines_in_values=newlines))
    with pytest.raises(SourceError) as failed:
        rows_of(source)
    assert "schema" in failed.value.remedy
    text = FileSource(
        tmp_path,
        "csv",
        schema=pa.schema([("n", pa.string()), ("s", pa.string())]),
        csv=CsvOptions(newlines_in_values=newlines),
    )
    assert last_of(rows_of(text)) == last


@pytest.mark.parametrize("newlines", [True, False])
@pytest.mark.parametrize(
    ("first", "last", "value"),
    [
        ("12345", "", None),
        ("12345", "NA", None),
        ("12345", '""', None),
        ("12345", " 7", 7),
        ("12345", '"8"', 8),
        ("12345", "-0", 0),
        ("12345", str(2**63 - 1), 2**63 - 1),
        ("1.5", "0", 0.0),
        ("1.5", "-0.25", -0.25),
        ("1.5", "9007199254740992", 2.0**53),
        ("1.5", "0.30000000000000004", 0.30000000000000004),
        ("1.5", "1.7976931348623157e308", 1.7976931348623157e308),
    ],
)
def test_numbers_of_csv_that_stay_are_read(tmp_path, first, last, value, newlines):
    csv_file(tmp_path, last, first=first)
    source = FileSource(tmp_path, "csv", csv=CsvOptions(newlines_in_values=newlines))
    rows = rows_of(source)
    assert last_of(rows) == value
    assert rows.num_rows == MANY + 1
    assert rows["s"].value_counts().field("counts").to_pylist() in ([MANY, 1], [1, MANY])


def test_random_numbers_are_those_of_python(tmp_path):
    choose = random.Random(7)
    whole = [choose.randrange(-(2**63), 2**63) >> choose.randrange(64) for _ in range(MANY)]
    parts = [choose.uniform(-1, 1) * 10.0 ** choose.randrange(-30, 30) for _ in range(MANY)]
    lines = [f"{n},{x!r}" for n, x in zip(whole, parts, strict=True)]
    (tmp_path / "a.csv").write_text("n,x\n" + "\n".join(lines))
    rows = rows_of(FileSource(tmp_path, "csv"))
    assert rows["n"].to_pylist() == whole
    assert rows["x"].to_pylist() == parts


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (1.5, '{"n": 9007199254740993, "s": "x"}'),
        (1.5, '{"n": 0.12345678901234567891, "s": "x"}'),
        (12345, '{"n": 9223372036854775808, "s": "x"}'),
        (12345, '{"n": 1, "s": "x", "later": 3}'),
        ({"a": 1}, '{"n": {"a": 1, "later": 2}, "s": "x"}'),
        ([{"a": 1.5}], '{"n": [{"a": 9007199254740993}], "s": "x"}'),
    ],
)
def test_values_of_json_that_would_change_or_go_later_are_errors(tmp_path, first, last):
    json_file(tmp_path, last, first)
    with pytest.raises(SourceError) as failed:
        rows_of(FileSource(tmp_path, "json"))
    assert "schema" in failed.value.remedy


def test_fields_that_a_declared_schema_lacks_are_dropped_as_the_page_says(tmp_path):
    json_file(tmp_path, '{"n": 1, "later": 3}')
    schema = pa.schema([("n", pa.int64())])
    assert rows_of(FileSource(tmp_path, "json", schema=schema))["n"].to_pylist().count(1) == 1
    assert rows_of(FileSource(tmp_path, "json", columns=["n"]))["n"].to_pylist().count(1) == 1


def test_a_column_that_comes_with_a_later_file_is_an_error(tmp_path):
    csv_file(tmp_path, "1")
    (tmp_path / "b.csv").write_text("n,s,later\n1,x,2\n")
    with pytest.raises(SourceError, match="a column 'later', which the first file lacks"):
        rows_of(FileSource(tmp_path, "csv"))
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), ("later", pa.int64())])
    rows = rows_of(FileSource(tmp_path, "csv", schema=schema))
    assert rows["later"].to_pylist() == [None] * (MANY + 1) + [2]


def test_folders_with_columns_are_no_fields_that_files_lack(tmp_path):
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "a.json").write_text('{"n": 1}\n')
        (tmp_path / f"day={day}" / "a.csv").write_text("n,day\n1,7\n")
    for kind in ("csv", "json"):
        rows = rows_of(FileSource(f"{tmp_path}/*/*.{kind}", kind, partitioning="hive"))
        assert sorted(rows["day"].to_pylist()) == [1, 2]
    (tmp_path / "day=2" / "a.json").write_text('{"n": 1, "later": 2}\n')
    with pytest.raises(SourceError):
        rows_of(FileSource(f"{tmp_path}/*/*.json", "json", partitioning="hive"))
