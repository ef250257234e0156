"""A file sink with partition columns, and with rows sorted within files; in memory and beyond it."""

import datetime as dt
import decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import dataset, parquet
from tests.kit import sinks

from headgate import _partition_names as names
from headgate.errors import (
    OptionError,
    SchemaMismatchError,
    SinkError,
    UnknownColumnError,
    UnsupportedTypeError,
)
from headgate.sink import FileSink, LocalWrite, arrangement, write
from headgate.source.files.partitions import folder_values

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
#: The open files of this process.
DESCRIPTORS = Path("/proc/self/fd")
NAMES = TEXTS.filter(lambda name: name and not name.startswith(("_", ".")))


@given(st.lists(st.tuples(NAMES, st.none() | TEXTS), min_size=1, unique_by=lambda pair: pair[0]))
def test_what_is_in_the_name_of_a_folder_is_read_from_it(pairs):
    path = "/".join(names.partition_name(name, text) for name, text in pairs)
    assert names.is_partition(path)
    assert folder_values(f"/root/{path}/part-0", ["/root"]) == {
        name: text or None for name, text in pairs
    }


@pytest.mark.parametrize("path", ["", "a", "a=1/", "/a=1", "a=1/../b=2", "_a=1", ".a=1", "=1", "a=\0"])  # fmt: skip
def test_other_paths_are_no_folders_of_columns(path):
    assert not names.is_partition(path)


ROWS = st.lists(
    st.tuples(st.none() | st.sampled_from(["", "a", "a/b", "é=%"]), st.integers(-3, 3)),
    max_size=40,
)


@settings(max_examples=25, deadline=None)
@given(ROWS, st.integers(1, 20), st.sampled_from([1, 500, 64 << 20]))
def test_each_row_is_once_in_its_folder_and_in_order(tmp_path_factory, rows, chunk, memory):
    path = tmp_path_factory.mktemp("folders")
    texts, numbers = [text for text, _ in rows], [number for _, number in rows]
    columns = {"x": pa.array(texts, pa.string()), "y": pa.array(numbers, pa.int8())}
    table = pa.table({**columns, "n": pa.array(range(len(rows)), pa.int64())})
    sink = FileSink(path, partition_by="x", sort_within="y", max_rows_per_file=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrangement, "_MEMORY", memory)
        result = write(table.to_batches(chunk), sink, schema=table.schema)
    expected = {}
    for n, (text, y) in enumerate(rows):
        expected.setdefault(text or None, []).append((y, n))
    visible = {}
    for file in result.files:
        stored = parquet.ParquetFile(path / file).read()
        assert stored.column_names == ["y", "n"]
        assert stored.num_rows <= 7
        pairs = list(zip(stored["y"].to_pylist(), stored["n"].to_pylist(), strict=True))
        visible.setdefault(folder_values(f"/{file}", ["/"])["x"], []).extend(pairs)
    assert visible == {text: sorted(pairs) for text, pairs in expected.items()}
    assert sinks.left(path) == []
    assert result.rows == len(rows)


def test_one_file_is_open_at_a_time_and_rows_beyond_the_memory_wait_in_files(path, monkeypatch):
    monkeypatch.setattr(arrangement, "_MEMORY", 1 << 20)
    most = 0

    def batches():
        nonlocal most
        for start in range(0, 400_000, 4_000):
            array = pa.array(range(start, start + 4_000), pa.int64())
            yield pa.record_batch({"n": array, "p": pa.array([n % 200 for n in range(4_000)])})
            most = max(most, pa.total_allocated_bytes() - before)

    before = pa.total_allocated_bytes()
    opened = len(list(DESCRIPTORS.iterdir()))
    with LocalWrite(FileSink(path, partition_by="p")) as job:
        for batch in batches():
            job.write(batch)
        runs = len(list(DESCRIPTORS.iterdir())) - opened
    assert (job.result.rows, len(job.result.files)) == (400_000, 200)
    assert 3 < runs < 40
    assert most < 8 << 20
    assert len(list(DESCRIPTORS.iterdir())) == opened
    assert sinks.rows(path) == list(range(400_000))


def test_each_kind_of_value_has_the_name_that_spark_gives(path):
    time = dt.datetime(2026, 1, 31, 12, 0, 0, 250_000, dt.UTC)
    values = {
        "b": (pa.bool_(), True, "true"),
        "i": (pa.int16(), -7, "-7"),
        "d": (pa.float64(), 1e7, "1.0E7"),
        "e": (pa.float64(), -0.0, "-0.0"),
        "f": (pa.float32(), 0.1, "0.1"),
        "g": (pa.float64(), float("nan"), "NaN"),
        "h": (pa.float64(), 5e-324, "4.9E-324"),
        "m": (pa.decimal128(20, 8), decimal.Decimal("1E-8"), "0.00000001"),
        "day": (pa.date32(), dt.date(987, 6, 5), "0987-06-05"),
        "t": (pa.timestamp("ns", "UTC"), time, "2026-01-31 07%3A00%3A00.25"),
        "u": (pa.timestamp("ms"), time.replace(tzinfo=None), "2026-01-31 12%3A00%3A00.25"),
        "k": (pa.dictionary(pa.int8(), pa.string()), "x^", "x%5E"),
        "z": (pa.large_string(), None, "__HIVE_DEFAULT_PARTITION__"),
    }
    table = pa.table({name: pa.array([value], of) for name, (of, value, _) in values.items()})
    table = table.append_column("n", pa.array([1]))
    sink = FileSink(path, partition_by=list(values), time_zone="America/New_York")
    (file,) = write(table, sink).files
    assert file.split("/")[:-1] == [f"{name}={text}" for name, (*_, text) in values.items()]


