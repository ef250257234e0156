"""Small batches that a split has at once are handed over together, and nothing of them is lost."""

import random

import pytest
from tests.kit.clock import Clock

from headgate.source.base.split_reader import SplitsAddition
from headgate.source.numbers import NumberSplit
from headgate.source.sequential import Pace, SequentialSplitReader

SPLIT = NumberSplit(0, 10**6)


class Batch:
    """Rows of which only the number counts."""

    def __init__(self, rows):
        self.num_rows = rows


def reader_of(elements, **options):
    """Return a reader of one split, whose elements are numbers of rows, None for a wait, or errors."""

    def opened(_):
        for position, element in enumerate(elements):
            if isinstance(element, Exception):
                raise element
            yield None if element is None else (Batch(element), position)

    reader = SequentialSplitReader(opened, **{"never_waits": True, **options})
    reader.handle_splits_changes(SplitsAddition((SPLIT,)))
    return reader


def fetched(reader):
    """Return the rows of the batches of a fetch, and True if the split has ended."""
    records = reader.fetch()
    rows = []
    if records.next_split() is not None:
        while (record := records.next_record_from_split()) is not None:
            rows.append(record[0].num_rows)
    return rows, bool(records.finished_splits())


def test_small_batches_come_together_up_to_so_many_rows():
    reader = reader_of([100] * 50)
    assert fetched(reader) == ([100] * 41, False)
    assert fetched(reader) == ([100] * 9, True)


def test_a_large_batch_comes_alone():
    reader = reader_of([4096, 5000, 1])
    assert [fetched(reader) for _ in range(3)] == [([4096], False), ([5000], False), ([1], True)]


def test_a_wait_or_a_wake_up_ends_a_fetch():
    reader = reader_of([1, 2, None, 3])
    assert [fetched(reader) for _ in range(2)] == [([1, 2], False), ([3], True)]
    reader = reader_of([1, 2])
    waits = reader._wait_for_work

    def woken():
        split_id = waits()
        reader.wake_up()
        return split_id

    reader._wait_for_work = woken
    assert fetched(reader) == ([1], False)


def test_an_error_comes_behind_the_batches_before_it():
    reader = reader_of([1, 2, ValueError("planned"), 3])
    assert fetched(reader) == ([1, 2], False)
    for _ in range(2):
        with pytest.raises(ValueError, match="planned"):
            reader.fetch()


@pytest.mark.parametrize("never_waits", [True, False])
def test_a_source_that_waits_or_has_a_pace_gets_single_batches(never_waits):
    clock = Clock(0.0)
    pace = {"pace_of": lambda _: Pace(1e9, clock)} if never_waits else {}
    reader = reader_of([1, 2], never_waits=never_waits, **pace)
    for rows in (1, 2):
        assert fetched(reader) == ([rows], False)
        clock.now += 1
    assert fetched(reader) == ([], True)


def test_a_slow_split_gets_single_batches(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr("headgate.source.sequential.time.perf_counter", lambda: next(now))
    reader = reader_of([1, 2])
    assert [fetched(reader) for _ in range(2)] == [([1], False), ([2], False)]


def test_all_elements_come_in_their_order():
    chance = random.Random(3)
    rows = [chance.choice([1, 7, 900, 5000]) for _ in range(300)]
    reader, seen_rows, has_ended = reader_of(rows), [], False
    while not has_ended:
        several, has_ended = fetched(reader)
        seen_rows += several
    assert seen_rows == rows
