"""CSV and JSON lines of a file sink, read by FileSource and DuckDB; tests/spark/test_text_formats.py has Spark."""

import gzip
import math

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import OptionError, SchemaMismatchError, UnsupportedTypeError
from headgate.sink import CommitterContext, FileSink, WriterContext, write
from headgate.source import CsvOptions, FileSource, NumberSequenceSource, read
from headgate.stream import stream

SCHEMA = pa.schema(
    {
        "text": pa.string(),
        "double": pa.float64(),
        "float": pa.float32(),
        "long": pa.int64(),
        "instant": pa.timestamp("us", "Asia/Kolkata"),
        "local": pa.timestamp("us"),
        "day": pa.date32(),
        "price": pa.decimal128(38, 9),
        "flag": pa.bool_(),
    }
)
#: The types in which readers have the columns.
READ = SCHEMA.set(4, pa.field("instant", pa.timestamp("us", "UTC")))
KINDS = {
    "text": "varchar",
    "double": "double",
    "float": "float",
    "long": "bigint",
    "instant": "timestamptz",
    "local": "timestamp",
    "day": "date",
    "price": "decimal(38,9)",
    "flag": "boolean",
}
DIALECT = CsvOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
_odd = st.sampled_from(
    ["", "NA", "NaN", "null", '"', '""', "a,b", "x\r\ny", "\r", "\n", '\\"', " "]
)
_floats = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.1])
_micros = st.integers(-62_135_596_800_000_000 + 10**11, 253_402_300_799_999_999 - 10**11)
ROW = st.fixed_dictionaries(
    {
        "text": st.none() | _odd | _texts,
        "double": st.none() | _floats | st.floats(),
        "float": st.none() | _floats,
        "long": st.none() | st.integers(-(2**63), 2**63 - 1),
        "instant": st.none() | _micros,
        "local": st.none() | _micros,
        "day": st.none() | st.dates(),
        "price": st.none() | st.decimals(-(10**28), 10**28, places=9),
        "flag": st.none() | st.booleans(),
    }
)


def table_of(rows, *, finite=False):
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    if finite:
        for name in ("double", "float"):
            columns[name] = [x if x is None or math.isfinite(x) else None for x in columns[name]]
    return pa.table({f.name: pa.array(columns[f.name], f.type) for f in SCHEMA}, SCHEMA)


def assert_equal(got, want):
    """Compare by text, which tells -0.0 from 0.0 and finds NaN equal to itself."""
    for name in want.schema.names:
        assert repr(got[name].to_pylist()) == repr(want[name].to_pylist()), name


def by_headgate(path, kind, schema, **options):
    csv = {"csv": DIALECT} if kind == "csv" else {}
    with read(FileSource(path, kind, schema=schema, **csv, **options)) as batches:
        return pa.Table.from_batches(batches, schema)


def by_duckdb(file, kind):
    with duckdb.connect() as connection:
        connection.execute("set timezone='UTC'")
        if kind == "csv":
            found = connection.read_csv(
                str(file), columns=KINDS, header=True, allow_quoted_nulls=False
            )
        else:
            found = connection.sql(
                f"from read_json('{file}', format='newline_delimited', columns={KINDS})"
            )
        return found.to_arrow_table()


@settings(max_examples=40, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12), st.sampled_from([None, "gzip"]))
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_values_come_back_equal(tmp_path_factory, kind, rows, compression):
    path = tmp_path_factory.mktemp("out")
    table = table_of(rows, finite=kind == "json")
    (name,) = write(
        table, FileSink(path, format=kind, mode="append", compression=compression)
    ).files
    assert name.endswith(f".{kind}.gz" if compression else f".{kind}")
    want = table.cast(READ)
    assert_equal(by_headgate(path, kind, READ), want)
    assert_equal(by_duckdb(path / name, kind).cast(READ), want)


