"""Random schedules of fetchers, queue, wake-ups and pauses lose and repeat no record.

``make schedules`` runs a million of them: ``python -m tests.source.test_schedules [--count N] [--seed N]
[--processes N]``. A seed that fails once always fails.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import random
import time
import traceback
from types import SimpleNamespace

from tests.kit.simulator import Lost, SimFetcher, SimSplit, SimSplitReader, Simulator

from headgate.errors import SourceError
from headgate.source import InputStatus
from headgate.source.base import RecordEmitter, SingleThreadMultiplexSourceReaderBase, SplitFetcher

MORE, NOTHING, END = InputStatus


class Emitter(RecordEmitter):
    def emit_record(self, element, output, split_state):
        output.collect(element)
        split_state.position += 1


class State:
    def __init__(self, split):
        self.position, self.end, self.generation = split.position, split.end, split.generation


class World:
    """The records of all splits: those that exist, that have arrived, and that were emitted."""

    def __init__(self, simulator, totals):
        self.simulator = simulator
        self.totals = totals  # (split id, generation) -> number of records
        self.arrived = dict.fromkeys(totals, 0)
        self.pool = [SimSplit(i, 0, n) for (i, generation), n in totals.items() if not generation]
        self.emitted = dict.fromkeys(totals, 0)
        self.finished = set()
        self.new_life()

    def new_life(self):
        self.batches, self.split_readers = [], []
        self.closing = False
        self.fails_after = None

    def arrive(self):
        late = [key for key, n in self.totals.items() if self.arrived[key] < n]
        if late:
            self.arrived[late[int(self.simulator.rng.random() * len(late))]] += 1
        return bool(late)

    def snapshot(self):
        return dict(self.emitted), set(self.finished), list(self.pool)

    def restore(self, snapshot):
        emitted, finished, pool = snapshot
        self.emitted, self.finished, self.pool = dict(emitted), set(finished), list(pool)


class Output:
    """Checks each record against the expected one; also the output of each split."""

    def __init__(self, world, split_id=None):
        self.world, self.split_id = world, split_id
        self.outputs = {}

    def create_output_for_split(self, split_id):
        return self.outputs.setdefault(split_id, Output(self.world, split_id))

    def release_output_for_split(self, split_id):
        self.outputs.pop(split_id).split_id = None

    def collect(self, record, timestamp=None):
        split_id, generation, number = record
        if split_id != self.split_id:
            raise Lost(f"record {record} went to the output of split {self.split_id}")
        expected = self.world.emitted[split_id, generation]
        if number != expected:
            raise Lost(f"split {split_id}: record {number} came, not {expected}")
        self.world.emitted[split_id, generation] += 1


class Reader(SingleThreadMultiplexSourceReaderBase):
    def __init__(self, world, capacity):
        def supply():
            return SimSplitReader(world)

        super().__init__(supply, Emitter(), SimpleNamespace(index_of_subtask=0))
        self._fetcher = SimFetcher(world.simulator, supply, queue_capacity=capacity)
        self.world = world
        self.generations = {}

    def add_splits(self, splits):
        self.generations.update((s.split_id, s.generation) for s in splits)
        super().add_splits(splits)

    def initialized_state(self, split):
        return State(split)

    def to_split_type(self, split_id, state):
        return SimSplit(split_id, state.position, state.end, state.generation)

    def on_split_finished(self, finished):
        for split_id, state in finished.items():
            key = split_id, self.generations.pop(split_id)
            if self.world.emitted[key] != self.world.totals[key]:
                raise Lost(f"split {split_id} finished after {self.world.emitted[key]} records")
            if state.position != state.end or key in self.world.finished:
                raise Lost(f"split {split_id} finished twice or early")
            self.world.finished.add(key)
            again = split_id, key[1] + 1
            if again in self.world.totals:
                self.world.pool.append(SimSplit(split_id, 0, self.world.totals[again], again[1]))


class Life:
    """One reader from its start, possibly with restored splits, to its end, crash or error."""

    def __init__(self, simulator, world, habits, restored):
        self.simulator, self.world, self.habits = simulator, world, habits
        self.rng = simulator.rng
        simulator.workers.clear()
        world.new_life()
        world.fails_after = habits["fails_after"]
        self.reader = Reader(world, habits["capacity"])
        self.fetcher = self.reader._fetcher
        self.output = Output(world)
        self.waiting, self.in_vain = None, 0
        self.told_no_more = False
        self.to_pause = self.removed = frozenset()
        self.ended = False
        self.saved = (list(restored), world.snapshot())
        self.reader.start()
        if restored:
            self.reader.add_splits(restored)

    def run(self):
        """Return the splits to continue with, or None if all records were read."""
        rng, simulator = self.rng, self.simulator
        limit = simulator.steps + 20_000
        dies_at = rng.random() * self.habits["dies_within"] if self.habits["dies_within"] else None
        turn = 0
        while not self.ended:
            turn += 1
            if dies_at is not None and turn > dies_at:
                self.close()
                self.world.restore(self.saved[1])
                return self.saved[0]
            simulator.steps += 1
            if simulator.steps > limit:
                raise Lost("it goes on for ever")
            try:
                self.somebody_moves()
            except SourceError as error:
                if not isinstance(error.__cause__, OSError):
                    raise
                return self.give_back()
        for _ in range(2):
            if self.reader.poll_next(self.output) is not END:
                raise Lost("the end of input was taken back")
        return self.give_back() if self.removed else self.close()

    def somebody_moves(self):
        """Advance the reader, a fetcher or the world; check that one of them can advance."""
        who = self.rng.random()
        if who < 0.45:
            moved = self.turn()
        elif who < 0.85:
            moved = self.simulator.step_a_fetcher()
        else:
            moved = self.world.arrive()
        if not moved and not self.may_poll() and not self.simulator.step_a_fetcher():
            self.release()

    def give_back(self):
        """Close the reader and return its unfinished splits from a snapshot."""
        self.check_state()
        unfinished = self.reader.snapshot_state(1)
        self.close()
        return unfinished

    def may_poll(self):
        return self.waiting is None or self.waiting.done()

    def turn(self):
        """Take one step in the reader's thread; return True if there was one."""
        if self.rng.random() < self.habits["mail"]:
            self.mail()
            return True
        if not self.may_poll() and self.rng.random() > self.habits["spurious"]:
            return False
        status = self.reader.poll_next(self.output)
        self.waiting = self.reader.is_available() if status is NOTHING else None
        self.in_vain = self.in_vain + 1 if status is NOTHING and self.waiting.done() else 0
        if self.in_vain > 100:
            raise Lost("a busy loop: nothing is available, and the future is done")
        if status is END:
            if self.world.pool or not self.told_no_more:
                raise Lost("end of input before the last split was added")
            left = set(self.reader.generations) - self.removed
            if left:
                raise Lost(f"end of input with splits {left} unfinished")
            self.ended = True
        return True

    def mail(self):
        """Take one of the steps of a task between two polls."""
        calm = (self.add_splits, self.check_and_save, self.tell_no_more)
        wild = (self.pause_splits, self.wake, self.remove)
        kinds = calm + wild if self.habits["disturbs"] else calm
        kinds[int(self.rng.random() * len(kinds))]()

    def add_splits(self):
        pool = self.world.pool
        count = 1 + int(self.rng.random() * len(pool))
        splits = pool[:count]
        del pool[:count]
        if splits:
            self.reader.add_splits(splits)

    def check_and_save(self):
        self.check_state()
        if self.rng.random() < 0.3:
            self.saved = (self.reader.snapshot_state(1), self.world.snapshot())

    def pause_splits(self):
        pause = frozenset(i for i in self.reader.generations if self.rng.random() < 0.4)
        self.reader.pause_or_resume_splits(sorted(pause), sorted(self.to_pause - pause))
        self.to_pause = pause

    def wake(self):
        """Interrupt the fetcher by a change that changes nothing."""
        self.fetcher.remove_splits([])

    def remove(self):
        known = list(self.reader.generations)
        if known and self.habits["removes"]:
            gone = known[int(self.rng.random() * len(known))]
            self.fetcher.remove_splits([gone])
            self.removed |= {gone}

    def tell_no_more(self):
        """Signal no more splits, unless a split may be added again."""
        later = {key for key in self.world.totals if key[1] and key not in self.world.finished}
        here = set(self.reader.generations.items())
        if not self.world.pool and not self.told_no_more and later <= here:
            self.told_no_more = True
            self.reader.notify_no_more_splits()

    def release(self):
        """Remove a reason why nobody can advance; without a reason, a wake-up was lost."""
        if self.world.arrive():
            return
        if self.to_pause:
            self.reader.pause_or_resume_splits([], sorted(self.to_pause))
            self.to_pause = frozenset()
        elif self.world.pool:
            self.reader.add_splits(self.world.pool)
            self.world.pool = []
        elif self.removed and not self.told_no_more:
            self.told_no_more = True  # A removed split never finishes, so it is not added again.
            self.world.totals = {
                k: n for k, n in self.world.totals.items() if not k[1] or k in self.seen()
            }
            self.reader.notify_no_more_splits()
        elif not self.told_no_more:
            self.tell_no_more()
            if not self.told_no_more:
                raise Lost(f"all wait, with splits {self.reader.generations} unfinished")
        else:
            blocked = [w.blocked_at() for w in self.simulator.workers if not w.has_ended]
            raise Lost(f"all wait: the reader for data, the fetcher {blocked}")

    def seen(self):
        return self.world.finished | set(self.reader.generations.items())

    def check_state(self):
        """Compare a snapshot with the emitted records."""
        splits = {s.split_id: s for s in self.reader.snapshot_state(1)}
        if set(splits) != set(self.reader.generations):
            raise Lost(f"a snapshot has splits {set(splits)}")
        if not set(self.output.outputs) <= set(splits):
            raise Lost(f"outputs {set(self.output.outputs)} for splits {set(splits)}")
        for split_id, split in splits.items():
            emitted = self.world.emitted[split_id, split.generation]
            if split.position != emitted:
                raise Lost(f"split {split_id}: {split.position} in a snapshot, emitted {emitted}")

    def close(self):
        self.world.closing = True
        self.reader.close()
        self.reader.close()
        if not all(w.has_ended for w in self.simulator.workers):
            raise Lost("close left a fetcher running")
        if not all(r.closed == 1 for r in self.world.split_readers):
            raise Lost("close left a split reader open")
        if not all(b.recycled == 1 for b in self.world.batches):
            raise Lost("close left a batch that was not given back")
        if not self.fetcher.is_empty:
            raise Lost("close left a batch in the queue")


