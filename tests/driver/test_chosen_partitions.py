"""A function that says where rows go: what is no partition number of each row is an error with a code."""

import numpy as np
import pyarrow as pa
import pytest

from headgate.errors import SelectorError
from headgate.spark.plan.shuffle import _chosen

BATCH = pa.record_batch({"n": [1, 2, 3]})


def chosen(made):
    keys = [10, 11, 12]
    return [batch.column(-1).to_pylist() for batch in _chosen(lambda _: made, keys)([BATCH])]


@pytest.mark.parametrize(
    "made", [[0, 2, 1], (0, 2, 1), np.array([0, 2, 1]), pa.array([0, 2, 1], pa.uint8())]
)
def test_numbers_of_any_kind_are_taken(made):
    assert chosen(made) == [[10, 12, 11]]


@pytest.mark.parametrize(
    "made",
    [
        *(None, [None] * 3, [0, None, 1], 3, "abc", ["a"] * 3, [0.0, 1.0, 2.0], [True] * 3),
        *([2**64] * 3, [], [0, 1], [0, 1, 3], [0, 1, -1], object(), pa.nulls(3, pa.int64())),
    ],
)
def test_what_is_no_number_of_each_row_is_refused(made):
    with pytest.raises(SelectorError, match="by returned"):
        chosen(made)
