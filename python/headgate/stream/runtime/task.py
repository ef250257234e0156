"""One task of a job: a thread with a mailbox, an input, operators and outputs."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.data_types import EndOfDataStatus
from headgate.errors import InternalError
from headgate.source.runtime.mailbox import Mailbox
from headgate.source.watermark.generator import MAX_WATERMARK, MIN_WATERMARK
from headgate.stream.runtime.channel_state import ChannelState, encoded
from headgate.stream.runtime.inputs import GateInput, SourceInput, TaskInput
from headgate.stream.runtime.task_metrics import TaskMetrics
from headgate.stream.runtime.task_snapshot import TaskSnapshot
from headgate.stream.state.backend import wall_clock

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.checkpoints import CheckpointAborted, CheckpointBarrier, CheckpointComplete
    from headgate.stream.graph.stages import TaskId
    from headgate.stream.runtime.chain import Consumer, OperatorChain
    from headgate.stream.runtime.outputs import TaskOutput

_LOG: Final = logging.getLogger("headgate.stream")
#: Seconds after which is asked again what nothing tells: what a barrier has overtaken, and barriers of an input not read.
_PATIENCE: Final = 0.01
#: Body of the barriers of a last checkpoint from which nothing continues: it commits output, and has no state.
COMMIT_ONLY: Final = b"\0"
#: Longest wait in seconds for a full output: others read from ``busy_ns`` that the task is not idle.
_LONGEST_WAIT: Final = 0.5


class TaskListener(Protocol):
    """The worker of a task, as the task's thread calls it."""

    def on_snapshot(self, task: StreamTask, snapshot: TaskSnapshot) -> None:
        """Take a frozen snapshot, and write it in another thread."""

    def on_complete(self, task: StreamTask, checkpoint: int) -> None:
        """Handle that the task's later snapshots build on that of a complete checkpoint."""

    def on_declined(self, task: StreamTask, checkpoint: int, reason: str) -> None:
        """Handle that the task has no part in a checkpoint."""

    def on_end(self, task: StreamTask) -> None:
        """Handle that the task has handled all rows, and waits for the last checkpoint."""

    def on_finished(self, task: StreamTask, error: BaseException | None) -> None:
        """Handle the end of the task's thread."""


