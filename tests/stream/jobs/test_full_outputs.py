"""A source whose rows cannot leave goes on to handle its mail."""

import threading

import kit
from kit import wait_until
from test_unaligned import start

from headgate.stream.runtime.task import StreamTask


class Closed:
    """Passes batches on once it is opened."""

    gate = threading.Event()

    def __call__(self, batch):
        if batch.num_rows:  # not when it is asked for its schema
            self.gate.wait()
        return batch


def test_a_source_takes_checkpoints_while_its_output_is_full(tmp_path, monkeypatch):
    taken = []
    trigger = StreamTask._trigger

    def note(task, barrier, *, stop):
        taken.append(task)
        trigger(task, barrier, stop=stop)

    monkeypatch.setattr(StreamTask, "_trigger", note)
    stream = kit.numbers(10**9).rebalance().map(Closed(), name="closed")
    more = {"checkpoint_timeout": 0.2, "tolerable_failures": 10**6, "parallelism": 1, "workers": 0}
    query = start(stream, tmp_path, alignment="unaligned", **more)
    try:
        wait_until(lambda: taken)
        source = taken[0]
        wait_until(lambda: is_held_up(source))
        before, blocked = len(taken), source.back_pressured_ns()
        rows = source.metrics.rows_in
        # A checkpoint is tried again after each timeout.
        wait_until(lambda: len(taken) > before + 3)
        assert source.metrics.rows_in == rows
        assert source.back_pressured_ns() > blocked
        assert source.metrics.busy_ns > source.back_pressured_ns() - blocked
    finally:
        Closed.gate.set()
        query.cancel()


def is_held_up(task, seconds=0.3):
    """True if no row passes the task for a time."""
    rows = task.metrics.rows_in
    threading.Event().wait(seconds)
    return task.metrics.rows_in == rows > 0
