"""One fetcher, whose thread is the test or a real one: after Flink's tests of fetchers and their queue."""

import logging
import threading
import time

import pytest
from tests.kit.blocking_reader import TIMEOUT, NumberReader, NumberSplit

from headgate.errors import NotBuiltError, OptionError, SourceError
from headgate.source.base import (
    AVAILABLE,
    RecordsBySplits,
    SplitFetcher,
    SplitReader,
    SplitsRemoval,
)


class SteppedFetcher(SplitFetcher):
    """A fetcher whose thread is the test."""

    def __init__(self, split_reader=None, capacity=2, **options):
        supplied = split_reader or NumberReader()
        super().__init__(lambda: supplied, queue_capacity=capacity, **options)
        self.task = None

    def _start(self):
        return threading.Thread()

    def steps(self, count=1000):
        """Run tasks until there is none, or one would block."""
        for _ in range(count):
            if self.has_ended:
                return
            self.task = self.task or self.next_task()
            if self.task is None or (self.is_at_fetch and not self.split_reader.fetch_returns()):
                return
            task, self.task = self.task, None
            task()

    @property
    def is_at_fetch(self):
        return self._is_fetching()

    @property
    def split_ids(self):
        return list(self._splits)

    def error(self):
        with pytest.raises(SourceError) as caught:
            self.check_errors()
        return caught.value

    def polled(self):
        """Return the queued records by split, and the finished splits."""
        batches = []
        while (batch := self.poll()) is not None:
            records = {}
            while (split_id := batch.next_split()) is not None:
                records[split_id] = []
                while (record := batch.next_record_from_split()) is not None:
                    records[split_id].append(record)
            batches.append((records, set(batch.finished_splits())))
        return batches


@pytest.fixture
def threaded():
    """Makes fetchers with real threads and closes them."""
    fetchers = []

    def make(split_reader, **options):
        fetchers.append(SplitFetcher(lambda: split_reader, **options))
        return fetchers[-1]

    yield make
    for fetcher in fetchers:
        fetcher.close(TIMEOUT)


def fetcher_threads():
    return [t for t in threading.enumerate() if t.name.startswith("headgate-fetcher")]


