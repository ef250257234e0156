"""Parquet: timestamps of 96 bits, damaged footers, wide tables and rows that take no space in the file."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from tests.kit.contexts import enumerated, read_all, table_of

from headgate.errors import SchemaMismatchError, SourceError
from headgate.source import FileSource, read

DATA = Path(__file__).parent / "data"
UTC = dt.UTC
TIMES = [
    dt.datetime(1, 1, 1, tzinfo=UTC),
    dt.datetime(2020, 2, 29, 12, 30, 1, 234567, tzinfo=UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    None,
]


@pytest.fixture(params=[True, False], ids=["with Arrow's schema", "without"])
def int96(request, tmp_path):
    """Write a file with timestamps of 96 bits, plain and in a list."""
    plain = pa.array(TIMES, pa.timestamp("us", "UTC"))
    nested = pa.array(
        [[{"n": 1, "at": time}] for time in TIMES],
        pa.list_(pa.struct([("n", pa.int32()), ("at", pa.timestamp("us", "UTC"))])),
    )
    table = pa.table({"id": range(4), "nested": nested, "at": plain})
    pq.write_table(
        table,
        tmp_path / "a.parquet",
        use_deprecated_int96_timestamps=True,
        store_schema=request.param,
    )
    return tmp_path


class TestInt96:
    """Timestamps of 96 bits are instants, of all years."""

    def test_they_are_microseconds_in_utc(self, int96):
        source = FileSource(int96)
        assert source.schema.field("at").type == pa.timestamp("us", "UTC")
        table = table_of(source, read_all(source, enumerated(source)))
        assert table["at"].to_pylist() == TIMES
        assert [row[0]["at"] for row in table["nested"].to_pylist()] == TIMES

    def test_the_type_may_be_declared(self, int96):
        source = FileSource.from_options({"path": str(int96), "schema": "at timestamp"})
        assert table_of(source, read_all(source, enumerated(source)))["at"].to_pylist() == TIMES

    def test_they_are_no_local_times(self, int96):
        source = FileSource.from_options({"path": str(int96), "schema": "at timestamp_ntz"})
        with pytest.raises(SchemaMismatchError, match=r"type timestamp\[us, tz=UTC\]") as caught:
            list(read(source))
        assert 'schema="at timestamp"' in caught.value.remedy

    def test_nanoseconds_that_wrap_are_an_error(self, int96):
        source = FileSource(int96, schema=pa.schema([("at", pa.timestamp("ns", "UTC"))]))
        with pytest.raises(SchemaMismatchError, match="out of bounds"):
            list(read(source))

    def test_a_filter(self, int96):
        first = pa.scalar(TIMES[1], pa.timestamp("us", "UTC"))
        source = FileSource(int96, columns=["id"], filter=pc.field("at") >= first)
        assert table_of(source, list(read(source)))["id"].to_pylist() == [1, 2]


DAY, TIME = pa.date32(), pa.timestamp("us", "UTC")
#: Notes of files whose dates, or whose times of 96 bits, are of the old calendar.
DATES = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
OF_96_BITS = {"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyINT96": ""}


class TestOldCalendar:
    """Spark 2 wrote days before 1582 by another calendar."""

    OLD = dt.datetime(1500, 1, 1, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("said", "kind", "is_int96", "is_refused"),
        [
            ({"org.apache.spark.version": "2.4.8"}, DAY, False, True),
            ({"org.apache.spark.version": "2.4.8"}, TIME, False, True),
            ({"org.apache.spark.version": "2.4.8"}, TIME, True, True),
            ({"org.apache.spark.version": "3.0.1"}, DAY, False, False),
            ({"org.apache.spark.version": "3.0.1"}, TIME, True, True),
            (DATES, DAY, False, True),
            (DATES, pa.list_(DAY), False, True),
            (DATES, pa.map_(pa.string(), DAY), False, True),
            (DATES, pa.struct([("a", pa.struct([("at", TIME)]))]), False, True),
            (DATES, TIME, True, False),
            (OF_96_BITS, DAY, False, False),
            (OF_96_BITS, TIME, False, False),
            (OF_96_BITS, pa.list_(TIME), True, True),
            # Spark takes times without a zone as they are.
            ({"org.apache.spark.version": "2.4.8"}, pa.timestamp("us"), False, False),
        ],
    )
    def test_old_values_are_refused(self, said, kind, is_int96, is_refused, tmp_path):
        for name, times in (("new", [*TIMES[1:], None]), ("old", [self.OLD, None])):
            table = pa.table({"at": self._column(times, kind)}).replace_schema_metadata(said)
            pq.write_table(table, tmp_path / name, use_deprecated_int96_timestamps=is_int96)
        new = FileSource(tmp_path / "new")
        assert table_of(new, read_all(new, enumerated(new))).num_rows == len(TIMES)
        if is_refused:
            with pytest.raises(SchemaMismatchError, match="in the calendar of Spark 2"):
                list(read(FileSource(tmp_path / "old")))
        else:
            assert sum(b.num_rows for b in read(FileSource(tmp_path / "old"))) == 2

    @staticmethod
    def _column(times, kind):
        """Return a column with the times somewhere inside."""
        days = pa.array(times, pa.timestamp("us", "UTC"))
        if pa.types.is_list(kind):
            return pa.array([[day] for day in days.cast(kind.value_type).to_pylist()], kind)
        if pa.types.is_map(kind):
            return pa.array([[("k", day)] for day in days.cast(kind.item_type).to_pylist()], kind)
        if pa.types.is_struct(kind):
            return pa.array([{"a": {"at": day}} for day in times], kind)
        return days.cast(kind)

    @pytest.mark.parametrize("said", [{}, {"org.apache.spark.version": "3.1.0"}])
    def test_files_of_other_programs_are_read(self, said, tmp_path):
        table = pa.table({"at": pa.array([self.OLD], pa.timestamp("us", "UTC"))})
        pq.write_table(table.replace_schema_metadata(said), tmp_path / "a.parquet")
        assert [row.as_py() for b in read(FileSource(tmp_path)) for row in b["at"]] == [self.OLD]


class TestDamage:
    """A damaged footer is an error; pyarrow would end the process."""

    @pytest.mark.parametrize("kind", ["histogram", "type"])
    @pytest.mark.parametrize(
        "wanted", [{"columns": ["id"]}, {"filter": pc.field("x") > 3}], ids=["columns", "filter"]
    )
    def test_a_column_whose_metadata_pyarrow_throws_for(self, kind, wanted):
        source = FileSource(DATA / f"damaged_{kind}.parquet", **wanted)
        with pytest.raises(SourceError, match=r"the footer is damaged: .* column") as caught:
            enumerated(source)
        assert caught.value.details["path"].endswith(f"damaged_{kind}.parquet")

    def test_no_footer_ends_the_process(self, tmp_path):
        program = textwrap.dedent("""
            import random, sys
            import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
            from headgate.errors import HeadgateError
            from headgate.source import FileSource
            from tests.kit.contexts import enumerated, read_all

            path = sys.argv[1]
            table = pa.table({"id": range(40), "text": [f"row {n}" for n in range(40)], "x": [n / 2 for n in range(40)]})
            pq.write_table(table, path, row_group_size=20)
            data = open(path, "rb").read()
            start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
            condition = (pc.field("id") > 5) & (pc.field("text") < "x") & (pc.field("x") > 3)
            errors = 0
            for seed in range(330):
                chance, damaged = random.Random(seed), bytearray(data)
                for _ in range(chance.choice([1, 1, 2, 3])):
                    damaged[chance.randrange(start, len(data) - 8)] = chance.randrange(256)
                open(path, "wb").write(damaged)
                try:
                    source = FileSource(path, columns=["id", "text"], filter=condition)
                    read_all(source, enumerated(source))
                except HeadgateError:
                    errors += 1
            print(errors)
        """)
        run = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "a.parquet")],
            check=False,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert run.returncode == 0, run.stderr[-500:]
        assert 200 < int(run.stdout) < 330


class TestMemory:
    """A batch has about 4 MiB, however few bytes the file has."""

    @pytest.mark.parametrize("kind", ["parquet", "dictionaries", "arrow"])
    def test_values_that_take_no_space_in_the_file(self, kind, tmp_path):
        rows, value = 20_000, "x" * 5_000
        column = pa.array([value] * rows, pa.string())
        if kind != "parquet":
            column = column.dictionary_encode()
        table = pa.table({"id": range(rows), "text": column})
        path = tmp_path / "a"
        if kind == "arrow":
            feather.write_feather(table, str(path), chunksize=rows, compression="zstd")
        else:
            pq.write_table(table, path, compression="zstd")
        assert path.stat().st_size < 200_000
        source = FileSource(path, "arrow" if kind == "arrow" else "parquet")
        ids = []
        for batch in read_all(source, enumerated(source)):
            assert batch.nbytes <= 48 * 1024 * 1024
            assert set(batch["text"].to_pylist()) == {value}
            ids += batch["id"].to_pylist()
        assert ids == list(range(rows))

    def test_later_batches_have_fewer_rows(self, tmp_path):
        texts = pa.array([b"x" * 20_000] * 4_000, pa.large_binary())
        pq.write_table(pa.table({"bytes": texts}), tmp_path / "a.parquet")
        sizes = [batch.nbytes for batch in read(FileSource(tmp_path, batch_rows=1000))]
        assert max(sizes[1:]) <= 5 * 1024 * 1024


@pytest.mark.parametrize("row_group_size", [1, 3])
@pytest.mark.parametrize(
    "value",
    [
        pa.array([[True] * 9] * 3),
        pa.array([[("a", True)]] * 3, pa.map_(pa.string(), pa.bool_())),
        pa.array([[{"a": 1, "b": None}]] * 3, pa.list_(pa.struct({"a": "i4", "b": "bool"}))),
    ],
    ids=["list", "map", "structs"],
)
def test_booleans_behind_an_empty_page_are_read_or_refused(value, row_group_size, tmp_path):
    """pyarrow 26 reads no row of such a row group, or fails."""
    table = pa.table({"id": range(3), "value": value})
    path = tmp_path / "a.parquet"
    options = {"data_page_version": "2.0", "data_page_size": 1, "row_group_size": row_group_size}
    pq.write_table(table, path, **options)
    (batch,) = read(FileSource(path, columns=["id"]))
    assert batch["id"].to_pylist() == [0, 1, 2]
    # A pyarrow without the fault reads all.
    refused = pytest.raises(SourceError, match="pyarrow reads less from")
    with refused if _rows(path) != 3 else nullcontext():
        assert pa.Table.from_batches(read(FileSource(path))).to_pylist() == table.to_pylist()


def _rows(path):
    """Return the rows that pyarrow reads from a file; -1 if it fails."""
    try:
        return pq.ParquetFile(path).read().num_rows
    except pa.ArrowInvalid:
        return -1


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "json"])
def test_many_columns(kind, tmp_path):
    """With a look-up that is not linear this takes minutes."""
    row = {f"c{n}": n for n in range(4000)}
    table = pa.table({name: [value] for name, value in row.items()})
    path = tmp_path / "a"
    match kind:
        case "parquet":
            pq.write_table(table, path)
        case "arrow":
            feather.write_feather(table, str(path))
        case "csv":
            path.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
        case "json":
            path.write_text(str(row).replace("'", '"') + "\n")
    source = FileSource(path, kind)
    (batch,) = read_all(source, enumerated(source))
    assert batch.to_pylist() == [row]