class StreamTask:
    """Runs one task. Source: Flink's StreamTask.

    Args:
        key: stage and index.
        name: for errors and the thread.
        chain: its operators.
        outputs: its edges.
        listener: hears of it.
        make_input: makes the input, in the task's thread.
        recovered: operators, and the rows that were on their way to them at the checkpoint: handled before any other.
    """

    def __init__(
        self,
        key: TaskId,
        name: str,
        chain: OperatorChain,
        outputs: Sequence[TaskOutput],
        listener: TaskListener,
        make_input: Callable[[StreamTask], TaskInput],
        recovered: Iterable[tuple[str, pa.RecordBatch]] = (),
    ) -> None:
        self.key = key
        self.name = name
        self.mailbox = Mailbox()
        self.metrics = TaskMetrics()
        self._chain = chain
        chain.wake_up = self.mailbox.signal
        self._outputs = outputs
        self._listener = listener
        self._make_input = make_input
        self._recovered = recovered
        self._input: TaskInput | None = None
        #: True once all rows were handled and the outputs know it.
        self._has_ended = False
        #: The steps between the input's end and that; None before.
        self._ending: Iterator[None] | None = None
        self._is_finishing = False
        self._is_cancelled = False
        #: Newest checkpoint that was given up or taken, and those that were given up before they came here.
        self._latest = 0
        self._aborted: set[int] = set()
        #: The snapshot of an unaligned checkpoint, until its rows in flight are known.
        self._waiting: TaskSnapshot | None = None
        self._has_inputs = False
        self._limits = chain.limits
        #: Parts of a batch that wait while the part before them is handled.
        self._parts: deque[pa.RecordBatch] = deque()
        #: True while a batch is handled, in whose pauses further ones may come.
        self._is_within = False
        self._thread = threading.Thread(target=self._run, name=f"headgate-{name}", daemon=True)

    # From any thread.

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def trigger_checkpoint(self, barrier: CheckpointBarrier, *, stop: bool) -> None:
        """Take a checkpoint, at a source; ``stop`` to read nothing behind it."""
        self.mailbox.post(lambda: self._trigger(barrier, stop=stop))

    def complete_checkpoint(self, checkpoint: int) -> None:
        """Handle that a checkpoint is complete."""
        self.mailbox.post(lambda: self._complete(checkpoint))

    def abort_checkpoint(self, checkpoint: int, reason: str) -> None:
        """Handle that the coordinator gave up a checkpoint, of which the task may not have heard yet."""
        self.mailbox.post(lambda: self._abort(checkpoint, reason))

    def for_source(self, action: Callable[[Any], None]) -> None:
        """Call an action with the operator of the source, in the order of all mail."""

        def call() -> None:
            if not isinstance(self._input, SourceInput):
                raise InternalError(f"{self.name} reads no source")
            action(self._input.operator)

        self.mailbox.post(call)

    def finish(self) -> None:
        """End, once all rows were handled and the last checkpoint is complete."""
        self.mailbox.post(self._finish)

    def cancel(self) -> None:
        """End soon. The environment must be aborted as well, for a task that waits in it."""
        self._is_cancelled = True
        self.mailbox.signal()

    def join(self, timeout: float) -> bool:
        """Wait for the end of the thread; return False if it still runs."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def files_in_flight(self, uid: str) -> set[str]:
        """Return the files that an operator's snapshots in flight build on."""
        return self._chain.files_in_flight(uid)

    @property
    def dropped(self) -> dict[str, dict[str, int]]:
        """Rows and values that each operator has dropped, by counter."""
        return self._chain.dropped

    @property
    def user_metrics(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Metrics of the functions of users, by operator and name."""
        return self._chain.metrics

    @property
    def state_sizes(self) -> dict[str, dict[str, int]]:
        """Size of the state of each operator that has some."""
        return self._chain.state_sizes

    def back_pressured_ns(self) -> int:
        """Return for how long the outputs were waited for, in ns."""
        return sum(output.writer.back_pressured_ns() for output in self._outputs)

    def held_back_ns(self) -> int:
        """Return for how long no input was read although there may have been some, in ns."""
        return self.back_pressured_ns() + self.metrics.full_ns

    # The input's handler, on the task's thread.

    def handle_batch(self, batch: pa.RecordBatch) -> None:
        """Pass rows to the operators, in parts if these have limits; barriers that overtake rows pass between parts."""
        self._parts.extend(self._limits.parts(batch))
        if self._is_within:
            return  # they follow the parts before them
        self._is_within = True
        while self._parts:
            self._handle(self._chain.head, self._parts.popleft())
            if self._parts:
                self._pause()
        self._is_within = False

    def _pause(self) -> None:
        """Handle what may not wait for the rest of a batch."""
        source = self._input
        while not self._is_cancelled and isinstance(source, GateInput):
            source.advance_events()
            if self._waiting is not None:
                self._complete_snapshot()
            full = self._full_output()
            if full is None:
                return
            self._wait_for_room(full, source)
        if self._is_cancelled:
            self._parts.clear()

    def _handle_rest(self) -> None:
        """Handle the parts that wait: the event that follows has not overtaken them."""
        while self._parts:
            self._handle(self._chain.head, self._parts.popleft())

    def _handle(self, consumer: Consumer, batch: pa.RecordBatch) -> None:
        metrics = self.metrics
        started = time.perf_counter_ns()
        consumer(batch)
        metrics.busy_ns += time.perf_counter_ns() - started
        metrics.rows_in += batch.num_rows
        metrics.batches_in += 1

    def handle_watermark(self, watermark: int) -> None:
        """Pass a watermark to the operators and the outputs."""
        if watermark == MAX_WATERMARK and self._ending is None:
            # It follows with the end of data, when all channels have ended.
            return
        self._handle_rest()
        if watermark > MIN_WATERMARK:
            self.metrics.watermark = watermark
        self._chain.advance_watermark(watermark)

    def handle_idle(self) -> None:
        """Tell the outputs that this task is idle."""
        self._handle_rest()
        self._chain.advance_watermark(None)

    def handle_barrier(self, barrier: CheckpointBarrier) -> None:
        """Take a checkpoint whose barriers have arrived."""
        self._trigger(barrier, stop=False)

    def handle_aligned(self, complete: CheckpointComplete) -> None:
        """Note the alignment, and take the rows in flight of the input."""
        self.metrics.alignment_ms = complete.alignment_duration
        waiting = self._waiting
        is_waited_for = waiting is not None and waiting.checkpoint == complete.checkpoint_id
        if waiting is not None and is_waited_for and isinstance(self._input, GateInput):
            inputs = self._input.take_channel_state(complete.checkpoint_id)
            channels = replace(waiting.channels, inputs=[*waiting.channels.inputs, *inputs])
            self._waiting = replace(waiting, channels=channels)
            self._has_inputs = True
            self._complete_snapshot()

    def handle_aborted(self, aborted: CheckpointAborted) -> None:
        """Report a checkpoint that other tasks gave up, and tell those behind this one."""
        if aborted.checkpoint_id > self._latest:
            self._latest = aborted.checkpoint_id
            for output in self._outputs:
                output.writer.broadcast_cancellation(aborted.checkpoint_id)
        self._drop_waiting(aborted.checkpoint_id)
        self._listener.on_declined(self, aborted.checkpoint_id, aborted.reason)

    # On the task's thread.

    def _run(self) -> None:
        failures: list[BaseException] = []
        for step in (self._work, self._close_input, self._chain.close):
            try:
                step()
            except BaseException as error:  # noqa: BLE001 - the first is reported to the worker
                if failures:
                    _LOG.debug("%s could not be closed", self.name, exc_info=True)
                failures.append(error)
        self.mailbox.close()
        self._waiting = None
        self._parts.clear()
        is_failed = failures and not self._is_cancelled
        self._listener.on_finished(self, failures[0] if is_failed else None)
        while failures:
            _clear_frames(failures.pop())
        # They refer to the maker of this task.
        del self._make_input, self._recovered

    def _work(self) -> None:
        self._chain.open()
        self._input = self._make_input(self)
        for output in self._outputs:
            self.mailbox.attach(output.writer.wake_up)
            self._input.wake_up(output.writer)
        for uid, batch in self._recovered:
            self._handle(partial(self._chain.take, uid), batch)
        self._input.start()
        self._loop(self._input)

    def _close_input(self) -> None:
        source, self._input = self._input, None
        if source is not None:
            source.close()

    def _loop(self, source: TaskInput) -> None:
        mailbox, chain = self.mailbox, self._chain
        while True:
            mailbox.clear()
            while (action := mailbox.take()) is not None:
                action()
            if self._is_cancelled or self._is_finishing:
                return
            if self._waiting is not None:
                self._complete_snapshot()
            # As in Flink, timers of processing time that are not due at the end never fire: no row may follow.
            timer = None if self._has_ended else chain.next_processing_timer
            now = wall_clock() if timer is not None else 0
            if timer is not None and timer <= now:
                started = time.perf_counter_ns()
                chain.advance_processing_time(now)
                self.metrics.busy_ns += time.perf_counter_ns() - started
            elif not self._turn(source, timer, now):
                source.wait(self._patience(timer, now))

    def _turn(self, source: TaskInput, timer: int | None, now: int) -> bool:
        """Do what is next, and wait if that is for room; return False if there was nothing."""
        chain, ending = self._chain, self._ending
        if self._has_ended:
            # Barriers still pass, for the last checkpoint.
            return isinstance(source, GateInput) and source.advance()
        full = self._full_output()
        if full is not None:
            self._wait_for_room(full, source, timer, now)
            return True
        # Calls that wait end here, ADR 0060: never inside of an operator's other work.
        moved = chain.poll(is_end=ending is not None)
        if ending is not None:
            return self._advance_end(ending, source) or moved
        if not chain.is_full:
            return self._advance(source) or moved
        if not source.advance_events() and not moved:
            self._wait_for_calls(source, self._patience(timer, now))
        return True

    def _advance(self, source: TaskInput) -> bool:
        moved = source.advance()
        if source.end is EndOfDataStatus.NOT_END_OF_DATA:
            return moved
        self._ending = self._steps_to_end(drain=source.end is EndOfDataStatus.DRAINED)
        return True

    def _wait_for_calls(self, source: TaskInput, timeout: float | None) -> None:
        """Wait until a full operator has something to do, without a look at the rows that are there."""
        if isinstance(source, GateInput):
            timeout = _PATIENCE if timeout is None else min(timeout, _PATIENCE)
        started = time.perf_counter_ns()
        self.mailbox.wait(timeout)
        self.metrics.full_ns += time.perf_counter_ns() - started

    def _patience(self, timer: int | None, now: int) -> float | None:
        """Return the seconds after which the task has something to do although nothing arrives."""
        until = None if timer is None else max(0.0, (timer - now) / 1000)
        if self._waiting is not None:
            # Nothing tells when the last of a barrier's rows has been sent.
            until = _PATIENCE if until is None else min(until, _PATIENCE)
        return until

    def _full_output(self) -> TaskOutput | None:
        """Return an output whose rows would wait. Source: Flink's StreamTask, which reads no input meanwhile."""
        return next((output for output in self._outputs if not output.writer.is_available), None)

    def _wait_for_room(
        self, output: TaskOutput, source: TaskInput, timer: int | None = None, now: int = 0
    ) -> None:
        """Wait for room outside of the operators; mail, barriers that overtake rows and timers end the wait."""
        if source.advance_events():
            return
        started = time.perf_counter_ns()
        due = (_LONGEST_WAIT, self._patience(timer, now), source.until_timer())
        output.writer.wait_available(min(seconds for seconds in due if seconds is not None))
        self.metrics.busy_ns += time.perf_counter_ns() - started

    def _complete_snapshot(self) -> None:
        """Pass on the snapshot that waits, if its rows in flight are known."""
        waiting = self._waiting
        if waiting is None or not self._has_inputs:
            return
        outputs: list[tuple[int, int, bytes]] = []
        for edge, output in enumerate(self._outputs):
            state = output.writer.take_channel_state(waiting.checkpoint)
            if state is None:
                return
            outputs += [(edge, subpartition, part) for subpartition, part in state]
        self._waiting = None
        channels = replace(waiting.channels, outputs=outputs)
        self._listener.on_snapshot(self, replace(waiting, channels=channels))

    def _drop_waiting(self, checkpoint: int) -> None:
        waiting = self._waiting
        if waiting is not None and waiting.checkpoint <= checkpoint:
            self._waiting = None

    def _advance_end(self, ending: Iterator[None], source: TaskInput) -> bool:
        """Take the steps of the end, as long as nothing waits for other threads; return False if nothing was done."""
        has_moved = isinstance(source, GateInput) and source.advance()
        while self._chain.is_quiet and not self._has_ended:
            has_moved = True
            next(ending, None)
        return has_moved

    def _steps_to_end(self, *, drain: bool) -> Iterator[None]:
        """Handle the end of all rows; what follows a step waits until the operators are quiet."""
        if drain:
            self.handle_watermark(MAX_WATERMARK)
            yield from self._chain.end()
            yield
        self._chain.flush()
        yield
        self._has_ended = True
        for output in self._outputs:
            output.writer.end_of_data("drain" if drain else "no_drain")
        self._listener.on_end(self)

    def _trigger(self, barrier: CheckpointBarrier, *, stop: bool) -> None:
        has_state = barrier.body != COMMIT_ONLY
        savepoint = barrier.body.decode() if has_state else ""
        checkpoint = barrier.checkpoint_id
        if checkpoint <= self._latest:
            return
        self._latest = checkpoint
        source = self._input
        if checkpoint in self._aborted:
            for output in self._outputs:
                output.writer.broadcast_cancellation(checkpoint)
            return
        started = time.perf_counter_ns()
        is_behind_rows = barrier.alignment in {"aligned", "at_least_once"}
        if is_behind_rows:
            self._handle_rest()
        if isinstance(source, SourceInput):
            source.drain_element()
            source.is_stopped = stop
        self._drop_waiting(checkpoint)
        self._chain.flush()
        for output in self._outputs:
            output.writer.broadcast_barrier(barrier)
        splits = None
        if isinstance(source, SourceInput):
            splits = source.operator.split_version, source.operator.snapshot(checkpoint)
        operators = self._chain.snapshot(checkpoint, savepoint=bool(savepoint), has_state=has_state)
        delay = max(0, wall_clock() - barrier.timestamp)
        sync = (time.perf_counter_ns() - started) // 1_000_000
        snapshot = TaskSnapshot(checkpoint, savepoint, operators, splits, delay, sync)
        if is_behind_rows:
            self._listener.on_snapshot(self, snapshot)
        else:
            self._waiting = replace(snapshot, channels=ChannelState(inputs=self._rest()))
            self._has_inputs = isinstance(source, SourceInput)
            self._complete_snapshot()

    def _rest(self) -> list[tuple[int, bytes]]:
        """Return the parts that wait as rows in flight: of the first channel, since any has the same place for them."""
        return [(0, encoded(list(self._parts)))] if self._parts else []

    def _complete(self, checkpoint: int) -> None:
        self._aborted = {a for a in self._aborted if a > checkpoint}
        self._chain.complete(checkpoint)
        self._listener.on_complete(self, checkpoint)
        if isinstance(self._input, SourceInput):
            self._input.operator.notify_checkpoint_complete(checkpoint)

    def _abort(self, checkpoint: int, reason: str) -> None:
        if checkpoint > self._latest:
            self._aborted.add(checkpoint)
        elif checkpoint == self._latest and isinstance(self._input, SourceInput):
            # The job goes on, unless it is told to stop again.
            self._input.is_stopped = False
        self._drop_waiting(checkpoint)
        for operator in self._chain.operators.values():
            operator.abort(checkpoint)
        if isinstance(self._input, SourceInput):
            self._input.operator.notify_checkpoint_aborted(checkpoint)
        elif isinstance(self._input, GateInput):
            self._input.abort_checkpoint(checkpoint, reason)

    def _finish(self) -> None:
        for output in self._outputs:
            output.writer.finish()
        self._is_finishing = True


def _clear_frames(error: BaseException | None) -> None:
    """Clear the local variables of the calls that an error and its causes came through, such as the rows at hand.

    A function of the user may keep the error, and the calls refer to the function.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
