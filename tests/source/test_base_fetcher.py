"""One fetcher, stepped by hand: after Flink's SplitFetcherTest and its test of pauses."""

import pytest
from tests.source.base_kit import NumberReader, NumberSplit
from tests.source.simulator import SimThreads, Simulator

from headgate.errors import NotBuiltError, SourceError
from headgate.source.base import (
    FutureCompletingBlockingQueue,
    RecordsBySplits,
    SplitFetcher,
    SplitReader,
    SplitsRemoval,
)
from headgate.source.base.threads import AT_FETCH


class Bench:
    """A fetcher whose thread is the test."""

    def __init__(self, split_reader=None, capacity=2, **options):
        threads = SimThreads(Simulator(0, 0.0))
        self.queue = FutureCompletingBlockingQueue(capacity, threads=threads)
        self.split_reader = split_reader or NumberReader()
        self.errors, self.ended = [], []
        self.fetcher = SplitFetcher(
            0,
            self.queue,
            self.split_reader,
            self.errors.append,
            self.ended.append,
            threads=threads,
            **options,
        )
        self.steps = self.fetcher.steps()

    def step(self, until=None):
        """Advance until it parks without a permit or reaches a kind of wait; None at its end."""
        for wait in self.steps:
            if wait is None:
                continue
            if wait is until or (wait is not AT_FETCH and not wait.permit):
                return wait
            if wait is not AT_FETCH:
                wait.permit = False
        return None

    def polled(self):
        """Return the queued records by split, and the finished splits."""
        batches = []
        while (batch := self.queue.poll()) is not None:
            records = {}
            while (split_id := batch.next_split()) is not None:
                records[split_id] = []
                while (record := batch.next_record_from_split()) is not None:
                    records[split_id].append(record)
            batches.append((records, set(batch.finished_splits())))
        return batches


def test_a_new_fetcher_is_idle_and_tells_nobody():
    bench = Bench()
    assert bench.fetcher.is_idle()
    assert bench.step() is not None, "it waits for a task"
    assert bench.fetcher.is_idle()
    assert not bench.queue.get_availability_future().done()
    assert bench.split_reader.fetches == 0


def test_it_is_not_idle_with_a_task_or_a_split():
    bench = Bench()
    bench.fetcher.add_splits([NumberSplit("a")])
    assert not bench.fetcher.is_idle()
    bench.step(AT_FETCH)
    assert not bench.fetcher.is_idle()
    assert bench.fetcher.assigned_splits() == ["a"]


def test_when_all_splits_are_finished_it_is_idle_and_tells_the_reader():
    bench = Bench(NumberReader(batch=10))
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step()
    assert bench.polled() == [({"a": list(range(10))}, {"a"})]
    future = bench.queue.get_availability_future()
    assert not future.done()
    bench.fetcher.wake_up()
    bench.step()
    assert bench.fetcher.is_idle()
    assert future.done(), "the reader has to see whether that was the end"


def test_a_finished_split_is_given_up_only_when_its_batch_is_in_the_queue():
    bench = Bench(NumberReader(batch=5), capacity=1)
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step()  # The second batch waits for room.
    assert bench.fetcher.assigned_splits() == ["a"]
    bench.fetcher.wake_up()
    bench.step()
    assert bench.fetcher.assigned_splits() == ["a"]
    assert not bench.fetcher.is_idle()
    assert bench.polled() == [({"a": [0, 1, 2, 3, 4]}, set())]
    bench.step()
    assert bench.polled() == [({"a": [5, 6, 7, 8, 9]}, {"a"})]
    assert bench.fetcher.is_idle()


def test_a_put_that_is_woken_keeps_its_batch_and_runs_tasks_first():
    bench = Bench(NumberReader(batch=2), capacity=1)
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step()
    assert bench.split_reader.fetches == 2
    bench.fetcher.add_splits([NumberSplit("b", first=100)])
    bench.step()
    assert len(bench.split_reader.changes) == 2, "b was added while the batch was kept"
    assert bench.split_reader.fetches == 2, "and nothing was fetched meanwhile"
    got = bench.polled()
    while bench.fetcher.assigned_splits():
        bench.step()
        got += bench.polled()
    numbers = [n for records, _ in got for found in records.values() for n in found]
    assert sorted(numbers) == [*range(10), *range(100, 110)]


def test_a_batch_that_came_with_a_wake_up_is_kept_too():
    bench = Bench(NumberReader(batch=2))
    bench.fetcher.add_splits([NumberSplit("a", count=2)])
    bench.step(AT_FETCH)
    bench.split_reader.wake_up = lambda: None  # The fetch returns data all the same.
    bench.fetcher.wake_up()
    for _ in range(2):
        next(bench.steps)
    assert bench.queue.is_empty(), "tasks come before the put"
    bench.step()
    assert bench.polled() == [({"a": [0, 1]}, {"a"})]


def test_a_fetch_that_blocks_is_woken_by_a_task():
    bench = Bench(NumberReader(is_open=False))
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step(AT_FETCH)
    assert not bench.split_reader.woken
    bench.fetcher.add_splits([NumberSplit("b")])
    assert bench.split_reader.woken
    bench.step(AT_FETCH)
    assert set(bench.split_reader.splits) == {"a", "b"}


@pytest.mark.parametrize("ask", ["shutdown", "pause"])
def test_a_fetch_that_blocks_is_woken_by(ask):
    bench = Bench(NumberReader(is_open=False))
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step(AT_FETCH)
    getattr(bench.fetcher, ask)()
    assert bench.split_reader.woken