def test_nested_columns_come_back_from_json(path):
    instants = pa.list_(pa.timestamp("us", "Asia/Tokyo"))
    inside = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    table = pa.table(
        {
            "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
            "struct": pa.array([{"a": 1, "b": ["x", ""]}, None, {"a": None, "b": None}], inside),
            "instants": pa.array([[0], [None], None], instants),
            "word": pa.array(["x", "y", None]).dictionary_encode(),
            "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
        }
    )
    (name,) = write(table, FileSink(path, format="json")).files
    read_as = pa.schema(
        {
            "list": pa.list_(pa.int64()),
            "struct": inside,
            "instants": pa.list_(pa.timestamp("us", "UTC")),
            "word": pa.string(),
            "pair": pa.list_(pa.int64()),
        }
    )
    want = table.cast(read_as)
    assert by_headgate(path, "json", read_as).equals(want)
    with duckdb.connect() as connection:
        rows = connection.sql(f"select list, struct, word, pair from read_json('{path / name}')")
        assert (
            rows.to_arrow_table().cast(want.drop("instants").schema).equals(want.drop("instants"))
        )


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_text_file_without_rows(path, kind):
    write(table_of([]), FileSink(path, format=kind))
    assert by_headgate(path, kind, READ).num_rows == 0
    (file,) = path.glob("part-*")
    header = ",".join(f'"{name}"' for name in SCHEMA.names) + "\n"
    assert file.read_text() == (header if kind == "csv" else "")


def test_header_and_delimiter(path):
    table = pa.table({"n": [1, 2], "s": ["a;b", None]})
    write(table, FileSink(path, format="csv", header=False, delimiter=";", compression="gzip"))
    (file,) = path.glob("part-*")
    assert gzip.decompress(file.read_bytes()) == b'1;"a;b"\n2;\n'


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("csv", pa.array([[1]])),
        ("csv", pa.array([{"a": 1}])),
        ("csv", pa.array([b"\xff"])),
        ("csv", pa.array([1], pa.duration("s"))),
        ("json", pa.array([b"\xff"])),
        ("json", pa.array([[b"\xff"]])),
        ("json", pa.array([{"a": [b"\xff"]}])),
        ("json", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))),
        ("json", pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])),
        ("parquet", pa.array([None], pa.month_day_nano_interval())),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.type),
)
def test_a_type_without_a_notation_is_refused_at_the_call(path, kind, column):
    table = pa.table({"odd": column})
    with pytest.raises(UnsupportedTypeError) as caught:
        write(table, FileSink(path, format=kind))
    assert caught.value.code == "HG-4002"
    assert "odd" in str(caught.value)
    assert not path.exists()
    with pytest.raises(UnsupportedTypeError):
        stream(NumberSequenceSource(0, 1)).map(lambda _: table, schema=table.schema).sink(
            FileSink(path, format=kind)
        )


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        ("json", pa.table({"v": [1.0, math.nan]})),
        ("json", pa.table({"v": [[math.inf]]})),
        ("csv", pa.table({"v": pa.array([1, None])})),
    ],
)
def test_a_value_without_a_notation_is_refused(path, kind, table):
    with pytest.raises(SchemaMismatchError) as caught:
        write(table, FileSink(path, format=kind))
    assert "column v" in str(caught.value)
    assert list(path.glob("part-*")) == []


@pytest.mark.parametrize(
    "options",
    [
        {"header": False},
        {"delimiter": ";"},
        {"format": "csv", "delimiter": "."},
        {"format": "csv", "delimiter": ";;"},
        {"format": "csv", "delimiter": None},
        {"format": "csv", "header": "yes"},
        {"format": "json", "compression": "zstd"},
    ],
)
def test_an_option_that_the_format_does_not_take(path, options):
    with pytest.raises(OptionError) as caught:
        FileSink(path, **options)
    assert next(reversed(options)) in str(caught.value)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_streaming_job_writes_text(path, kind):
    sink = FileSink(path, format=kind)
    committer = sink.create_committer(CommitterContext("job"))
    committer.start(None)
    writer = sink.create_writer(WriterContext("job", 0, 1, "a"))
    schema = pa.schema({"n": pa.int64(), "s": pa.string()})
    for checkpoint in (1, 2):
        writer.write(pa.record_batch([[checkpoint, 7], ["a\n", None]], schema=schema))
        committer.commit(checkpoint, [writer.prepare_commit(checkpoint)])
    found = by_headgate(path, kind, schema).sort_by("n").to_pylist()
    assert found == [{"n": 1, "s": "a\n"}, {"n": 2, "s": "a\n"}, *[{"n": 7, "s": None}] * 2]
