"""Sketches of distinct values: their error, their types, and that merging them in any way gives the same."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.stream.windows.hyperloglog import MergedSketches, estimates, sketches_of

MERGED = MergedSketches()


def sketch_of(values):
    sketches = sketches_of(values)
    _, sketch = MERGED.of_groups(np.zeros(len(sketches), np.int64), sketches)
    return sketch


@pytest.mark.parametrize("of", [pa.int64(), pa.string(), pa.float64()], ids=str)
@pytest.mark.parametrize("number", [1, 7, 100, 3_000, 20_000, 300_000])
def test_the_error_is_that_of_the_paper(of, number):
    errors = []
    for seed in range(8):
        values = pa.array(np.arange(number) + seed * 10**8).cast(of)
        errors.append(estimates(sketch_of(values))[0].as_py() / number - 1)
    standard = 1.04 / 4096**0.5
    assert np.sqrt(np.mean(np.square(errors))) < 2 * standard
    assert max(map(abs, errors)) < 4 * standard


def test_nothing_is_zero():
    assert estimates(pa.array([[], None], sketches_of(pa.array([1])).type)).to_pylist() == [0, 0]
    assert len(sketch_of(pa.array([], pa.int64()))) == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 40)), max_size=60),
    st.integers(0, 60),
)
def test_sketches_are_merged_in_any_order(rows, cut):
    """A sketch of groups of sketches is that of all values; each value counts once."""
    groups = np.array([group for group, _ in rows], np.int64)
    sketches = sketches_of(pa.array([value for _, value in rows], pa.int64()))
    present, whole = MERGED.of_groups(groups, sketches)
    parts = [
        MERGED.of_groups(
            groups[part], sketches.filter(pa.array(np.isin(np.arange(len(rows)), part)))
        )
        for part in (np.arange(len(rows))[:cut], np.arange(len(rows))[cut:])
    ]
    joined = MERGED.of_groups(
        np.concatenate([groups for groups, _ in parts]),
        pa.concat_arrays([sketches for _, sketches in parts]),
    )
    assert joined[0].tolist() == present.tolist() == sorted(set(groups.tolist()))
    assert joined[1].to_pylist() == whole.to_pylist()
    distinct = [len({v for g, v in rows if g == group and v is not None}) for group in present]
    assert estimates(whole).to_pylist() == distinct
    twice = MERGED(whole, whole)
    assert twice.to_pylist() == whole.to_pylist()


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False, True, None]),
        pa.array([0.0, -0.0, float("nan"), -float("nan"), None]),
        pa.array(["", "a", "a", "ab", "aaaaaaaaa", "aaaaaaaa", None]),
        pa.array([b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 9]),
        pa.array(["x", "y"], pa.large_string()),
        pa.array([datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]),
        pa.array([1, 2, 200], pa.uint8()),
        pa.array([1.5, 2.5], pa.float16()),
    ],
    ids=lambda values: str(values.type),
)
def test_values_of_any_type(values):
    distinct = set(map(str, values.to_pylist())) - {"None", "-0.0"}
    for rows in (values, pa.concat_arrays([values, values]).slice(1, len(values))):
        assert estimates(sketch_of(rows))[0].as_py() == len(distinct)
