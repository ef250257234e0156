"""The test kit passes a correct source, and each wrong source fails the test meant for it."""

import pyarrow.compute as pc
import pytest
from tests.source.kit_sources import (
    END,
    Careless,
    EndsEarly,
    FiltersNothing,
    Forgetful,
    LeavesThread,
    LosesFetched,
    NeverWaits,
    NeverWakes,
    RangeSource,
    ReleasesEarly,
    Reorders,
    Repeats,
    SwapsColumns,
    TakesTheEndBack,
    Unpicklable,
    WithReader,
    batch_of,
)

from headgate.errors import StateVersionError
from headgate.source.testing import SourceTestBase


class RangeTests(SourceTestBase):
    num_splits = 4

    def create_source(self):
        return RangeSource()

    def expected_records(self):
        return [batch_of(range(END))]


class TestRightSource(RangeTests):
    """The correct source passes every test."""


def outcomes(source):
    """Return the names of the tests that fail for a source, with their errors."""

    class Tests(RangeTests):
        timeout = 0.3  # For events that never come.

        def create_source(self):
            return source()

    failed = {}
    for name in [name for name in dir(Tests) if name.startswith("test_")]:
        try:
            getattr(Tests(), name)()
        except (AssertionError, TypeError) as error:
            failed[name] = str(error)
    return failed


RESTORED = "test_a_restored_checkpoint_gives_exactly_the_rest"
THE_END = "test_the_end_comes_after_no_more_splits_and_stays"
WAITS = "test_without_splits_it_waits_and_a_split_ends_the_wait"


@pytest.mark.parametrize(
    ("reader", "test", "says"),
    [
        (LosesFetched, RESTORED, "missing"),
        (Repeats, RESTORED, "too much"),
        (EndsEarly, THE_END, "before notify_no_more_splits"),
        (TakesTheEndBack, THE_END, "did not return END_OF_INPUT"),
        (NeverWakes, WAITS, "stayed pending when a"),
        (NeverWaits, WAITS, "busy loop"),
        (Reorders, "test_every_record_comes_once", "another order"),
        (FiltersNothing, "test_a_filter_leaves_no_other_row", "too much"),
        (SwapsColumns, "test_fewer_columns_are_the_same_rows", "schema"),
        (ReleasesEarly, "test_every_record_comes_once", "after it was reported finished"),
    ],
)
def test_a_wrong_reader_fails(reader, test, says):
    failed = outcomes(lambda: WithReader(reader=reader.__name__))
    assert says in failed[test]


def test_a_thread_that_is_left_fails():
    LeavesThread.stop.clear()
    failed = outcomes(lambda: WithReader(reader="LeavesThread"))
    LeavesThread.stop.set()
    assert set(failed) == {"test_close_at_any_moment_leaves_no_thread"}
    assert "left-behind" in failed["test_close_at_any_moment_leaves_no_thread"]


def test_splits_that_are_not_taken_back_fail():
    failed = outcomes(Forgetful)
    assert "missing" in failed["test_splits_of_a_lost_reader_are_read_again"]


def test_a_serializer_that_reads_anything_fails():
    failed = outcomes(Careless)
    assert set(failed) == {"test_the_bytes_of_splits_and_checkpoints_are_versioned"}
    assert "version 1001" in failed["test_the_bytes_of_splits_and_checkpoints_are_versioned"]


def test_a_source_that_cannot_be_pickled_fails():
    assert set(outcomes(Unpicklable)) == {"test_it_is_the_same_after_a_pickle"}


def test_wrong_expectations_fail():
    class TooMany(RangeTests):
        num_splits = 5

        def expected_records(self):
            return batch_of(range(END + 1))

    with pytest.raises(AssertionError, match=r"1 of missing: \(40, 'row 40'\)"):
        TooMany().test_every_record_comes_once()


def test_the_right_source_knows_versions():
    with pytest.raises(StateVersionError):
        RangeSource().split_serializer.deserialize(7, b"{}")


def test_filters_are_made_of_number_columns():
    (expression,) = RangeTests().filters()
    assert str(expression) == str(pc.field("n") > 20)
