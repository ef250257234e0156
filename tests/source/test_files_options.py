"""A file source from string options."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.contexts import enumerated, read_all, table_of

from headgate.errors import OptionError, UnknownColumnError
from headgate.source import Boundedness, FileSource
from headgate.source.arguments import Texts
from headgate.source.files.options import schema_of


@pytest.fixture
def folder(tmp_path):
    table = pa.table({"id": range(10), "text": ["x"] * 10})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=2)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.csv").write_text("1;'a;b'\n2;-\n")
    return tmp_path


def table_for(**options):
    source = FileSource.from_options(options)
    return table_of(source, read_all(source, enumerated(source)))


def test_paths_and_columns(folder):
    files = [str(folder / "a.parquet"), str(folder / "b.parquet")]
    assert table_for(path=files[0]).num_rows == 10
    assert table_for(paths=",".join(files)).num_rows == 20
    assert table_for(paths=f'["{files[1]}"]', columns="text,id").column_names == ["text", "id"]
    assert table_for(path=str(folder / "*.parquet"), COLUMNS='["id"]').num_columns == 1
    assert table_for(path="b.parquet", filesystem=f"file://{folder}").num_rows == 10


def test_sizes_and_times(folder):
    options = {"path": str(folder / "a.parquet"), "splitSize": "1b", "batchrows": "1"}
    source = FileSource.from_options(options)
    splits = enumerated(source)
    assert len(splits) == 5
    assert {batch.num_rows for batch in read_all(source, splits)} == {1}
    endless = FileSource.from_options({**options, "discoveryInterval": "5s"})
    assert endless.boundedness is Boundedness.CONTINUOUS_UNBOUNDED


def test_how_csv_is_written(folder):
    table = table_for(
        path=str(folder / "c"),
        format="csv",
        delimiter=";",
        quoteChar="'",
        header="false",
        columnNames="id,text",
        nullValues="-",
        stringsCanBeNull="true",
        newlinesInValues="FALSE",
        schema="id smallint, text string",
    )
    assert table.to_pylist() == [{"id": 1, "text": "a;b"}, {"id": 2, "text": None}]
    assert table.schema.field("id").type == pa.int16()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "needs either path or paths"),
        ({"path": "a", "paths": "b"}, "needs either path or paths"),
        ({"path": "a", "colums": "b"}, "'colums' is no option of FileSource"),
        ({"path": "a", "splitSize": "big"}, "splitSize='big' cannot be read"),
        ({"path": "a", "splitSize": "0"}, "split_size=0"),
        ({"path": "a", "batchRows": "1.5"}, "batchRows='1.5' cannot be read"),
        ({"path": "a", "discoveryInterval": "often"}, "discoveryInterval='often'"),
        ({"path": "a", "schema": "id nonsense"}, "schema='id nonsense' cannot be read"),
        ({"path": "a", "columns": "[1]"}, "columns="),
        ({"path": "a", "columns": "[x"}, "columns="),
        ({"path": "a", "format": "csv", "header": "maybe"}, "header='maybe'"),
        ({"path": "a", "format": "csv", "delimiter": ";;"}, "delimiter=';;'"),
        (
            {"path": "a", "delimiter": ";"},
            "delimiter is an option of CSV files, not of format='parquet'",
        ),
        ({"path": "a", "columns": ""}, "is empty"),
        ({"path": "a", "sep": ";"}, "sep is an option of CSV files"),
        ({"path": "a", "format": "csv", "sep": ""}, "delimiter=''"),
        (
            {"path": "a", "format": "csv", "sep": ";", "delimiter": ";"},
            "delimiter and sep are two names of one option",
        ),
        ({"path": "a", "format": "csv", "encoding": "utf9"}, "encoding='utf9' is no encoding"),
    ],
)
def test_what_it_does_not_take(options, named):
    with pytest.raises(OptionError, match=named.replace("(", r"\(")):
        FileSource.from_options(options)


def test_an_unknown_option_names_those_that_look_like_it():
    with pytest.raises(OptionError) as caught:
        FileSource.from_options({"path": "a", "splitsize ": "1"})
    assert "splitSize" in caught.value.remedy
    assert "discoveryInterval" in caught.value.have


def test_an_unknown_option_that_looks_like_none_says_to_leave_it_out():
    with pytest.raises(OptionError) as caught:
        FileSource.from_options({"path": "a", "zzz": ";"})
    assert "leave zzz out" in caught.value.remedy
    assert "delimiter" in caught.value.have


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"paths": 3}, "paths has 3, which is not a path"),
        ({"paths": ["a", None]}, "paths has None, which is not a path"),
        ({"paths": "a", "filter": "id > 3"}, "filter='id > 3' is a str"),
        ({"paths": "a", "filter": [("id", ">", 3)]}, "is a list, not an Arrow expression"),
        ({"paths": "a", "columns": []}, "is empty"),
        ({"paths": "a", "schema": "id long"}, "schema='id long' is no Arrow schema"),
    ],
)
def test_what_the_class_does_not_take(arguments, named):
    with pytest.raises(OptionError, match=re.escape(named)):
        FileSource(**arguments)


def test_a_column_that_is_not_there_names_those_that_look_like_it(folder):
    with pytest.raises(UnknownColumnError, match="has no column 'ID'") as caught:
        _ = FileSource(folder / "a.parquet", columns=["ID"]).schema
    assert caught.value.remedy == "id"


@pytest.mark.parametrize(
    ("option", "nulls"),
    [
        ("", [""]),
        ('[""]', [""]),
        ("[]", []),
        ("NA", ["NA"]),
        ("NA,", ["NA", ""]),
        (" NA , - ", ["NA", "-"]),
        ('["NA", " ", "a,b"]', ["NA", " ", "a,b"]),
    ],
)
def test_texts_that_are_null(tmp_path, option, nulls):
    texts = ["", "NA", "-", " ", "a,b", "x"]
    (tmp_path / "a.csv").write_text("n;memo\n" + "".join(f"1;{text}\n" for text in texts))
    found = table_for(
        path=str(tmp_path), format="csv", sep=";", nullValues=option, stringsCanBeNull="true"
    )
    assert found["memo"].to_pylist() == [None if text in nulls else text for text in texts]


def test_an_empty_name_of_a_column_moves_no_other(tmp_path):
    (tmp_path / "a.csv").write_text("1,2,3\n")
    found = table_for(path=str(tmp_path), format="csv", header="false", columnNames="a,,c")
    assert found.to_pylist() == [{"a": 1, "": 2, "c": 3}]


def test_schemas_as_texts():
    found = schema_of(
        "id long, n int64 not null, price decimal(15, 2), at timestamp, local timestamp_ntz, "
        "day date, flag boolean, text string, ms timestamp[ms], x double"
    )
    assert found == pa.schema(
        [
            ("id", pa.int64()),
            pa.field("n", pa.int64(), nullable=False),
            ("price", pa.decimal128(15, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("flag", pa.bool_()),
            ("text", pa.string()),
            ("ms", pa.timestamp("ms")),
            ("x", pa.float64()),
        ]
    )


def test_texts_that_were_not_given_are_the_default():
    texts = Texts("X", {}, ["a", "b"])
    assert texts.integer("a", 7) == 7
    assert texts.number("a") is None
    assert texts.boolean("a", True) is True
    assert texts.texts("b") is None
