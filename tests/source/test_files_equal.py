"""File sources give the same rows as pyarrow's own readers, for all types, filters and splits."""

from __future__ import annotations

import datetime as dt
import decimal
import pickle
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather
from tests.kit.contexts import enumerated, read_all, table_of

from headgate.errors import OptionError
from headgate.source import FileSource, read

UTC = dt.UTC
TIMES = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2100, 1, 1))  # noqa: DTZ001

VALUES = {
    "small": (pa.int8(), st.integers(-128, 127)),
    "number": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "narrow": (pa.float32(), st.floats(width=32)),
    "float": (pa.float64(), st.floats()),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=8)),
    "bytes": (pa.binary(), st.binary(max_size=8)),
    "day": (pa.date32(), st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))),
    "at": (pa.timestamp("us"), TIMES),
    "utc": (pa.timestamp("us", "UTC"), TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    "money": (
        pa.decimal128(12, 2),
        st.decimals(-(10**9), 10**9, places=2, allow_nan=False, allow_infinity=False),
    ),
    "list": (pa.list_(pa.int32()), st.lists(st.integers(-5, 5), max_size=3)),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.integers(-5, 5), "b": st.text(max_size=3)}),
    ),
}

#: For columns with few distinct values, so that filters keep some rows and skip some row groups.
FILTERS = [
    pc.field("key") < 3,
    (pc.field("key") >= 2) & (pc.field("key") != 4),
    ~(pc.field("key") > 3),
    pc.field("key").is_null(),
    pc.field("key").is_valid(),
    pc.field("key").isin([1, 4]),
    (pc.field("key") + 1) * 2 > 6,
    pc.field("ratio") > 0.5,
    ~(pc.field("ratio") > 0.5),
    pc.field("ratio") != 0.5,
    pc.field("ratio").is_nan(),
    pc.field("ratio").is_null(nan_is_null=True),
    (pc.field("ratio") <= 0.5) | (pc.field("key") == 0),
    pc.starts_with(pc.field("word"), "b"),
    pc.field("word") == "b",
    pc.scalar(True),
    pc.scalar(False),
]


@st.composite
def tables(draw):
    rows = draw(st.integers(0, 60))
    columns = {"id": pa.array(range(rows), pa.int64())}
    chance = draw(st.randoms(use_true_random=True))

    def column(pool, kind):
        return pa.array([chance.choice(pool) for _ in range(rows)], kind)

    columns["key"] = column([None, *range(6)], pa.int32())
    columns["ratio"] = column([0.0, 0.5, 1.0, float("nan"), float("inf"), None], pa.float64())
    columns["word"] = column(["a", "b", "bc", "", None], pa.string())
    for name in draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=4)):
        kind, values = VALUES[name]
        columns[name] = column([None, *draw(st.lists(values, max_size=10))], kind)
    return pa.table(columns)


def write_parquet(table, path, rows):
    pq.write_table(table, path, row_group_size=rows)


def write_arrow(table, path, rows):
    feather.write_feather(table, str(path), chunksize=rows, compression="uncompressed")


WRITERS = {"parquet": write_parquet, "arrow": write_arrow}


def rows_of(table):
    """Return the rows in a form in which NaN equals NaN."""
    return sorted(
        (row["id"], repr(sorted(row.items()))) if "id" in row else (0, repr(sorted(row.items())))
        for row in table.to_pylist()
    )


