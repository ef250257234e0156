"""The order of what a task does with recovered rows and with triggers (spec 10.5, 10.9), seen by its operators and outputs."""

import pyarrow as pa
import pytest

from headgate import CheckpointAborted, CheckpointBarrier
from headgate.data_types import EndOfDataStatus
from headgate.stream.graph.limits import UNLIMITED
from headgate.stream.runtime.inputs import TaskInput
from headgate.stream.runtime.task import StreamTask


class Input(TaskInput):
    """Has some batches; behind them the task finishes."""

    end = EndOfDataStatus.NOT_END_OF_DATA

    def __init__(self, task, log, batches):
        self._task, self._log, self._batches = task, log, batches

    def start(self):
        self._log.append("start")

    def advance(self):
        if not self._batches:
            self._task.finish()
            return False
        self._task.handle_batch(self._batches.pop(0))
        return True

    def advance_events(self):
        raise AssertionError("it has no outputs that are full")

    def wait(self, timeout):
        self._task.mailbox.wait(timeout)

    def close(self):
        self._log.append("close")


class Operators:
    """One operator, which says what it is told; it stands for the chain too."""

    next_processing_timer = None

    def __init__(self, log):
        self._log, self.operators = log, {"one": self}

    def open(self):
        self._log.append("open")

    def head(self, batch):
        self._log.append(batch["id"].to_pylist())

    process = head
    limits = UNLIMITED
    is_full = False

    def poll(self, *, is_end):
        return False

    def take(self, uid, batch):
        self.operators[uid].process(batch)

    def flush(self):
        self._log.append("flush")

    def snapshot(self, checkpoint, *, savepoint, has_state=True):
        self._log.append(("freeze", checkpoint))
        return {}

    def abort(self, checkpoint):
        self._log.append(("abort", checkpoint))

    def close(self):
        pass


class Output:
    """One edge with room; it stands for its writer too."""

    is_available = True

    def __init__(self, log):
        self._log, self.writer = log, self

    def broadcast_barrier(self, barrier):
        self._log.append(("barrier", barrier.checkpoint_id))

    def broadcast_cancellation(self, checkpoint):
        self._log.append(("cancel", checkpoint))

    def wake_up(self):
        pass

    def finish(self):
        pass


class Listener:
    def __init__(self, log):
        self._log = log

    def on_snapshot(self, _, snapshot):
        self._log.append(("snapshot", snapshot.checkpoint))

    def on_declined(self, _, checkpoint, reason):
        self._log.append(("declined", checkpoint, reason))

    def on_finished(self, _, error):
        self._log.append(error or "end")


def rows(*ids):
    return pa.record_batch({"id": pa.array(ids)})


def barrier(checkpoint):
    return CheckpointBarrier(checkpoint, 0, "aligned")


def everything(act, batches=(), recovered=()):
    """Run a task to which something is posted before it starts; return what happened."""
    log = []
    task = StreamTask(
        (0, 0),
        "task",
        Operators(log),
        [Output(log)],
        Listener(log),
        lambda made: Input(made, log, list(batches)),
        recovered,
    )
    act(task)
    task.start()
    assert task.join(30)
    return log


def run(act, batches=(), recovered=()):
    """Run a task that does not fail; return what happened between its start and its end."""
    log = everything(act, batches, recovered)
    assert (log[0], log[-2:]) == ("open", ["close", "end"])
    return log[1:-2]


def test_spec_10_14_all_recovered_rows_are_handled_before_the_input_starts_and_before_any_mail():
    recovered = [("one", rows(1)), ("one", rows(2)), ("one", rows(3))]
    log = run(lambda task: task.trigger_checkpoint(barrier(1), stop=False), [rows(4)], recovered)
    assert log[:4] == [[1], [2], [3], "start"]
    assert [4] in log[4:]
    assert ("freeze", 1) in log[4:]


def test_a_recovered_row_that_fails_leaves_the_input_alone():
    def fails():
        yield "one", rows(1)
        raise ValueError("planned")

    log = everything(lambda task: None, [rows(2)], fails())
    assert log[:-1] == ["open", [1], "close"]
    assert str(log[-1]) == "planned"


def test_spec_section_10_9_the_barrier_is_sent_before_the_state_is_frozen():
    log = run(lambda task: task.trigger_checkpoint(barrier(3), stop=False))
    assert log == ["start", "flush", ("barrier", 3), ("freeze", 3), ("snapshot", 3)]


@pytest.mark.parametrize("late", [1, 2])
def test_spec_section_10_9_a_trigger_that_is_not_newer_is_ignored(late):
    def act(task):
        task.trigger_checkpoint(barrier(2), stop=False)
        task.trigger_checkpoint(barrier(late), stop=False)

    assert run(act) == ["start", "flush", ("barrier", 2), ("freeze", 2), ("snapshot", 2)]


def test_spec_section_10_9_an_abort_that_comes_before_its_trigger_is_remembered():
    def act(task):
        task.abort_checkpoint(5, "it expired")
        task.trigger_checkpoint(barrier(5), stop=False)
        task.trigger_checkpoint(barrier(6), stop=False)

    taken = ["flush", ("barrier", 6), ("freeze", 6), ("snapshot", 6)]
    assert run(act) == ["start", ("abort", 5), ("cancel", 5), *taken]


def test_spec_section_10_9_a_checkpoint_that_others_gave_up_is_declined_and_told_on_once():
    def act(task):
        aborted = CheckpointAborted(4, "cancelled")
        task.mailbox.post(lambda: task.handle_aborted(aborted))
        task.mailbox.post(lambda: task.handle_aborted(aborted))
        task.trigger_checkpoint(barrier(4), stop=False)

    declined = ("declined", 4, "cancelled")
    assert run(act) == ["start", ("cancel", 4), declined, declined]
