"""Random runs of a job: every split is always in one place, the same as in a naive model.

The places are: the enumerator, a registered reader, the stored state of a lost reader, and the
finished splits. A lost reader continues from the last complete checkpoint; the splits assigned to
it since then return to the enumerator.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.kit.coordinator import Bench, ListSource, ListSplit
from tests.kit.leftovers import our_threads

READERS = 3
SPLITS = frozenset(f"s{n}" for n in range(5))
A_READER = st.integers(0, READERS - 1)


def nothing() -> dict[int, set[str]]:
    return {reader: set() for reader in range(READERS)}


@dataclass
class Stored:
    """A checkpoint of the job: the enumerator's bytes, the readers' splits, and finished ones."""

    data: bytes | None = None
    holds: dict[int, set[str]] = field(default_factory=nothing)
    done: dict[int, set[str]] = field(default_factory=nothing)


def copied(sets, turn=0):
    return {(reader + turn) % READERS: set(held) for reader, held in sets.items()}


class Lives(RuleBasedStateMachine):
    """A coordinator, and a model that has the place of every split in sets."""

    def __init__(self):
        super().__init__()
        self.checkpoint_id = 0
        self.stored = Stored()
        self.waiting = set(SPLITS)
        self.begin()

    def begin(self):
        source = ListSource(ListSplit(name) for name in sorted(SPLITS))
        self.bench = Bench(source, READERS).started(checkpoint=self.stored.data)
        self.pending: dict[int, Stored] = {}
        self.there: set[int] = set()
        self.told: set[int] = set()
        self.holds = copied(self.stored.holds)
        self.done = copied(self.stored.done)

    def teardown(self):
        self.bench.close()
        assert self.bench.notes.errors == []
        assert our_threads() == []

    def model_lose(self, reader):
        if reader not in self.there:
            return
        for pending in sorted(self.pending):  # A checkpoint needs every reader.
            self.abort(pending)
        self.there.discard(reader)
        self.told.discard(reader)
        had = self.holds[reader] | self.done[reader]
        self.holds[reader] = set(self.stored.holds[reader])
        self.done[reader] = set(self.stored.done[reader])
        self.waiting |= had - self.holds[reader] - self.done[reader]

    def abort(self, checkpoint_id):
        del self.pending[checkpoint_id]
        self.bench.coordinator.checkpoint_aborted(checkpoint_id)

    @rule(reader=A_READER)
    def register(self, reader):
        self.model_lose(reader)
        self.bench.coordinator.register_reader(reader, "h")
        self.there.add(reader)

    @rule(reader=A_READER, times=st.integers(1, 6), read=st.integers(0, 6))
    def request(self, reader, times, read):
        if reader not in self.there and times > 1:
            self.register(reader)
        for _ in range(times):
            self.bench.notes.told.clear()
            self.bench.coordinator.request_split(reader, None)
            self.bench.settle()
            if reader not in self.there or reader in self.told:
                assert self.bench.notes.told == []
            elif not self.waiting:
                assert self.bench.notes.told == [("no more", reader)]
                self.told.add(reader)
            else:
                ((to, (split,)),) = self.bench.assigned
                assert to == reader
                self.waiting.remove(split)
                self.holds[reader].add(split)

        for pick in range(read):
            self.finish(reader, pick)

    @rule(reader=A_READER, pick=st.integers(0, 100))
    def finish(self, reader, pick):
        held = sorted(self.holds[reader])
        if held:
            split = held[pick % len(held)]
            self.bench.coordinator.splits_finished(reader, [split])
            if reader in self.there:  # A lost reader's report does not count.
                self.holds[reader].remove(split)
                self.done[reader].add(split)

    @rule(is_completed=st.booleans())
    def checkpoint(self, is_completed):
        self.checkpoint_id += 1
        data, error = self.bench.checkpoint(self.checkpoint_id)
        assert error is None
        self.pending[self.checkpoint_id] = Stored(data, copied(self.holds), copied(self.done))
        if is_completed:
            self.complete(len(self.pending) - 1)

    @rule(pick=st.integers(0, 100))
    def complete(self, pick):
        if self.pending:
            checkpoint_id = sorted(self.pending)[pick % len(self.pending)]
            self.stored = self.pending[checkpoint_id]
            self.pending = {i: p for i, p in self.pending.items() if i > checkpoint_id}
            self.bench.coordinator.checkpoint_complete(checkpoint_id)

    @rule(pick=st.integers(0, 100))
    def give_a_checkpoint_up(self, pick):
        if self.pending:
            self.abort(sorted(self.pending)[pick % len(self.pending)])

    @rule(turn=A_READER)
    def restore_all(self, turn):
        """Restart from the stored checkpoint, with the readers' states rotated."""
        self.bench.close()
        assert self.bench.notes.errors == []
        self.stored.holds = copied(self.stored.holds, turn)
        self.stored.done = copied(self.stored.done, turn)
        held = [*self.stored.holds.values(), *self.stored.done.values()]
        self.waiting = set(SPLITS).difference(*held)
        self.begin()

    @invariant()
    def every_split_is_in_one_place(self):
        self.bench.settle()
        assert self.bench.notes.errors == []
        enumerated = [split.name for split in self.bench.source.enumerator.splits]
        assert len(enumerated) == len(set(enumerated))
        assert set(enumerated) == self.waiting
        places = [self.waiting, *self.holds.values(), *self.done.values()]
        assert sum(map(len, places)) == len(SPLITS)
        assert set().union(*places) == SPLITS


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
