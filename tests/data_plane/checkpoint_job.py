"""A task that reads several writers of a gate with checkpoints, and what it heard."""

import time

from plane import wait_until

import headgate as hg
from headgate import flink

LONG = 3_600_000


def now():
    return int(time.time() * 1000)


def barrier(number, alignment="aligned", **fields):
    return hg.CheckpointBarrier(number, now(), alignment, **fields)


class Job:
    """Writers, a task that reads all of them by polling, and what it read and heard."""

    def __init__(self, link, writers=2, *, union=False, after_finish=True, **reader):
        self.producer, self.consumer = link()
        partitions = [self.producer.create_result_partition(1) for _ in range(writers)]
        self.writers = [hg.RecordWriter(one, serializer="bytes") for one in partitions]
        addresses = [one.address(0) for one in partitions]
        if union:
            gates = [self.consumer.create_input_gate([address]) for address in addresses]
            self.gate = flink.UnionInputGate(gates)
        else:
            self.gate = self.consumer.create_input_gate(addresses)
        self.gate.enable_checkpointing(after_finish=after_finish)
        self.got = []
        self.triggered = []
        self.reader = hg.RecordReader(
            self.gate, serializer="bytes", on_event=reader.pop("on_event", self.hear), **reader
        )

    def hear(self, event):
        if isinstance(event, hg.CheckpointBarrier):
            self.triggered.append(event)
            self.got.append(("barrier", event.checkpoint_id, event.alignment))
        elif isinstance(event, hg.CheckpointComplete):
            self.got.append(("complete", event.checkpoint_id))
        elif isinstance(event, hg.CheckpointAborted):
            self.got.append(("aborted", event.checkpoint_id))
        else:
            self.got.append(event.name)

    def poll(self):
        while (record := self.reader.poll_next()) is not None:
            self.got.append(record)

    def expect(self, *items):
        """Read until all of these were read or heard, in this order."""

        def reached():
            self.poll()
            return len(self.got) >= len(items)

        wait_until(reached)
        assert self.got == list(items)

    def expect_any(self, *items):
        """Read until all of these were read or heard; channels that take turns may do so anyhow."""

        def reached():
            self.poll()
            return len(self.got) >= len(items)

        wait_until(reached)
        assert sorted(map(str, self.got)) == sorted(map(str, items))

    def send(self, writer, *items):
        for item in items:
            if isinstance(item, hg.CheckpointBarrier):
                self.writers[writer].broadcast_barrier(item)
            else:
                self.writers[writer].emit(item)
        self.writers[writer].flush()

    def begin(self, writer, number, *behind):
        """Send an aligned barrier that is read before this returns: only its timer shows that."""
        self.send(writer, barrier(number, "timeoutable", timeout=LONG), *behind)
        wait_until(lambda: (self.poll(), self.reader.next_timer_ms())[1] is not None)

    def finish(self):
        for writer in self.writers:
            writer.finish()
