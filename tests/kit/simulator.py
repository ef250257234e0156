"""A simulator that runs a reader, its fetchers and their input step by step in one thread.

It runs the code of headgate.source.base itself, and takes the place of the fetcher's thread: it calls
next_task(), and then the task. It also makes the lock, and may advance the fetcher before the reader acquires
it. So every order of the critical sections can happen, and the same seed gives the same order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from headgate.source.base import SplitFetcher


@dataclass(frozen=True)
class SimSplit:
    """Numbers from ``position`` to ``end``; ``generation`` counts the additions of the same id."""

    split_id: str
    position: int
    end: int
    generation: int = 0


class Lost(AssertionError):
    """An invariant is broken: a loss, a repetition, a leak, or a wait without end."""


class SimLock:
    __slots__ = ("held", "simulator")

    def __init__(self, simulator):
        self.simulator = simulator
        self.held = False

    def __enter__(self):
        self.simulator.gap()
        if self.held:
            raise Lost("the lock is taken twice")
        self.held = True
        self.simulator.held += 1

    def __exit__(self, *exc):
        self.held = False
        self.simulator.held -= 1


class SimFetcher(SplitFetcher):
    """A fetcher whose thread is the simulator; it is its own thread."""

    def __init__(self, simulator, *args, **options):
        super().__init__(*args, **options)
        self.simulator = simulator
        self._lock = SimLock(simulator)
        self.task = None
        self.is_waiting = False

    def _start(self):
        self.simulator.workers.append(self)
        return self

    def is_runnable(self):
        if self.has_ended:
            return False
        if self.is_waiting:
            return not self._wake_ups.empty()
        return not (self.task and self._is_fetching()) or self.split_reader.fetch_returns()

    def step(self):
        simulator = self.simulator
        simulator.steps += 1
        simulator.in_fetcher = True
        try:
            if self.is_waiting:
                self._wake_ups.get_nowait()
                self.is_waiting = False
            elif self.task is None:
                self.task = self.next_task()
                self.is_waiting = self.task is None
            else:
                task, self.task = self.task, None
                task()
        finally:
            simulator.in_fetcher = False

    def join(self, timeout):
        while timeout and not self.has_ended:
            if not self.is_runnable():
                raise Lost(f"close waits for ever for a fetcher that {self.blocked_at()}")
            self.step()

    def is_alive(self):
        return not self.has_ended

    def blocked_at(self):
        return "waits for a wake-up" if self.is_waiting else "blocks in fetch()"


class Simulator:
    """The scheduler, which picks the next worker that can advance."""

    def __init__(self, seed, eagerness):
        self.rng = random.Random(seed)
        #: Probability that fetchers run before the reader acquires a lock.
        self.eagerness = eagerness
        self.workers = []
        self.in_fetcher = False
        self.held = 0
        self.steps = 0

    def gap(self):
        """Advance fetchers if the caller is the reader; a fetcher's own gaps are its yields."""
        if self.in_fetcher or self.held:
            return
        while self.rng.random() < self.eagerness and self.step_a_fetcher():
            pass

    def step_a_fetcher(self):
        runnable = [w for w in self.workers if w.is_runnable()]
        if not runnable:
            return False
        runnable[int(self.rng.random() * len(runnable))].step()
        return True


class SimBatch:
    """RecordsWithSplitIds that fails if it is used after its memory was freed."""

    def __init__(self, split_reader, records, finished):
        self.split_reader = split_reader
        self.records = list(records.items())
        self.finished = frozenset(finished)
        self.at_split = -1
        self.at_record = 0
        self.recycled = 0

    def check(self):
        if self.recycled:
            raise Lost("a batch was used after it was recycled")
        if self.split_reader.closed and not self.split_reader.world.closing:
            raise Lost("a batch was used after its split reader was closed")

    def next_split(self):
        self.check()
        self.at_split += 1
        self.at_record = 0
        return self.records[self.at_split][0] if self.at_split < len(self.records) else None

    def next_record_from_split(self):
        self.check()
        records = self.records[self.at_split][1]
        if self.at_record == len(records):
            return None
        self.at_record += 1
        return records[self.at_record - 1]

    def finished_splits(self):
        self.check()
        return self.finished

    def recycle(self):
        if self.recycled:
            raise Lost("a batch was recycled twice")
        self.recycled += 1


class SimSplitReader:
    """Blocks in fetch() until data arrives or a wake-up; a batch has one split or several."""

    def __init__(self, world):
        self.world = world
        self.simulator = world.simulator
        self.splits = {}
        self.paused = set()
        self.woken = False
        self.closed = 0
        world.split_readers.append(self)

    def ready(self, split_id):
        split = self.splits[split_id]
        arrived = self.world.arrived[split_id, split.generation]
        return split_id not in self.paused and (arrived > split.position or arrived == split.end)

    def fetch_returns(self):
        return self.woken or any(self.ready(i) for i in self.splits)

    def fetch(self):
        if self.closed:
            raise Lost("fetch() after close()")
        if self.world.fails_after is not None:
            self.world.fails_after -= 1
            if self.world.fails_after < 0:
                raise OSError("the disk is gone")
        rng, records, finished = self.simulator.rng, {}, []
        woken, self.woken = self.woken, False
        for split_id in list(self.splits):
            if not self.ready(split_id) or (rng.random() < 0.3 and (records or woken)):
                continue
            split = self.splits[split_id]
            arrived = self.world.arrived[split_id, split.generation]
            until = split.position + int(rng.random() * (arrived - split.position + 1))
            if until > split.position or rng.random() < 0.2:
                records[split_id] = [
                    (split_id, split.generation, n) for n in range(split.position, until)
                ]
            if until == split.end and rng.random() < 0.7:
                finished.append(split_id)
                del self.splits[split_id]
                self.paused.discard(split_id)
            else:
                self.splits[split_id] = SimSplit(split_id, until, split.end, split.generation)
        batch = SimBatch(self, records, finished)
        self.world.batches.append(batch)
        return batch

    def handle_splits_changes(self, change):
        for split in change.splits:
            if type(change).__name__ == "SplitsRemoval":
                self.splits.pop(split.split_id, None)
                self.paused.discard(split.split_id)
            elif split.split_id in self.splits:
                raise Lost(f"split {split.split_id} was added twice")
            else:
                self.splits[split.split_id] = split

    def pause_or_resume_splits(self, to_pause, to_resume):
        self.paused |= {s.split_id for s in to_pause if s.split_id in self.splits}
        self.paused -= {s.split_id for s in to_resume}

    def wake_up(self):
        self.simulator.gap()  # The wake-up may come late.
        self.woken = True

    def close(self):
        if self.closed:
            raise Lost("a split reader was closed twice")
        self.closed += 1