def wait_for(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


def test_a_new_fetcher_is_idle_and_tells_nobody():
    fetcher = SteppedFetcher()
    assert (fetcher.is_idle, fetcher.is_empty) == (True, True)
    assert fetcher.next_task() is None
    assert not fetcher.available().done()
    assert fetcher.split_reader is None, "it is made with the first split"


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_queue_without_room_is_refused(capacity):
    with pytest.raises(OptionError, match=f"queue_capacity={capacity}"):
        SplitFetcher(NumberReader, queue_capacity=capacity)


def test_it_is_not_idle_with_a_change_or_a_split():
    fetcher = SteppedFetcher(NumberReader(is_open=False))
    fetcher.add_splits([NumberSplit("a")])
    assert not fetcher.is_idle
    fetcher.steps()
    assert fetcher.is_at_fetch
    assert not fetcher.is_idle
    assert fetcher.split_ids == ["a"]


def test_when_all_splits_are_finished_it_is_idle_and_tells_the_reader():
    fetcher = SteppedFetcher(NumberReader(batch=10))
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps()
    assert fetcher.polled() == [({"a": list(range(10))}, {"a"})]
    future = fetcher.available()
    assert not future.done()
    fetcher.remove_splits(["a"])
    fetcher.steps()
    assert fetcher.is_idle
    assert future.done(), "the reader has to see whether that was the end"


def test_a_finished_split_is_given_up_only_when_its_batch_is_in_the_queue():
    fetcher = SteppedFetcher(NumberReader(batch=10))
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps(2)
    assert fetcher.is_empty
    assert not fetcher.is_idle
    fetcher.steps()
    assert (fetcher.is_empty, fetcher.is_idle) == (False, True)


def test_spec_13_07_a_change_ends_the_wait_for_room_and_inserts_nothing():
    fetcher = SteppedFetcher(NumberReader(batch=2), capacity=1)
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps()
    assert fetcher.next_task() is None, "the queue is full"
    fetcher.add_splits([NumberSplit("b", first=100)])
    fetcher.steps()
    assert len(fetcher.split_reader.changes) == 2, "b was added"
    assert fetcher.split_reader.fetches == 1, "and nothing was fetched meanwhile"
    batches = fetcher.polled()
    assert len(batches) == 1
    while not (fetcher.is_idle and fetcher.is_empty):
        fetcher.steps()
        batches += fetcher.polled()
    numbers = [n for records, _ in batches for found in records.values() for n in found]
    assert sorted(numbers) == [*range(10), *range(100, 110)]


def test_spec_13_07_a_wake_up_does_not_disturb_a_batch_that_fits():
    fetcher = SteppedFetcher(NumberReader(batch=2))
    fetcher.add_splits([NumberSplit("a", count=2)])
    fetcher.steps(1)
    assert fetcher.next_task() is not None
    fetcher.split_reader.wake_up = lambda: None  # The fetch returns data all the same.
    fetcher.add_splits([])
    fetcher.task = lambda: fetcher._perform(fetcher._fetch)
    fetcher.steps()
    assert fetcher.polled() == [({"a": [0, 1]}, {"a"})]


def test_spec_13_08_the_future_is_done_exactly_while_there_is_a_batch():
    fetcher = SteppedFetcher(NumberReader(batch=4))
    assert fetcher.poll() is None
    first = fetcher.available()
    assert not first.done()
    assert fetcher.available() is first
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps()
    assert first.done()
    fetcher.poll()
    assert fetcher.available() is AVAILABLE, "one is left"
    fetcher.poll()
    second = fetcher.available()
    assert second is not first
    assert not second.done()


def test_spec_13_08_a_notification_completes_the_future_without_a_batch():
    fetcher = SteppedFetcher()
    future = fetcher.available()
    fetcher.notify_available()
    assert future.done()
    assert fetcher.available() is AVAILABLE
    fetcher.notify_available()
    assert fetcher.poll() is None
    assert not fetcher.available().done(), "a poll that finds nothing takes it back"


def test_one_who_waits_cannot_cancel_the_future_for_others():
    fetcher = SteppedFetcher()
    future = fetcher.available()
    assert not future.cancel()
    fetcher.notify_available()
    assert future.result(0) is None


def test_callbacks_of_the_future_may_poll():
    fetcher = SteppedFetcher(NumberReader(batch=10))
    polled = []
    fetcher.available().add_done_callback(lambda _: polled.append(fetcher.poll()))
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps()
    assert polled != [None]
    assert len(polled) == 1


def test_a_fetch_that_blocks_is_woken_by_a_change():
    fetcher = SteppedFetcher(NumberReader(is_open=False))
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps()
    assert not fetcher.split_reader.woken
    fetcher.add_splits([NumberSplit("b")])
    assert fetcher.split_reader.woken
    fetcher.steps()
    assert set(fetcher.split_reader.splits) == {"a", "b"}


def test_a_batch_that_comes_after_the_end_is_recycled():
    recycled = []

    class Counting(NumberReader):
        def fetch(self):
            batch = super().fetch()
            batch.recycle = lambda: recycled.append(batch)
            return batch

    fetcher = SteppedFetcher(Counting(batch=2))
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps(3)
    fetcher.shut_down()
    fetcher.steps()
    assert len(recycled) == 1
    assert len(fetcher.polled()) == 1, "a queued batch is the reader's"
    assert fetcher.split_reader.closed == 1


def test_single_splits_are_paused_and_resumed():
    fetcher = SteppedFetcher(NumberReader(batch=2), capacity=1)
    fetcher.add_splits([NumberSplit("a"), NumberSplit("b")])
    fetcher.pause_or_resume_splits(["a", "unknown"], [])
    fetcher.steps()
    assert fetcher.split_reader.paused == {"a"}
    assert [set(records) for records, _ in fetcher.polled()] == [{"b"}]
    fetcher.pause_or_resume_splits([], ["a"])
    fetcher.steps()
    assert fetcher.split_reader.paused == set()


def test_pausing_only_finished_splits_does_not_reach_the_split_reader():
    fetcher = SteppedFetcher(NumberReader(batch=10))
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps()
    fetcher.split_reader.pause_or_resume_splits = None
    fetcher.pause_or_resume_splits(["a"], [])
    fetcher.steps()
    fetcher.check_errors()


def test_a_split_reader_that_cannot_pause_refuses_at_once():
    class CannotPause(NumberReader):
        pause_or_resume_splits = SplitReader.pause_or_resume_splits

    strict = SteppedFetcher(CannotPause())
    lenient = SteppedFetcher(CannotPause(), allow_unaligned_splits=True)
    for fetcher in (strict, lenient):
        fetcher.pause_or_resume_splits(["a"], [])  # Nothing runs, so there is no split to pause.
        fetcher.add_splits([NumberSplit("a")])
    with pytest.raises(NotBuiltError, match=r"CannotPause cannot .*"):
        strict.pause_or_resume_splits(["a"], [])
    lenient.pause_or_resume_splits(["a"], [])
    lenient.steps()
    assert lenient.polled()


@pytest.mark.parametrize("allowed", [False, True])
def test_a_split_reader_that_refuses_a_pause_is_an_error_unless_that_is_allowed(allowed):
    class Refuses(NumberReader):
        def pause_or_resume_splits(self, splits_to_pause, splits_to_resume):
            raise NotBuiltError("not this time")

    fetcher = SteppedFetcher(Refuses(), allow_unaligned_splits=allowed)
    fetcher.add_splits([NumberSplit("a")])
    fetcher.pause_or_resume_splits(["a"], [])
    fetcher.steps()
    if allowed:
        fetcher.check_errors()
    else:
        assert isinstance(fetcher.error().__cause__, NotBuiltError)


def test_removed_splits_are_read_no_further():
    fetcher = SteppedFetcher(NumberReader(batch=2), capacity=1)
    fetcher.add_splits([NumberSplit("a"), NumberSplit("b")])
    fetcher.steps()
    fetcher.remove_splits(["a", "unknown"])
    fetcher.steps()
    assert fetcher.split_ids == ["b"]
    (removal,) = [c for c in fetcher.split_reader.changes if isinstance(c, SplitsRemoval)]
    assert [s.split_id for s in removal.splits] == ["a"]
    fetcher.remove_splits(["b"])
    fetcher.steps()
    assert fetcher.is_idle


def test_an_error_names_splits_keeps_its_cause_and_waits_for_the_reader():
    split_reader = NumberReader()
    split_reader.error = OSError("disk gone")
    fetcher = SteppedFetcher(split_reader)
    future = fetcher.available()
    fetcher.add_splits([NumberSplit(f"s{n}") for n in range(7)])
    fetcher.steps()
    error = fetcher.error()
    assert future.done()
    assert error.summary == (
        "NumberReader failed at split s0, s1, s2, s3, s4 and 2 more: OSError: disk gone"
    )
    assert error.details["splits"] == [f"s{n}" for n in range(7)]
    assert isinstance(error.__cause__, OSError)
    assert split_reader.closed == 0, "the reader may be emitting a batch that it owns"
    fetcher.shut_down()
    fetcher.steps()
    assert split_reader.closed == 1


def test_a_source_error_passes_as_it_is():
    split_reader = NumberReader()
    split_reader.error = mine = SourceError("row group 3 of a.parquet is damaged")
    fetcher = SteppedFetcher(split_reader)
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps()
    assert fetcher.error() is mine


def test_a_change_that_fails_names_the_new_split():
    split_reader = NumberReader()
    split_reader.handle_splits_changes = None  # Not callable.
    fetcher = SteppedFetcher(split_reader)
    fetcher.add_splits([NumberSplit("new")])
    fetcher.steps()
    assert "failed at split new: TypeError" in fetcher.error().summary


def test_a_fetch_without_a_batch_is_an_error():
    split_reader = NumberReader()
    split_reader.fetch = lambda: None
    fetcher = SteppedFetcher(split_reader)
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps()
    assert "NumberReader.fetch() returned None" in str(fetcher.error())


def test_the_first_error_is_raised_and_the_later_ones_are_its_notes(caplog):
    fetcher = SteppedFetcher(NumberReader(is_open=False))
    fetcher.add_splits([NumberSplit("a")])
    fetcher.steps()
    fetcher.split_reader.wake_up = fetcher.split_reader.close = None
    with caplog.at_level(logging.WARNING, "headgate.source"):
        fetcher.shut_down()
        fetcher.split_reader.fetch = lambda: RecordsBySplits({})
        fetcher.split_reader.fetch_returns = lambda: True
        fetcher.steps()
    error = fetcher.error()
    assert "TypeError" in error.summary
    assert ["TypeError" in note for note in error.__notes__] == [True]
    assert "a fetcher failed while its reader closed" in caplog.text
    assert fetcher.has_ended


def test_the_thread_starts_with_the_first_split_and_has_a_name(threaded):
    fetcher = threaded(NumberReader(is_open=False), name="7")
    assert fetcher_threads() == []
    fetcher.add_splits([NumberSplit("a")])
    fetcher.add_splits([NumberSplit("b")])
    (thread,) = fetcher_threads()
    assert (thread.name, thread.daemon) == ("headgate-fetcher-7", True)
    wait_for(lambda: list(fetcher._splits) == ["a", "b"])


@pytest.mark.parametrize("where", ["fetch", "room", "split"])
def test_close_ends_a_fetcher_wherever_it_waits(threaded, where):
    split_reader = NumberReader(batch=1, is_open=where != "fetch")
    fetcher = threaded(split_reader, queue_capacity=1)
    fetcher.add_splits([NumberSplit("a", count=0 if where == "split" else 10)])
    reached = {
        "fetch": split_reader.blocked.is_set,
        "room": lambda: not fetcher.is_empty,
        "split": lambda: fetcher.is_idle,
    }
    wait_for(reached[where])
    fetcher.close(TIMEOUT)
    assert fetcher_threads() == []
    assert split_reader.closed == 1
    assert fetcher.is_empty


def test_close_wakes_again_a_split_reader_that_misses_wake_ups(threaded):
    class Deaf(NumberReader):
        heard = 0

        def wake_up(self):
            self.heard += 1
            if self.heard > 3:
                super().wake_up()

    split_reader = Deaf(is_open=False)
    fetcher = threaded(split_reader)
    fetcher.add_splits([NumberSplit("a")])
    assert split_reader.blocked.wait(TIMEOUT)
    fetcher.close(TIMEOUT)
    assert split_reader.heard > 3


def test_close_gives_up_on_a_fetch_that_ignores_wake_ups_and_names_its_split(threaded, caplog):
    class Stuck(NumberReader):
        def wake_up(self):
            pass

    split_reader = Stuck(is_open=False)
    fetcher = threaded(split_reader)
    fetcher.add_splits([NumberSplit("part-7.parquet:3")])
    assert split_reader.blocked.wait(TIMEOUT)
    with caplog.at_level(logging.WARNING, "headgate.source"):
        fetcher.close(0.2)
    assert "Stuck did not return from fetch() within 0.2 s" in caplog.text
    assert "part-7.parquet:3" in caplog.text
    (thread,) = fetcher_threads()
    split_reader.open()  # Once fetch() returns, the thread cleans up.
    thread.join(TIMEOUT)
    assert split_reader.closed == 1
