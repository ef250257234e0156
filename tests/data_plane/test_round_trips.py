"""Random tables through random exchanges, compared with pyarrow's result."""

import itertools

import columns
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plane import SECRET, assert_same, bits, emit_all, exchange, split_by

import headgate as hg
from headgate._native import hash_partition_ids

HASHABLE = [
    t
    for t in columns.TYPES
    if pa.types.is_boolean(t)
    or pa.types.is_signed_integer(t)
    or t in {pa.float32(), pa.float64(), pa.date32()}
    or pa.types.is_timestamp(t)
    or pa.types.is_decimal128(t)
    or pa.types.is_string(t)
    or pa.types.is_large_string(t)
    or pa.types.is_binary(t)
    or pa.types.is_large_binary(t)
    or pa.types.is_fixed_size_binary(t)
]
SOURCES = {t: columns.array(t) for t in columns.TYPES}
QUICK = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def tables(draw, types=tuple(columns.TYPES), min_columns=1):
    """Draw a table whose columns pick from the edge values of their types."""
    chosen = draw(st.lists(st.sampled_from(types), min_size=min_columns, max_size=5))
    rows = draw(st.integers(0, 3000) | st.integers(0, 20))
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = []
    for data_type in chosen:
        pick = chance.integers(0, 9, rows)
        arrays.append(SOURCES[data_type].take(pa.array(pick)))
    names = [f"c{i}" for i in range(len(chosen))]
    return pa.Table.from_arrays(arrays, names=names)


@st.composite
def cuts(draw, table):
    """Cut the table into consecutive slices, some of them empty."""
    points = draw(st.lists(st.integers(0, table.num_rows), max_size=6))
    edges = [0, *sorted(points), table.num_rows]
    whole = table.combine_chunks().to_batches()
    whole = whole[0] if whole else pa.RecordBatch.from_pylist([], schema=table.schema)
    return [whole.slice(a, b - a) for a, b in itertools.pairwise(edges)]


@pytest.fixture
def pair(request):
    """Make one small pair of environments for all examples of a test."""
    near = "auto" if request.param == "same_host" else "off"
    options = {"memory": "2m", "segment_size": "8k", "secret": SECRET, "same_host_link": near}
    with hg.ShuffleEnvironment(**options) as producer:
        if request.param == "local":
            yield producer, producer
            return
        with hg.ShuffleEnvironment(**options) as consumer:
            yield producer, consumer


both = pytest.mark.parametrize("pair", ["local", "remote", "same_host"], indirect=True)


@both
@given(data=st.data())
@QUICK
def test_in_turn(pair, data):
    table = data.draw(tables())
    batches = data.draw(cuts(table))
    n = data.draw(st.integers(1, 4))
    got = exchange(*pair, emit_all(*batches), n=n, schema=table.schema)
    for index, part in enumerate(got):
        assert_same(part, pa.Table.from_batches(batches[index::n], table.schema))


@both
@given(data=st.data())
@QUICK
def test_by_hash(pair, data):
    keys = data.draw(tables(types=tuple(HASHABLE)))
    names = keys.column_names
    table = keys.append_column("row", pa.array(range(keys.num_rows), pa.int64()))
    batches = data.draw(cuts(table))
    n = data.draw(st.integers(1, 5))
    by = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    got = exchange(
        *pair, emit_all(*batches), n=n, schema=table.schema, selector=hg.HashSelector(by)
    )
    whole = table.combine_chunks().to_batches()
    ids = hash_partition_ids(whole[0], by, n) if whole else pa.array([], pa.uint32())
    for part, expected in zip(got, split_by(table, ids, n), strict=True):
        assert_same(part, expected)
    rows = pa.concat_tables(got).column("row").to_pylist()
    assert sorted(rows) == list(range(table.num_rows))


@both
@given(data=st.data())
@QUICK
def test_by_a_function_and_to_all(pair, data):
    table = data.draw(tables())
    batches = data.draw(cuts(table))
    n = data.draw(st.integers(1, 4))
    chance = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    chosen = [chance.integers(0, n, batch.num_rows) for batch in batches]
    answers = iter(chosen)

    def write(writer):
        for batch in batches:
            writer.emit(batch)
        for batch in batches:
            writer.broadcast_emit(batch)

    got = exchange(*pair, write, n=n, schema=table.schema, selector=lambda _: next(answers))
    ids = pa.array(np.concatenate(chosen), pa.int64())
    for part, expected in zip(got, split_by(table, ids, n), strict=True):
        assert_same(part, pa.concat_tables([expected, table]))


@both
@given(
    records=st.lists(
        st.binary(max_size=50) | st.integers(0, 40_000).map(lambda size: b"x" * size), max_size=30
    ),
    n=st.integers(1, 3),
)
@QUICK
def test_bytes(pair, records, n):
    got = exchange(*pair, emit_all(*records), n=n, serializer="bytes")
    assert got == [records[index::n] for index in range(n)]


@given(table=tables(types=tuple(HASHABLE)), n=st.integers(1, 200))
@QUICK
def test_equal_keys_meet_and_numbers_are_in_range(table, n):
    batches = table.combine_chunks().to_batches()
    if not batches:
        return
    ids = hash_partition_ids(batches[0], table.column_names, n).to_pylist()
    assert all(0 <= number < n for number in ids)
    seen = {}
    keys = zip(*(plain(column) for column in batches[0].columns), strict=True)
    for key, number in zip(keys, ids, strict=True):
        assert seen.setdefault(key, number) == number


def plain(array):
    """Return hashable values, of times as numbers, because Python's types have a smaller range."""
    if pa.types.is_temporal(array.type):
        array = array.view({4: pa.int32(), 8: pa.int64()}[array.type.bit_width // 8])
    return bits(array).to_pylist()