@pytest.mark.soak
@pytest.mark.parametrize("kind", sorted(WRITERS))
@given(
    table=tables(),
    group=st.integers(1, 70),
    split_size=st.sampled_from([1, 500, "64m"]),
    batch_rows=st.none() | st.integers(1, 20),
    row_filter=st.none() | st.sampled_from(FILTERS),
    data=st.data(),
)
@settings(deadline=None, max_examples=120)
def test_rows_are_those_of_a_dataset(kind, table, group, split_size, batch_rows, row_filter, data):
    names = st.lists(st.sampled_from(table.column_names), unique=True, min_size=1)
    columns = data.draw(st.none() | names)
    with tempfile.TemporaryDirectory() as folder:
        half = table.num_rows // 2
        WRITERS[kind](table.slice(0, half), Path(folder, "a." + kind), group)
        WRITERS[kind](table.slice(half), Path(folder, "b." + kind), group)
        source = FileSource(
            folder,
            kind,
            columns=columns,
            filter=row_filter,
            split_size=split_size,
            batch_rows=batch_rows,
        )
        splits = enumerated(source, readers=2)
        batches = read_all(source, splits)
        wanted = ds.dataset(folder, format=kind).to_table()
    if row_filter is not None:  # Not to_table(filter=...): its statistics drop NaN.
        wanted = wanted.filter(row_filter)
    wanted = wanted.select(columns or wanted.column_names)
    assert all(batch.schema.equals(source.schema) for batch in batches)
    assert source.schema.names == (columns or table.column_names)
    assert batch_rows is None or all(0 < batch.num_rows <= batch_rows for batch in batches)
    assert rows_of(table_of(source, batches)) == rows_of(wanted)
    assert len({split.split_id for split in splits}) == len(splits)
    if split_size == 1 and row_filter is None and kind == "parquet":
        assert len(splits) == -(-half // group) + -(-(table.num_rows - half) // group)


@pytest.fixture
def grouped(tmp_path):
    """Write ten row groups of 100 rows, sorted by key."""
    table = pa.table({"key": range(1000), "text": [f"row {n}" for n in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    return tmp_path


def test_statistics_leave_row_groups_out(grouped):
    source = FileSource(grouped, split_size=1).with_filter(
        (pc.field("key") >= 250) & (pc.field("key") < 420)
    )
    splits = enumerated(source)
    assert sorted(split.start for split in splits) == [2, 3, 4]
    keys = table_of(source, read_all(source, splits))["key"].to_pylist()
    assert sorted(keys) == list(range(250, 420))


def test_row_groups_that_are_left_out_part_the_others(grouped):
    source = FileSource(grouped, filter=(pc.field("key") < 150) | (pc.field("key") >= 900))
    assert sorted((s.start, s.end) for s in enumerated(source)) == [(0, 2), (9, 10)]


def test_statistics_of_floats_say_nothing_of_nan(tmp_path):
    values = pa.table({"x": [6.0, 7.0, float("nan")]})
    pq.write_table(values, tmp_path / "a.parquet")
    source = FileSource(tmp_path, filter=~(pc.field("x") > 5))
    assert [repr(x) for batch in read(source) for x in batch["x"].to_pylist()] == ["nan"]
    assert enumerated(FileSource(tmp_path, filter=pc.field("x") < 5)) == []


def test_only_the_columns_that_are_needed_are_weighed(grouped):
    whole = sum(split.size for split in enumerated(FileSource(grouped)))
    key = sum(split.size for split in enumerated(FileSource(grouped, columns=["key"])))
    both = FileSource(grouped, columns=["key"], filter=pc.field("text") != "")
    assert 0 < key < whole
    assert sum(split.size for split in enumerated(both)) == whole


def test_a_filter_may_use_columns_that_are_not_given(grouped):
    source = FileSource(grouped).with_columns(["text"]).with_filter(pc.field("key") == 7)
    with read(source) as records:
        assert [batch.to_pylist() for batch in records] == [[{"text": "row 7"}]]


def test_columns_that_are_computed_are_those_of_a_dataset(grouped):
    columns = {
        "text": pc.field("key"),
        "twice": pc.field("key") * 2,
        "all": pc.scalar("x"),
        "key": pc.starts_with(pc.field("text"), pattern="row 1"),
    }
    row_filter = pc.field("text") != "row 7"
    source = pickle.loads(pickle.dumps(FileSource(grouped, columns=columns, filter=row_filter)))
    wanted = ds.dataset(grouped).to_table(columns=columns, filter=row_filter)
    assert source.schema == wanted.schema
    assert table_of(source, read_all(source, enumerated(source))) == wanted
    fewer = source.with_columns(["key", "all"])
    assert table_of(fewer, read_all(fewer, enumerated(fewer))) == wanted.select(["key", "all"])
    only = FileSource(grouped, columns={"all": pc.scalar(1)})
    assert (
        table_of(only, read_all(only, enumerated(only))).num_rows
        == ds.dataset(grouped).count_rows()
    )
    with pytest.raises(OptionError, match="a computed column does not fit the columns"):
        FileSource(grouped, columns={"x": pc.field("text") + 1}).schema  # noqa: B018 - raises


def test_filters_add_up(grouped):
    source = FileSource(grouped, filter=pc.field("key") > 5).with_filter(pc.field("key") < 8)
    with read(source, parallelism=2) as records:
        assert records.to_reader().read_all()["key"].to_pylist() == [6, 7]


def test_a_column_named_as_words_of_an_expression(tmp_path):
    table = pa.table({"and": [1, 2], "x y": [3, 4], "a.b": [5, 6], "(": [7, 8]})
    pq.write_table(table, tmp_path / "a.parquet")
    for name in table.column_names:
        last = table[name][1]
        source = FileSource(tmp_path, columns=["x y"], filter=pc.field(name) == last)
        assert [b.to_pylist() for b in read(source)] == [[{"x y": 4}]]


def test_decimals_that_do_not_change_are_cast(tmp_path):
    table = pa.table({"x": pa.array([decimal.Decimal("1.50")], pa.decimal128(9, 2))})
    pq.write_table(table, tmp_path / "a.parquet")
    schema = pa.schema([("x", pa.decimal128(18, 3))])
    source = FileSource(tmp_path, schema=schema)
    assert [b.to_pylist() for b in read(source)] == [[{"x": decimal.Decimal("1.500")}]]


def test_dictionaries_come_as_their_values(tmp_path):
    words = pa.array(["a", "b", "a", None]).dictionary_encode()
    table = pa.table({"word": words})
    pq.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, str(tmp_path / "a.arrow"))
    for kind in ("parquet", "arrow"):
        source = FileSource(tmp_path / f"a.{kind}", kind)
        assert source.schema == pa.schema([("word", pa.string())])
        assert table_of(source, list(read(source)))["word"].to_pylist() == ["a", "b", "a", None]


def test_large_row_groups_come_in_batches_of_a_few_mib(tmp_path):
    table = pa.table({"a": pa.array(range(2_000_000), pa.int64()), "b": ["x" * 20] * 2_000_000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2_000_000)
    feather.write_feather(table, str(tmp_path / "a.arrow"), chunksize=2_000_000)
    for kind in ("parquet", "arrow"):
        source = FileSource(tmp_path / f"a.{kind}", kind)
        sizes = [batch.nbytes for batch in read_all(source, enumerated(source))]
        assert 1 << 20 < max(sizes) < 16 << 20
        assert len(sizes) > 4
