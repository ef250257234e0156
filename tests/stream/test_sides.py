"""Two streams in one exchange, and the search for matches among rows in state."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.source import MAX_WATERMARK, MIN_WATERMARK
from headgate.stream.operators.sides import SideOperator, sides_of
from headgate.stream.runtime.chain import delayed
from headgate.stream.state.rows import Matches, _codes, is_sorted

FIRST = pa.schema(
    [
        ("name", pa.string()),
        ("id", pa.int64()),
        pa.field("size", pa.int64(), nullable=False),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
    ]
)
SECOND = pa.schema(
    [
        ("of", pa.int64()),
        ("price", pa.float64()),
        ("text", pa.string()),
        ("more", pa.string()),
        ("place", pa.struct([pa.field("x", pa.int32(), nullable=False)])),
    ]
)


def packed(sides, side, batch):
    """Return the rows of one side on their way."""
    emitted = []

    class Context:
        def emit(self, rows, output):
            rows.validate(full=True)
            emitted.append(rows)

    operator = SideOperator(side, sides)
    operator.open(Context())
    operator.process(batch)
    operator.process(batch.slice(0, 1))
    assert emitted[1].equals(emitted[0].slice(0, 1))
    return emitted[0]


def test_rows_of_both_sides_come_back_as_they_were():
    sides = sides_of(FIRST, ["id"], SECOND, ["of"])
    # Columns of one type share one on the way; side and key are two more.
    assert len(sides.schema) == 2 + 4 + 3
    first = pa.RecordBatch.from_pylist(
        [
            {"name": "a", "id": 1, "size": 3, "tags": ["x", None], "kind": "k"},
            {"name": None, "id": None, "size": 4, "tags": None, "kind": None},
        ],
        schema=FIRST,
    )
    second = pa.RecordBatch.from_pylist(
        [{"of": 1, "price": 0.5, "text": "b", "more": None, "place": {"x": 1}}] * 3, schema=SECOND
    )
    ways = [packed(sides, 0, first), packed(sides, 1, second)]
    assert [list(sides.split(way)) for way in ways] == [[(0, first)], [(1, second)]]
    mixed = pa.concat_batches([ways[1].slice(0, 1), ways[0], ways[1].slice(1)])
    (_, of_first), (_, of_second) = sides.split(mixed)
    assert of_first.to_pylist() == first.to_pylist()
    assert of_second.to_pylist() == second.to_pylist()
    assert of_first.schema.equals(FIRST)
    assert mixed.column(1).to_pylist() == [1, 1, None, 1, 1]


def test_a_side_without_keys_has_nulls_for_them():
    second = pa.RecordBatch.from_pylist([{"of": 1}], schema=SECOND.remove(4))
    sides = sides_of(FIRST, ["id"], SECOND.remove(4), [])
    way = packed(sides, 1, second)
    assert way.column(1).null_count == 1
    assert list(sides.split(way)) == [(1, second)]


@settings(max_examples=100, deadline=None)
@given(
    stretches=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=6),
    most=st.integers(1, 9),
)
def test_pairs_in_parts_are_those_at_once(stretches, most):
    begins = np.array([begin for begin, _ in stretches], np.int64)
    counts = np.array([count for _, count in stretches], np.int64)
    elements = np.arange(16) * 10
    expected = [
        (row, (begin + at) * 10)
        for row, (begin, count) in enumerate(stretches)
        for at in range(count)
    ]
    parts = list(Matches(begins, counts, elements).parts(most))
    assert all(len(rows) <= most for rows, _ in parts)
    pairs = [pair for rows, others in parts for pair in zip(rows, others, strict=True)]
    assert pairs == expected


@pytest.mark.parametrize("far", [1 << 61, 1000])
def test_times_far_apart_are_searched_as_others(far):
    owners, times = np.array([0, 0, 1, 1]), np.array([-far, 7, 7, far])
    rows = np.array([0, 0, 1, 1, 1])
    first, last = np.array([-far, 8, 0, far, 9]), np.array([7, far, 7, far, 8])
    codes, begins, ends = _codes(owners, times, rows, first, last, 2)
    assert is_sorted(codes)
    counts = np.searchsorted(codes, ends) - np.searchsorted(codes, begins)
    assert np.maximum(counts, 0).tolist() == [2, 0, 1, 1, 0]


def test_the_first_and_the_last_watermark_are_never_late():
    assert delayed(100, 30) == 70
    assert delayed(MIN_WATERMARK, 30) == MIN_WATERMARK
    assert delayed(MAX_WATERMARK, 30) == MAX_WATERMARK