@pytest.mark.parametrize(
    ("array", "wrong"),
    [
        (pa.array(["a\0b"]), "a character 0"),
        (pa.array(["__HIVE_DEFAULT_PARTITION__"]), "is what a null has there"),
        (pa.array(["é" * 130]), "makes a name of 262 bytes, and file systems take 255"),
        (pa.array([1_762_065_000], pa.timestamp("s", "UTC")), "were set back"),
        (pa.array([1], pa.timestamp("ns", "UTC")), "cannot be written as text"),
        (pa.array([2**40], pa.timestamp("s", "UTC")), "cannot be written as text"),
        (pa.array([3_000_000], pa.date32()), "cannot be written as text"),
        (pa.array([b"\xff"]).view(pa.string()), "cannot be written as text"),
    ],
)
def test_a_value_that_no_folder_can_have_is_refused_and_leaves_nothing(
    tmp_path, path, array, wrong
):
    table = pa.table({"x": array, "n": [1]})
    with pytest.raises(SchemaMismatchError, match=f"a value of column x: it .*{wrong}"):
        write(table, FileSink(path, partition_by="x", time_zone="America/New_York"))
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "of",
    [
        *(pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.string())),
        *(pa.binary(), pa.null(), pa.time64("us"), pa.duration("us"), pa.float16()),
    ],
)
def test_types_without_a_notation_are_refused_at_the_call(path, of):
    with pytest.raises(UnsupportedTypeError, match="names of folders cannot have"):
        FileSink(path, partition_by="x").check_schema(pa.schema([("x", of), ("n", pa.int64())]))
    with pytest.raises(UnsupportedTypeError, match="no time zone is given for column t"):
        write(
            pa.table({"t": pa.array([0], pa.timestamp("us", "UTC")), "n": [1]}),
            FileSink(path, partition_by="t"),
        )


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"partition_by": 3}, "is no name of a column"),
        ({"partition_by": ["a", "a"]}, "has 'a' twice"),
        ({"partition_by": "_a"}, "readers ignore folders"),
        ({"partition_by": "a", "sort_within": ["b", "a"]}, "it is one value in a file"),
        ({"sort_within": [1]}, "is no name of a column"),
        ({"time_zone": "UTC"}, "there are none"),
        ({"partition_by": "a", "time_zone": "Mars/Olympus"}, "is no time zone"),
        ({"compact_below": "0"}, "below the limit of 1"),
        ({"compact_below": "2m", "target_file_size": "1m"}, "would be joined again"),
        ({"compact_below": "1m", "format": "json"}, "for Parquet and Arrow files"),
    ],
)
def test_bad_options_are_refused_when_the_sink_is_made(path, options, wrong):
    with pytest.raises(OptionError, match=wrong):
        FileSink(path, **options)


def test_columns_that_are_not_there_are_refused_before_anything_is_written(path):
    table = pa.table({"k": ["a"], "n": [1]})
    for options in ({"partition_by": "kk"}, {"sort_within": "kk"}):
        with pytest.raises(UnknownColumnError, match="there is no column 'kk'"):
            write(table, FileSink(path, **options))
    with pytest.raises(SchemaMismatchError, match="all columns are partition columns"):
        write(table, FileSink(path, partition_by=["n", "k"]))
    assert not path.parent.exists()


def test_no_rows_make_no_file_where_there_are_folders(path):
    empty = pa.table({"k": pa.array([], pa.string()), "n": pa.array([], pa.int64())})
    assert write(empty, FileSink(path, partition_by="k")).files == ()
    assert [file.name for file in path.iterdir()] == ["_SUCCESS"]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_or_a_link_in_the_place_of_a_folder_stops_the_job_before_it_is_decided(path, kind):
    path.mkdir(parents=True)
    if kind == "file":
        (path / "k=a").touch()
    else:
        (path.parent / "elsewhere").mkdir()
        (path / "k=a").symlink_to(path.parent / "elsewhere")
    table = pa.table({"k": ["a", "b"], "n": [1, 2]})
    with pytest.raises(SinkError, match=r"cannot write into .*k=a") as caught:
        write(table, FileSink(path, partition_by="k", mode="append"))
    assert "decided" not in str(caught.value)
    assert [file.name for file in path.iterdir()] == ["k=a"]


def test_an_overwrite_removes_files_and_empty_folders_of_before(path):
    write(pa.table({"k": ["a", "b"], "n": [1, 2]}), FileSink(path, partition_by="k"))
    write(
        pa.table({"k": ["b", "c"], "n": [3, 4]}), FileSink(path, partition_by="k", mode="overwrite")
    )
    assert sorted(folder.name for folder in path.iterdir()) == ["_SUCCESS", "k=b", "k=c"]
    table = dataset.dataset(path, partitioning="hive").to_table().sort_by("n")
    assert table.to_pydict() == {"n": [3, 4], "k": ["b", "c"]}
