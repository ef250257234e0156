"""A task whose rows cannot leave goes on to handle barriers and its mail."""

import threading

from tests.kit import stream_jobs
from tests.kit.waiting import wait_until
from tests.stream.jobs.test_unaligned import start

from headgate.stream.runtime.task import StreamTask

#: Nanoseconds by which the two times of a wait may differ.
MARGIN = 10**8


class Closed:
    """Passes batches on once it is opened."""

    gate = threading.Event()

    def __call__(self, batch):
        if batch.num_rows:  # not when it is asked for its schema
            self.gate.wait()
        return batch


def wait_in_closed_job(stream, tmp_path, found):
    """Run a job whose last task is closed until something is found."""
    # A checkpoint, which the closed task does not complete, is tried again after each timeout.
    more = {"checkpoint_timeout": 0.2, "tolerable_failures": 10**6, "parallelism": 1, "workers": 0}
    Closed.gate.clear()
    query = start(stream, tmp_path, alignment="unaligned", **more)
    try:
        wait_until(found)
    finally:
        Closed.gate.set()
        query.cancel()


def test_a_source_takes_checkpoints_while_its_output_is_full(tmp_path, monkeypatch):
    found = []
    trigger = StreamTask._trigger

    def note(task, barrier, *, stop):
        metrics = task.metrics
        found.append((metrics.rows_in, task.back_pressured_ns(), metrics.busy_ns))
        trigger(task, barrier, stop=stop)

    def waits_for_room():
        if len(found) < 4:
            return False
        (first, blocked, busy), *_, (last, blocked_later, busy_later) = found[-4:]
        return 0 < first == last and 0 < blocked_later - blocked <= busy_later - busy + MARGIN

    monkeypatch.setattr(StreamTask, "_trigger", note)
    stream = stream_jobs.numbers(10**9).rebalance().map(Closed(), name="closed")
    wait_in_closed_job(stream, tmp_path, waits_for_room)


def test_a_task_behind_a_gate_takes_checkpoints_while_its_output_is_full(tmp_path, monkeypatch):
    found = []
    trigger = StreamTask._trigger

    def note(task, barrier, *, stop):
        if task.name.startswith("count"):
            found.append((task.metrics.rows_in, task._full_output() is not None))
        trigger(task, barrier, stop=stop)

    def waits_for_room():
        (first, _), *_, (last, is_full) = found[-4:] if len(found) > 3 else [(0, 0), (1, 0)]
        return 0 < first == last and is_full

    monkeypatch.setattr(StreamTask, "_trigger", note)
    counted = (
        stream_jobs.numbers(10**9)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="count")
    )
    stream = counted.key_by("id").map(Closed(), name="closed")
    wait_in_closed_job(stream, tmp_path, waits_for_room)
