"""Random schedules of fetchers, queue, wake-ups and pauses lose and repeat no record.

``make schedules`` runs a million of them; a seed that fails once always fails.
"""

from tests.source.run_schedules import run_chunk
from tests.source.schedule import run_schedule

from headgate.source.base import SingleThreadMultiplexSourceReaderBase, SplitFetcher

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
    right = SplitFetcher._fetch

    def fetch(self):
        right(self)
        if self._is_closed or self._changes:
            self._fetched = None

    monkeypatch.setattr(SplitFetcher, "_fetch", fetch)
    assert first_failure() is not None


def test_schedules_find_a_lost_wake_up(monkeypatch):
    right = SplitFetcher._interrupt

    def interrupt(self, is_fetching):
        if not is_fetching:
            right(self, is_fetching)

    monkeypatch.setattr(SplitFetcher, "_interrupt", interrupt)
    assert "blocks in fetch()" in first_failure()


def test_schedules_find_a_poll_that_does_not_tell_of_room(monkeypatch):
    right = SplitFetcher.poll

    def poll(self):
        wake, self._wake = self._wake, lambda: None
        batch, self._wake = right(self), wake
        return batch

    monkeypatch.setattr(SplitFetcher, "poll", poll)
    assert "all wait" in first_failure()


def test_schedules_find_a_future_that_is_not_completed(monkeypatch):
    right = SplitFetcher._make_available

    def forget(self):
        right(self)

    monkeypatch.setattr(SplitFetcher, "_make_available", forget)
    assert "all wait" in first_failure()


def test_schedules_find_a_future_that_stays_done(monkeypatch):
    right = SplitFetcher.poll

    def poll(self):
        was_available = self._is_available
        batch = right(self)
        self._is_available = was_available
        return batch

    monkeypatch.setattr(SplitFetcher, "poll", poll)
    assert "busy loop" in first_failure()


def test_schedules_find_an_early_end(monkeypatch):
    def is_idle(self):
        return not self._splits

    monkeypatch.setattr(SplitFetcher, "_is_idle", is_idle)
    assert "end of input" in first_failure()


def test_schedules_find_a_snapshot_of_what_was_not_emitted(monkeypatch):
    right = SingleThreadMultiplexSourceReaderBase.snapshot_state

    def snapshot_state(self, checkpoint_id):
        for state in self._states.values():
            state.position = min(state.end, state.position + 1)
        return right(self, checkpoint_id)

    monkeypatch.setattr(SingleThreadMultiplexSourceReaderBase, "snapshot_state", snapshot_state)
    assert "in a snapshot" in first_failure()