def test_a_paused_fetcher_does_nothing_until_it_is_resumed():
    bench = Bench(NumberReader(batch=10))
    bench.fetcher.pause()
    bench.fetcher.add_splits([NumberSplit("a")])
    parker = bench.step()
    assert parker is not None
    assert not bench.split_reader.changes, "no task either"
    bench.fetcher.resume()
    assert parker.permit
    bench.step()
    assert bench.polled() == [({"a": list(range(10))}, {"a"})]


def test_a_paused_fetcher_can_be_closed():
    bench = Bench()
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step(AT_FETCH)
    bench.fetcher.pause()
    assert bench.step() is not None
    bench.fetcher.shutdown()
    assert bench.step() is None
    assert (bench.split_reader.closed, bench.errors, len(bench.ended)) == (1, [], 1)


def test_shutdown_ends_a_put_and_gives_its_batch_back():
    recycled = []

    class Counting(NumberReader):
        def fetch(self):
            batch = super().fetch()
            batch.recycle = lambda: recycled.append(batch)
            return batch

    bench = Bench(Counting(batch=2), capacity=1)
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step()
    bench.fetcher.shutdown()
    assert bench.step() is None
    assert len(recycled) == 1
    assert len(bench.polled()) == 1, "what was put is the reader's"


def test_single_splits_are_paused_and_resumed():
    bench = Bench(NumberReader(batch=2), capacity=1)
    bench.fetcher.add_splits([NumberSplit("a"), NumberSplit("b")])
    bench.fetcher.pause_or_resume_splits(["a", "unknown"], [])  # Before "a" was added.
    bench.step()
    bench.step()
    assert bench.split_reader.paused == {"a"}
    assert [set(records) for records, _ in bench.polled()] == [{"b"}]
    bench.fetcher.pause_or_resume_splits([], ["a"])
    bench.step()
    assert bench.split_reader.paused == set()


def test_pausing_only_finished_splits_does_not_reach_the_split_reader():
    bench = Bench(NumberReader(batch=10))
    bench.split_reader.pause_or_resume_splits = None
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step()
    bench.fetcher.pause_or_resume_splits(["a"], [])
    bench.step()
    assert bench.errors == []


class CannotPause(NumberReader):
    pause_or_resume_splits = SplitReader.pause_or_resume_splits


def test_a_split_reader_that_cannot_pause_is_an_error():
    bench = Bench(CannotPause())
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.fetcher.pause_or_resume_splits(["a"], [])
    bench.step()
    (error,) = bench.errors
    assert isinstance(error.__cause__, NotBuiltError)
    assert "CannotPause cannot pause single splits" in str(error.__cause__)


def test_unless_unaligned_splits_are_allowed():
    bench = Bench(CannotPause(), allow_unaligned_splits=True)
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.fetcher.pause_or_resume_splits(["a"], [])
    bench.step()
    assert bench.errors == []
    assert bench.polled()


def test_removed_splits_are_read_no_further():
    bench = Bench(NumberReader(batch=2), capacity=1)
    bench.fetcher.add_splits([NumberSplit("a"), NumberSplit("b")])
    bench.step()
    bench.fetcher.remove_splits(["a", "unknown"])
    bench.step()
    assert bench.fetcher.assigned_splits() == ["b"]
    (removal,) = [c for c in bench.split_reader.changes if isinstance(c, SplitsRemoval)]
    assert [s.split_id for s in removal.splits] == ["a"]
    bench.fetcher.remove_splits(["b"])
    bench.step()
    bench.polled()
    bench.step()
    assert bench.fetcher.is_idle()


def test_an_error_names_splits_keeps_its_cause_and_waits_for_the_reader():
    bench = Bench()
    bench.split_reader.error = OSError("disk gone")
    bench.fetcher.add_splits([NumberSplit(f"s{n}") for n in range(7)])
    assert bench.step() is not None
    (error,) = bench.errors
    assert isinstance(error, SourceError)
    assert error.summary == (
        "NumberReader failed at split s0, s1, s2, s3, s4 and 2 more: OSError: disk gone"
    )
    assert error.details["splits"] == [f"s{n}" for n in range(7)]
    assert isinstance(error.__cause__, OSError)
    assert bench.split_reader.closed == 0, "the reader may be emitting a batch that it owns"
    bench.fetcher.shutdown()
    assert bench.step() is None
    assert (bench.split_reader.closed, len(bench.ended)) == (1, 1)


def test_a_source_error_passes_as_it_is():
    bench = Bench()
    bench.split_reader.error = mine = SourceError("row group 3 of a.parquet is damaged")
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step()
    assert bench.errors == [mine]


def test_a_change_that_fails_names_the_new_split():
    bench = Bench()
    bench.split_reader.handle_splits_changes = None  # Not callable.
    bench.fetcher.add_splits([NumberSplit("new")])
    bench.step()
    assert "failed at split new: TypeError" in bench.errors[0].summary


def test_a_fetch_without_a_batch_is_an_error():
    bench = Bench()
    bench.split_reader.fetch = lambda: None
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step()
    assert "NumberReader.fetch() returned None" in str(bench.errors[0])


def test_errors_of_wake_up_and_close_are_told():
    bench = Bench(NumberReader(is_open=False))
    bench.fetcher.add_splits([NumberSplit("a")])
    bench.step(AT_FETCH)
    bench.split_reader.wake_up = bench.split_reader.close = None
    bench.fetcher.shutdown()
    bench.split_reader.fetch = lambda: RecordsBySplits({})
    assert bench.step() is None
    assert ["TypeError" in e.summary for e in bench.errors] == [True, True]
    assert len(bench.ended) == 1
