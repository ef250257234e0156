"""Random orders of records, barriers and reads: each record is before the snapshot, in flight, or behind.

The model is one list of records per channel. What a reader had processed at its snapshot, the input's
part of the channel state and the output's part of it make up exactly the records that the writer had
emitted before its barrier. What was in flight is read as well, once.
"""

import random
import time

import pytest
from plane import wait_until

import headgate as hg
from headgate import flink

READERS = 2
#: Ms; no test takes as long.
NEVER = 3_600_000


class Writer:
    def __init__(self, number, environment, dice):
        self.number = number
        self.dice = dice
        self.partition = environment.create_result_partition(READERS)
        self.native = hg.RecordWriter(
            self.partition, serializer="bytes", selector=lambda record: record[0]
        )
        self.emitted = [[] for _ in range(READERS)]
        self.barriers = {}
        self.states = {}
        self.newest = 0
        self.finished = False

    def emit(self):
        to = self.dice.randrange(READERS)
        size = self.dice.choice([5, 5, 2_000, 30_000, 150_000])
        text = b"%d.%d." % (self.number, len(self.emitted[to]))
        record = bytes([to]) + text + b"x" * max(0, size - len(text))
        self.native.emit(record)
        self.emitted[to].append(record)

    def send(self, barrier):
        self.take_state()
        self.native.broadcast_barrier(barrier)
        self.newest = barrier.checkpoint_id
        self.barriers[self.newest] = [len(records) for records in self.emitted]

    def cancel(self, checkpoint):
        self.take_state()
        self.native.broadcast_cancellation(checkpoint)
        self.newest = 0

    def take_state(self):
        """Take the state of the newest barrier; True unless it is not decided yet."""
        if not self.newest or self.newest in self.states:
            return True
        state = self.native.take_channel_state(self.newest)
        if state is not None:
            self.states[self.newest] = dict(state)
        return state is not None

    def emitted_before(self, checkpoint, to):
        """Return the records before a barrier; all of them if the writer ended without it."""
        end = self.barriers.get(checkpoint, [None] * READERS)[to]
        return self.emitted[to][:end]


class Reader:
    def __init__(self, number, environment, writers, *, union):
        self.number = number
        addresses = [writer.partition.address(number) for writer in writers]
        if union:
            gates = [environment.create_input_gate([address]) for address in addresses]
            self.gate = flink.UnionInputGate(gates)
        else:
            self.gate = environment.create_input_gate(addresses)
        self.gate.enable_checkpointing()
        self.native = hg.RecordReader(self.gate, serializer="bytes", on_event=self.hear)
        self.processed = [[] for _ in writers]
        self.snapshots = {}
        self.alignments = {}
        self.states = {}
        self.aborted = set()

    def hear(self, event):
        number = event.checkpoint_id
        if isinstance(event, hg.CheckpointBarrier):
            assert number not in self.snapshots
            self.snapshots[number] = [len(records) for records in self.processed]
            self.alignments[number] = event.alignment
        elif isinstance(event, hg.CheckpointComplete):
            assert number in self.snapshots
            assert number not in self.aborted
            self.states[number] = dict(self.native.take_channel_state(number))
            assert bool(self.states[number]) == bool(event.persisted_bytes)
        else:
            assert number not in self.states
            self.aborted.add(number)

    def poll(self, *, data=True):
        record = self.native.poll_next() if data else self.native.poll_priority_event()
        if record is not None:
            writer = int(record[1:].partition(b".")[0])
            self.processed[writer].append(record)
        return record is not None