def run_schedule(seed):
    """Run the schedule of a seed and return the number of its steps.

    Raises:
        AssertionError: a record or batch was lost or repeated, a batch was not recycled, or a
            thread waits for ever.
    """
    rng = random.Random(seed)
    simulator = Simulator(rng.random(), rng.choice([0.0, 0.4, 0.8]))
    disturbs = rng.random() < 0.6
    habits = {
        "capacity": rng.choice([1, 1, 2, 3]),
        "mail": rng.choice([0.05, 0.2, 0.5]),
        "spurious": rng.choice([0.0, 0.0, 0.3]),
        "disturbs": disturbs,
        "removes": disturbs and rng.random() < 0.2,
        "dies_within": rng.choice([0, 30, 120]),
        "fails_after": rng.choice([None, None, None, int(rng.random() * 8)]),
    }
    totals = {(str(i), 0): int(rng.random() * 6) for i in range(1 + int(rng.random() * 4))}
    if rng.random() < 0.3:
        totals["0", 1] = int(rng.random() * 4)  # A split that is added again after its end.
    world = World(simulator, totals)
    left = Life(simulator, world, habits, []).run()
    while left is not None:
        # The next reader runs without a crash, an error or a removal.
        habits.update(dies_within=0, fails_after=None, removes=False)
        left = Life(simulator, world, habits, left).run()
    # Neither side has a split that a removal kept from being added again.
    if {k: n for k, n in world.emitted.items() if n} != {
        k: n for k, n in world.totals.items() if n
    }:
        raise Lost(f"emitted {world.emitted} of {world.totals}")
    return simulator.steps


CHUNK = 5000


def run_chunk(seeds):
    """Return the numbers of schedules and of steps, and the first failure as text, or None."""
    logging.getLogger("headgate.source").setLevel(logging.ERROR)  # Failures in close are intended.
    steps = 0
    for seed in seeds:
        try:
            steps += run_schedule(seed)
        except Exception:  # noqa: BLE001 - reported with its seed
            return seed - seeds.start, steps, f"seed {seed}\n{traceback.format_exc()}"
    return len(seeds), steps, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    end = asked.seed + asked.count
    chunks = [range(a, min(a + CHUNK, end)) for a in range(asked.seed, end, CHUNK)]
    count = steps = 0
    started = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for done, taken, failure in pool.imap_unordered(run_chunk, chunks):
            count, steps = count + done, steps + taken
            if failure is not None:
                raise SystemExit(f"{failure}\nagain: --seed <that one> --count 1 --processes 1")
    took = time.monotonic() - started
    print(
        f"{count:,} schedules of {steps:,} steps, seeds {asked.seed} to {end - 1}, "
        f"nothing lost or repeated, {took:.0f} s in {asked.processes} processes"
    )


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


if __name__ == "__main__":
    main()
