"""Random schedules of fetchers, queue, wake-ups and pauses lose and repeat no record.

``make schedules`` runs a million of them; a seed that fails once always fails.
"""

from tests.source.run_schedules import run_chunk
from tests.source.schedule import run_schedule

from headgate.source.base import queue as queue_module
from headgate.source.base import reader as reader_module
from headgate.source.base import tasks

#: More schedules than any test below needs to find its bug.
COUNT = 5000


def test_schedules_lose_and_repeat_nothing():
    count, steps, failure = run_chunk(range(COUNT))
    assert failure is None, failure
    assert count == COUNT
    assert steps > 50 * COUNT, "schedules so short show nothing"


def test_a_seed_is_the_same_schedule_again():
    assert [run_schedule(seed) for seed in range(50)] == [run_schedule(seed) for seed in range(50)]


def first_failure(seeds=2000):
    return run_chunk(range(seeds))[2]


# Each test below breaks the code and checks that the schedules find it.


def test_schedules_find_a_dropped_batch(monkeypatch):
    right = tasks.FetchTask.steps

    def steps(self):
        finished = yield from right(self)
        self.records = None
        return finished

    monkeypatch.setattr(tasks.FetchTask, "steps", steps)
    assert first_failure() is not None


def test_schedules_find_a_lost_wake_up(monkeypatch):
    def wake_up_waiting_thread_only(self, thread_index):
        putter = self._putters.get(thread_index)
        if putter is not None and putter in self._waiting:
            putter.woken = True
            putter.parker.unpark()

    kind = queue_module.FutureCompletingBlockingQueue
    monkeypatch.setattr(kind, "wake_up_putting_thread", wake_up_waiting_thread_only)
    assert "waits for ever" in first_failure(4000)


def test_schedules_find_a_future_that_is_not_completed(monkeypatch):
    right = queue_module.FutureCompletingBlockingQueue._make_available

    def forget(self):
        right(self)

    monkeypatch.setattr(queue_module.FutureCompletingBlockingQueue, "_make_available", forget)
    assert "all wait" in first_failure()


def test_schedules_find_a_future_that_stays_done(monkeypatch):
    def poll(self):
        with self._lock:
            element = self._elements.popleft() if self._elements else None
            putter = self._waiting.popleft() if self._waiting else None
        if putter is not None:
            putter.parker.unpark()
        return element

    monkeypatch.setattr(queue_module.FutureCompletingBlockingQueue, "poll", poll)
    assert "busy loop" in first_failure()


def test_schedules_find_an_early_end(monkeypatch):
    def is_idle(self):
        return not self._assigned

    monkeypatch.setattr("headgate.source.base.fetcher.SplitFetcher.is_idle", is_idle)
    assert "end of input" in first_failure()


def test_schedules_find_a_snapshot_of_what_was_not_emitted(monkeypatch):
    right = reader_module.SourceReaderBase.snapshot_state

    def snapshot_state(self, checkpoint_id):
        for state in self._states.values():
            state.position = min(state.end, state.position + 1)
        return right(self, checkpoint_id)

    monkeypatch.setattr(reader_module.SourceReaderBase, "snapshot_state", snapshot_state)
    assert "in a snapshot" in first_failure()