class World:
    def __init__(self, seed, environment):
        self.dice = random.Random(seed)
        # Many floating buffers move what is in flight from the writers to the readers.
        room = {"memory": "64m", "floating_buffers_per_gate": self.dice.choice([2, 8, 200])}
        self.consumer = environment(**room)
        others = [environment(same_host_link=link, **room) for link in ("off", "auto")]
        homes = [self.consumer, *others]
        self.dice.shuffle(homes)
        self.writers = [Writer(i, home, self.dice) for i, home in enumerate(homes)]
        union = self.dice.random() < 0.3
        self.readers = [Reader(i, self.consumer, self.writers, union=union) for i in range(READERS)]
        self.checkpoint = 0
        self.barrier = None
        self.to_send = []
        self.cancelled = set()
        self.given_up = set()

    def begin(self):
        self.checkpoint += 1
        alignment, timeout = self.dice.choice(
            [("aligned", 0), ("unaligned", 0), ("timeoutable", 3), ("timeoutable", NEVER)]
        )
        timestamp = int(time.time() * 1000)
        self.barrier = hg.CheckpointBarrier(self.checkpoint, timestamp, alignment, timeout)
        self.to_send = [writer for writer in self.writers if not writer.finished]
        self.dice.shuffle(self.to_send)

    def send_next(self):
        writer = self.to_send.pop()
        if writer.finished:
            return
        if self.dice.random() < 0.05:
            self.cancelled.add(self.checkpoint)
            writer.cancel(self.checkpoint)
        else:
            writer.send(self.barrier)

    def step(self):
        acts = (
            self.emit,
            self.read,
            self.flush,
            self.barriers,
            self.pause,
            self.give_up,
            self.close,
        )
        (act,) = self.dice.choices(acts, weights=(40, 40, 6, 9, 2, 0.5, 0.5))
        act()

    def open_writers(self):
        return [writer for writer in self.writers if not writer.finished]

    def emit(self):
        for writer in self.open_writers():
            # Writers and readers share a thread. The overdraft is enough for the rest of a record.
            if writer.native.is_available and self.dice.random() < 0.5:
                writer.emit()

    def read(self):
        reader = self.dice.choice(self.readers)
        for _ in range(self.dice.choice([1, 3, 20])):
            # As a task with full outputs does.
            reader.poll(data=self.dice.random() < 0.7)

    def flush(self):
        for writer in self.open_writers():
            writer.native.flush()
            writer.take_state()

    def barriers(self):
        if self.to_send:
            self.send_next()
        elif self.open_writers():
            self.begin()

    def pause(self):
        time.sleep(0.004)

    def give_up(self):
        if self.checkpoint:
            self.given_up.add(self.checkpoint)
            self.dice.choice(self.readers).gate.abort_checkpoint(self.checkpoint, "given up")

    def close(self):
        if len(self.open_writers()) > 1:
            self.finish(self.dice.choice(self.open_writers()))

    def finish(self, writer):
        writer.native.finish()
        writer.finished = True

    def end(self):
        while self.to_send:
            self.send_next()
        for writer in self.writers:
            if not writer.finished:
                self.finish(writer)

        def drained():
            for reader in self.readers:
                while reader.poll():
                    pass
            return all(reader.native.is_finished for reader in self.readers)

        wait_until(drained)
        assert all(writer.take_state() for writer in self.writers)

    def check(self):
        """Return the alignments of the complete checkpoints, and the records that were in flight."""
        for reader in self.readers:
            emitted = [writer.emitted[reader.number] for writer in self.writers]
            assert reader.processed == emitted
        seen, in_flight = [], 0
        for reader in self.readers:
            last_sent = self.checkpoint not in self.cancelled | self.given_up
            if self.checkpoint and last_sent:
                assert self.checkpoint in reader.states, "it is complete where nobody gave it up"
            for checkpoint, inputs in reader.states.items():
                for channel, writer in enumerate(self.writers):
                    if checkpoint in writer.barriers and checkpoint not in writer.states:
                        continue  # its next barrier came before this one was decided
                    outputs = writer.states.get(checkpoint, {})
                    parts = inputs.get(channel, b"") + outputs.get(reader.number, b"")
                    flying = hg.decode_channel_state(parts, None)
                    done = reader.processed[channel][: reader.snapshots[checkpoint][channel]]
                    expected = writer.emitted_before(checkpoint, reader.number)
                    assert done + flying == expected
                    in_flight += len(flying)
                    if reader.alignments[checkpoint] == "aligned":
                        assert not parts
                seen.append(reader.alignments[checkpoint])
        return seen, in_flight


@pytest.mark.parametrize("seeds", [range(n, n + 10) for n in range(0, 40, 10)], ids=str)
def test_each_record_is_before_the_snapshot_in_flight_or_behind(environment, seeds):
    alignments, in_flight = [], 0
    for seed in seeds:
        made = []

        def make(made=made, **options):
            made.append(environment(**options))
            return made[-1]

        world = World(seed, make)
        for _ in range(250):
            world.step()
        world.end()
        seen, flying = world.check()
        alignments += seen
        in_flight += flying
        for one in made:
            one.close()
    assert {"aligned", "unaligned", "timeoutable"} <= set(alignments)
    assert in_flight > 100
