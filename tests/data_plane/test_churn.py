"""Readers and writers made, used and dropped mid-stream in random order leave nothing behind.

Runs 30 rounds of 100. ``HEADGATE_TEST_FAULTS=full`` runs 1000 rounds and prints figures.
``HEADGATE_TEST_CHURN_SEED`` runs one seed.
"""

import gc
import os
import random
import secrets
from pathlib import Path
from typing import NamedTuple

import pytest
from plane import NUMBERS, numbers, wait_until

import headgate as hg

FULL = os.environ.get("HEADGATE_TEST_FAULTS") == "full"
ROUNDS = 1000 if FULL else 30
#: Readers and writers of one round.
OBJECTS = 100
SEED = int(os.environ.get("HEADGATE_TEST_CHURN_SEED", secrets.randbits(32)))
#: Growth of resident memory that is allowed after the first rounds: allocators settle, leaks grow.
GROWTH = 32 << 20


class Writing:
    """A partition and its writer."""

    def __init__(self, dice, environment):
        self._dice = dice
        self.serializer = dice.choice(["arrow", "bytes"])
        self.subpartitions = dice.randrange(1, 4)
        schema = NUMBERS if self.serializer == "arrow" else None
        kind = dice.choice(["pipelined", "pipelined_bounded", "hybrid", "blocking"])
        self.partition = environment.create_result_partition(
            self.subpartitions, schema=schema, kind=kind
        )
        self._takes_barriers = kind.startswith("pipelined")
        self.writer = hg.RecordWriter(self.partition, schema, serializer=self.serializer)

    def use(self):
        what = self._dice.randrange(8)
        if what == 0:
            self.writer.flush()
        elif what == 1:
            self.writer.broadcast_event("event", bytes(self._dice.randrange(100)))
        elif what == 2 and self._takes_barriers:
            timeoutable = self._dice.random() < 0.5
            self.writer.broadcast_event("barrier", is_barrier=True, is_timeoutable=timeoutable)
        elif what == 3 and self._takes_barriers:
            self.writer.broadcast_event("urgent", is_priority=True)
        elif self.writer.is_available:
            # Needs at most one more segment, which is_available has found free: this must not block.
            size = self._dice.randrange(1, 500)
            self.writer.emit(numbers(size) if self.serializer == "arrow" else bytes(4 * size))

    def drop(self):
        how = self._dice.randrange(4)
        if how == 0:
            self.writer.finish()
        elif how == 1:
            self.writer.fail("dropped")
        elif how == 2:
            self.partition.close()


class Reading:
    """A gate and its reader."""

    def __init__(self, dice, environment, writings):
        self._dice = dice
        self.serializer = dice.choice(writings).serializer
        self._writings = [one for one in writings if one.serializer == self.serializer]
        self._gate = environment.create_input_gate(sealed=False, unknown=dice.randrange(2))
        for _ in range(dice.randrange(3)):
            self._gate.add_channel(self._address())
        schema = NUMBERS if self.serializer == "arrow" else None
        self._reader = hg.RecordReader(
            self._gate, schema=schema, serializer=self.serializer, on_event=self._handle
        )
        self._kept = []

    def _address(self):
        writing = self._dice.choice(self._writings)
        return writing.partition.address(self._dice.randrange(writing.subpartitions))

    def _handle(self, event):
        if isinstance(event, hg.EventAnnouncement):
            if self._dice.random() < 0.5:
                self._gate.convert_to_priority(event.channel, event.sequence_number)
        elif event.name == "barrier" and self._dice.random() < 0.8:
            self._gate.resume_consumption(event.channel)

    def use(self):
        what = self._dice.randrange(12)
        if what == 0:
            self._gate.add_channel(self._address())
        elif what == 1 and self._gate.num_channels:
            self._gate.update_channel(0, self._address())
        elif what == 2:
            self._gate.seal()
        elif (record := self._reader.poll_next()) is not None and self._dice.random() < 0.3:
            self._kept.append(record)

    def drop(self):
        if self._dice.random() < 0.5:
            self._dice.choice([self._reader, self._gate]).close()


def play(dice, environments, tight):
    """Run one round: use and drop readers and writers in random order.

    Writers have enough segments, because none may wait for a reader of this thread. A third of the
    readers have too few.
    """
    writings = [Writing(dice, environment) for environment in environments]
    live = list(writings)
    partitions = [one.partition for one in writings]
    to_come = OBJECTS - len(live)
    used = refused = 0
    while live:
        at = dice.randrange(len(live))
        what = dice.random()
        try:
            if to_come and what < 0.2:
                to_come -= 1
                if dice.random() < 0.5:
                    writings.append(Writing(dice, dice.choice(environments)))
                    partitions.append(writings[-1].partition)
                    live.append(writings[-1])
                else:
                    live.append(Reading(dice, dice.choice([*environments, tight]), writings))
            elif what < 0.3:
                live.pop(at).drop()
            else:
                used += 1
                live[at].use()
        except hg.HeadgateError:
            # The other end was dropped, or the pool is exhausted. Neither may leak.
            refused += 1
    for partition in partitions:
        partition.close()
    return used, refused


def held(environments):
    """Return the segments that are in use although every reader and writer was dropped."""
    gc.collect()
    names = ("held", "pinned", "reserved", "local_pools")
    stats = [environment.stats() for environment in environments]
    segments = [one["segments"][name] for one in stats for name in names]
    return [*segments, *(len(one["gates"]) + len(one["partitions"]) for one in stats)]


class Count(NamedTuple):
    """Return the resources of this process; memory in bytes."""

    descriptors: int
    threads: int
    memory: int


def count():
    return Count(
        len(list(Path("/proc/self/fd").iterdir())),
        len(list(Path("/proc/self/task").iterdir())),
        int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    )


@pytest.mark.soak
@pytest.mark.timeout(3600 if FULL else 120)
def test_readers_and_writers_dropped_mid_stream_leave_nothing(environment):
    print(f"HEADGATE_TEST_CHURN_SEED={SEED}")
    dice = random.Random(SEED)
    environments = [environment(memory="64m", segment_size="16k") for _ in range(2)]
    tight = environment(memory="640k", segment_size="16k")
    used = refused = 0
    for turn in range(ROUNDS):
        more = play(dice, environments, tight)
        used, refused = used + more[0], refused + more[1]
        wait_until(lambda: not any(held([*environments, tight])))
        if turn == ROUNDS // 10:
            settled = count()
    end = count()
    print(f"{ROUNDS} rounds, {used} uses, {refused} refused; descriptors, threads, bytes resident:")
    print(f"  {settled} after {ROUNDS // 10 + 1} rounds, {end} at the end")
    assert used > 2 * ROUNDS * OBJECTS
    assert end.descriptors <= settled.descriptors + 8
    assert end.threads <= settled.threads + 2
    assert end.memory <= settled.memory + GROWTH
