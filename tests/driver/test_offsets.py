"""Offsets of a streaming query survive Spark's log, and other values are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from headgate.errors import StateVersionError
from headgate.spark.datasource.offsets import Offset, StoredSplit

splits = st.builds(StoredSplit, st.integers(0, 9), st.text(max_size=20), st.binary(max_size=40))
offsets = st.builds(
    Offset,
    st.integers(0, 1 << 40),
    st.none() | st.binary(min_size=1, max_size=60),
    st.lists(splits, max_size=5).map(tuple),
    st.lists(splits, max_size=5).map(tuple),
)


@given(offsets)
def test_an_offset_survives_the_log(offset):
    assert Offset.from_dict(json.loads(json.dumps(offset.to_dict()))) == offset


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"version": 1},
        {"version": 1, "number": 0, "checkpoint": "!", "splits": [], "pending": []},
        {"version": 1, "number": "x", "checkpoint": "", "splits": [], "pending": []},
        {"version": 1, "number": 1, "checkpoint": "", "splits": [[1, "a"]], "pending": []},
        {"index": 3},
        None,
    ],
)
def test_what_is_no_offset_is_refused(stored):
    with pytest.raises(StateVersionError, match="Headgate did not write"):
        Offset.from_dict(stored)


def test_another_version_is_named():
    with pytest.raises(StateVersionError, match="another version") as caught:
        Offset.from_dict({**Offset().to_dict(), "version": 2})
    assert caught.value.asked == "an offset of version 2"
