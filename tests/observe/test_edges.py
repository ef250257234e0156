"""The matrix of bytes per edge: sums of neighbours, at most 64 x 64."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.observe.edges import MOST, folded, matrix

SIZES = st.lists(st.integers(0, 1 << 60), min_size=1, max_size=300)


def test_a_small_matrix_is_as_it_is():
    rows = [(2, *folded([5, 6, 0])), (0, *folded([1, 2, 3]))]
    assert matrix(rows) == {
        "producers": [0, 2],
        "consumers": [0, 1, 2],
        "producers_each": 1,
        "consumers_each": 1,
        "bytes": [[1, 2, 3], [5, 6, 0]],
    }


def test_without_a_row_there_is_none():
    assert matrix([]) is None
    assert matrix([(0, 1, [])]) is None


def test_rows_of_the_same_number_are_added_up():
    assert matrix([(1, 1, [1, 2]), (1, 1, [10, 20])])["bytes"] == [[11, 22]]


def test_a_row_of_another_length_is_left_out():
    found = matrix([(0, 1, [1, 2]), (1, 1, [1, 2, 3]), (2, 1, [5, 5]), (3, 2, [9, 9])])
    assert (found["producers"], found["bytes"]) == ([0, 2], [[1, 2], [5, 5]])


@pytest.mark.parametrize(("tasks", "each"), [(64, 1), (65, 2), (128, 2), (129, 4), (8000, 128)])
def test_the_neighbours_of_many_consumers_are_added_up(tasks, each):
    found, sums = folded([1] * tasks)
    assert found == each
    assert len(sums) <= MOST
    assert sum(sums) == tasks


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(st.integers(0, 20_000), st.none(), min_size=1, max_size=100),
    SIZES,
)
def test_no_byte_is_lost_and_each_is_where_a_naive_model_puts_it(numbers, sizes):
    rows = {number: [size + number for size in sizes] for number in numbers}
    found = matrix([(number, *folded(row)) for number, row in rows.items()])
    assert len(found["producers"]) <= MOST
    assert len(found["consumers"]) <= MOST
    for i, first in enumerate(found["producers"]):
        for j, column in enumerate(found["consumers"]):
            assert found["bytes"][i][j] == sum(
                row[k]
                for number, row in rows.items()
                if first <= number < first + found["producers_each"]
                for k in range(column, min(len(sizes), column + found["consumers_each"]))
            )
    assert sum(map(sum, found["bytes"])) == sum(map(sum, rows.values()))
