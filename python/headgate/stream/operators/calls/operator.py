"""The operator of ``map_async()``: many calls at a time, in checkpoints as far as they are. Decision: ADR 0060."""

from __future__ import annotations

import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate._kinds import is_coroutine_function
from headgate.errors import HeadgateError, StateError, UserFunctionError
from headgate.stream.graph.call_functions import CallFunction
from headgate.stream.graph.context import RuntimeContext
from headgate.stream.graph.operator import OperatorContext, OperatorSnapshot, instance_of
from headgate.stream.operators.calls.call import Call
from headgate.stream.operators.calls.loop import CallLoop, awaited, callable_of
from headgate.stream.operators.calls.rows import (
    ERRORS,
    CallResults,
    error_rows,
    joined,
    null_rows,
    rows_to_send,
)
from headgate.stream.operators.calls.state import KEY, CallState
from headgate.stream.operators.keyed import KeyedOperator
from headgate.stream.operators.results import calling
from headgate.stream.state.groups import key_groups_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from headgate.stream.graph.context import FunctionRows
    from headgate.stream.operators.calls.options import CallOptions

#: Classes of keys: results of one class are in order.
_CLASSES: Final = 1 << 15


@dataclass(slots=True)
class _Waiting:
    """Rows that are in no call.

    Attributes:
        rows: in their order.
        first: number of the first one.
        due: time in ms at which they wait for no others.
        size: bytes of the rows.
        orders: class of each row's key; None if that does not count.
    """

    rows: pa.RecordBatch
    first: int
    due: int
    size: int
    orders: npt.NDArray[np.int32] | None


class AsyncCallOperator(KeyedOperator):
    """Calls a function that waits. Source: Flink's AsyncWaitOperator, with other queues.

    Args:
        function: a function, or an object of a user or what makes one.
        rows: schema of the stream.
        keys: the key columns.
        schema: of the result.
        options: see there.
    """

    holds_watermarks = True

    def __init__(
        self,
        function: Any,
        rows: pa.Schema,
        keys: tuple[str, ...],
        schema: pa.Schema,
        options: CallOptions,
    ) -> None:
        self._function_or_maker = function
        self._rows, self._keys, self._schema = rows, keys, schema
        self._options = options
        self._function: CallFunction | None = None
        self._loop: CallLoop | None = None
        self._waiting: deque[_Waiting] = deque()
        #: Rows and bytes that wait: a look at them costs the same however many they are.
        self._num_waiting = self._waiting_size = 0
        #: Number of the next row that arrives.
        self._next = 0
        #: Calls whose result is not next, in the order of their rows, by the number of the first one.
        self._calls: OrderedDict[int, Call] = OrderedDict()
        #: By class of the key.
        self._queues: dict[int, deque[Call]] = {}
        #: Calls whose result is next, which are sent in this order.
        self._ready: list[Call] = []
        #: Calls of the checkpoint that are not begun again.
        self._restored: deque[Call] = deque()
        self._running = 0
        #: Bytes of calls whose result is not sent.
        self._size = 0.0
        #: Watermarks, None for idleness, each with the number of the first row behind it.
        self._marks: deque[tuple[int, int | None]] = deque()
        #: True if the first rows have waited long enough; and if none follow.
        self._is_due = self._is_ending = False

    def open(self, context: OperatorContext) -> None:
        """Open the function, and restore calls."""
        super().open(context)
        self._uid = context.uid
        metrics = context.metrics
        self._repeated = metrics.counter("calls_repeated")
        self._gauge = metrics.gauge("calls_in_flight")
        self._ids = uuid.uuid4().hex
        self._call_state = CallState(
            self._restore(context, KEY), context, self._rows, self._keys, self._schema
        )
        self._results = CallResults(context.uid, self._schema)
        self._opened(context)
        function = self._function_or_maker
        if isinstance(function, (CallFunction, type)):
            function = instance_of(function)
        self._loop = CallLoop(
            f"headgate-{context.uid}-calls",
            callable_of(function, takes_context=self._options.takes_context),
            self._converted,
            self._options.policy,
            self._options.in_flight,
            context.wake_up,
            metrics,
            context.tokens,
            context.shared,
        )
        if isinstance(function, CallFunction):
            # From here on close() calls its close(), also if open() fails.
            self._function = function
            runtime = RuntimeContext(context, partial(_emit_nothing, context.uid))
            with calling(self._uid, "open"):
                if self._loop.is_for_coroutines or is_coroutine_function(function.open):
                    self._loop.run(awaited(function.open, runtime))
                else:
                    function.open(runtime)
        self._load()
        self._begin()

    def _load(self) -> None:
        """Take what the checkpoint has: calls are made again, under their names, and results are sent."""
        calls, rows = self._call_state.load(has_batches=self._options.rows is not None)
        for call in calls:
            call.first = self._next
            self._next += max(1, call.length)
            if self._options.order == "by_key" and call.outcome is None:
                call.order = int(key_groups_of(call.rows.select(self._keys), _CLASSES)[0])
            self._add(call)
        self._restored = deque(self._to_begin(calls))
        self._repeated.add(len(self._restored))
        for call in calls:
            if call.outcome is not None:
                self._line_up(call)
        if rows.num_rows:
            self.process(rows)

    def _to_begin(self, calls: list[Call]) -> list[Call]:
        """Return the calls of a checkpoint that are made again."""
        return [call for call in calls if call.outcome is None]

    # --- rows ---

    def process(self, batch: pa.RecordBatch) -> None:
        """Let rows wait, and begin the calls for which there is room."""
        orders = None
        if self._options.order == "by_key":
            orders = key_groups_of(batch.select(self._keys), _CLASSES)
        due = self._context.clock() + self._options.wait if self._options.wait else 0
        self._waiting.append(_Waiting(batch, self._next, due, batch.nbytes, orders))
        self._next += batch.num_rows
        self._num_waiting += batch.num_rows
        self._waiting_size += batch.nbytes
        self._begin()

    def _is_formed(self) -> bool:
        """Return True if rows wait for no others, but for room."""
        options = self._options
        if not self._waiting:
            return False
        if options.rows is None or not options.wait or self._is_due or self._is_ending:
            return True
        return self._num_waiting >= options.rows or (
            options.bytes is not None and self._waiting_size >= options.bytes
        )

    def _begin(self) -> None:
        """Begin the calls for which there is room."""
        options = self._options
        most = options.in_flight + options.policy.num_waiting
        begun: list[tuple[Call, Any]] = []
        while self._restored and self._running < most:
            call = self._restored.popleft()
            begun.append((call, self._about(call)))
            self._running += 1
        while not self._restored and self._is_formed():
            room = most - self._running
            is_heavy = self._size >= options.in_flight_bytes
            if room <= 0 or (is_heavy and (self._calls or self._ready)):
                break
            new = self._next_calls(room)
            self._running += len(new)
            begun += new
        if self._loop is not None:
            if begun:
                self._loop.begin(begun)
            is_heavy, has_results = (
                self._size >= options.in_flight_bytes,
                len(self._calls) > self._running,
            )
            self._loop.times.note_room(self.is_full, is_heavy, has_results)
        self._gauge.set(self._running)

    def _next_calls(self, room: int) -> list[tuple[Call, Any]]:
        """Return calls of the first rows that wait, at most so many, each with what it is about."""
        return self._calls_of_rows(room) if self._options.rows is None else [self._call_of_batch()]

    def _about(self, call: Call) -> Any:
        """Return what the function gets."""
        return call.rows if self._options.rows else call.rows.to_pylist()[0]

    def _calls_of_rows(self, most: int) -> list[tuple[Call, Any]]:
        """Return calls of the first rows that wait, as dicts."""
        part, options = self._waiting[0], self._options
        rows = part.rows
        per_row = rows.nbytes / rows.num_rows
        left = options.in_flight_bytes - self._size
        number = int(min(most, rows.num_rows, max(1, left // max(per_row, 1))))
        chosen, orders = rows.slice(0, number), part.orders
        begun = []
        for at, row in enumerate(chosen.to_pylist()):
            call = self._call(part.first + at, chosen, at, 1, per_row)
            call.order = 0 if orders is None else int(orders[at])
            name = None if options.call_id is None else row[options.call_id]
            call.call_id = call.call_id if name is None else str(name)
            self._add(call)
            begun.append((call, row))
        self._take(number)
        return begun

    def _call_of_batch(self) -> tuple[Call, Any]:
        """Return the call of the first batch that waits."""
        options = self._options
        most, size, first = options.rows or 1, options.bytes, self._waiting[0].first
        parts: list[pa.RecordBatch] = []
        while most and self._waiting:
            rows = self._waiting[0].rows
            number = min(most, rows.num_rows)
            if size is not None:
                fitting = int(size * rows.num_rows // max(1, rows.nbytes))
                if fitting < number:
                    number, most = (fitting if parts else max(1, fitting)), 0
                size -= int(number * rows.nbytes // rows.num_rows)
            parts.append(rows.slice(0, number))
            most -= min(most, number)
            if number:
                self._take(number)
        batch = joined(parts)
        call = self._call(first, batch, 0, batch.num_rows, batch.nbytes)
        self._add(call)
        return call, batch

    def _take(self, number: int) -> None:
        """Remove the first rows that wait; they are of one part."""
        self._num_waiting -= number
        part = self._waiting.popleft()
        self._waiting_size -= part.size
        if number < part.rows.num_rows:
            orders = None if part.orders is None else part.orders[number:]
            rest = part.rows.slice(number)
            self._waiting_size += rest.nbytes
            self._waiting.appendleft(
                _Waiting(rest, part.first + number, part.due, rest.nbytes, orders)
            )
        self._is_due = False

    def _call(
        self, first: int, batch: pa.RecordBatch, start: int, length: int, size: float
    ) -> Call:
        return Call(first, f"{self._ids}-{first}", batch, start, length, size)

    def _add(self, call: Call) -> None:
        self._calls[call.first] = call
        self._size += call.size
        if self._options.order == "by_key":
            self._queues.setdefault(call.order, deque()).append(call)

    # --- results ---

    @property
    def is_full(self) -> bool:
        """True while calls or rows wait for room."""
        return bool(self._restored) or self._is_formed()

    @property
    def is_quiet(self) -> bool:
        """True if no row waits, and no call."""
        return not (self._waiting or self._calls or self._ready or self._marks)

    def poll(self, *, is_end: bool) -> bool:
        """Send the results that are next, and begin further calls."""
        self._is_ending = self._is_ending or is_end
        before = self._running
        self._collect()
        has_moved = self._running < before or bool(self._ready)
        self._send()
        self._begin()
        return has_moved

    def _collect(self) -> None:
        """Take the calls that have ended."""
        if self._loop is not None:
            ended = self._loop.take_ended()
            if joint := [call for call in ended if type(call.result) is tuple]:
                self._results.convert(joint)
            for call in joint:
                if call.error is not None:
                    self._loop.count_failure(call)
            for call in ended:
                self._settle(call)
        while self._options.order is True and self._calls:
            first = next(iter(self._calls.values()))
            if first.outcome is None:
                break
            self._put_next(first)

    def _converted(self, result: Any, rows: int) -> Any:  # noqa: ARG002 - others look at the rows
        """Return what a function returned for so many rows as :meth:`_settle` takes it; in the loop's thread."""
        values = self._results.constants(result)
        return self._results.batches(result) if values is None else values

    def _settle(self, call: Call) -> None:
        """Say what becomes of a call that has ended."""
        error, on_error = call.error, self._options.on_error
        self._running -= 1
        call.outcome, call.result = call.result, None
        size = 0.0
        if error is not None:
            if on_error == "fail" or not isinstance(error, Exception):
                raise self._failure(call, error)
            is_null = on_error == "null"
            call.outcome = [null_rows(call.rows, self._schema)] if is_null else []
            if not is_null:
                call.refused = error_rows(call.rows, error, call.failed, call.call_id)
                size = call.refused.nbytes
            call.error = None
        if call.joint is not None:
            size += call.joint.size
        else:
            size += sum(batch.nbytes for batch in call.outcome or ())
        self._size += size - call.size
        call.size = size
        self._line_up(call)

    def _line_up(self, call: Call) -> None:
        """Let a call that has ended be sent, in its turn."""
        if self._options.order is False:
            self._put_next(call)
        elif self._options.order == "by_key":
            of_key = self._queues.get(call.order, deque())
            while of_key and of_key[0].outcome is not None:
                self._put_next(of_key.popleft())
            if not of_key:
                self._queues.pop(call.order, None)

    def _put_next(self, call: Call) -> None:
        del self._calls[call.first]
        self._ready.append(call)

    #: Options that take the rows of calls that have failed.
    _takes_errors = 'on_error="side_output"'

    def _failure(self, call: Call, error: BaseException) -> Exception:
        """Return the error of the attempt of the job."""
        if isinstance(error, HeadgateError):
            return error
        remedy = f"retries=3 · {self._takes_errors} · Retry(after=) for errors that pass"
        if isinstance(error, TimeoutError):
            remedy = f"a longer timeout= · {remedy}"
        failure = UserFunctionError(
            f"a call of {self._uid} failed in attempt {call.failed}: {type(error).__name__}: {error}",
            asked=f"call_id {call.call_id}",
            have=f"retries={self._options.policy.retries}, no {self._takes_errors}",
            remedy=remedy,
        )
        failure.__cause__ = error
        return failure

    def _send(self) -> None:
        """Emit the results that are next, then the watermarks before which there is no row left."""
        ready, self._ready = self._ready, []
        rows = rows_to_send(ready)
        errors = [call.refused for call in ready if call.refused is not None]
        self._size -= sum(call.size for call in ready)
        if rows:
            self._context.emit(joined(rows), None)
        if errors:
            self._context.emit(joined(errors), ERRORS)
        self._pass_on()

    def _pass_on(self) -> None:
        if self._ready:
            return  # those are sent first
        first = self._next - self._num_waiting
        if self._calls:
            first = next(iter(self._calls))
        passed: list[int | None] = []
        while self._marks and self._marks[0][0] <= first:
            passed.append(self._marks.popleft()[1])
        for mark in passed:
            self._context.pass_on(mark)

    # --- watermarks and time ---

    def advance_watermark(self, watermark: int) -> None:
        """Let a watermark wait for the rows before it."""
        self._mark(watermark)

    def set_idle(self) -> None:
        """Let idleness wait for the rows before it."""
        self._mark(None)

    def _mark(self, mark: int | None) -> None:
        if self._marks and self._marks[-1][0] == self._next and mark is not None:
            self._marks.pop()  # the new one says more
        self._marks.append((self._next, mark))
        self._begin()
        self._pass_on()

    @property
    def next_processing_timer(self) -> int | None:
        """Time at which the first rows have waited long enough."""
        return None if not self._waiting or self._is_formed() else self._waiting[0].due

    def advance_processing_time(self, now: int) -> None:
        """Begin the call of rows that have waited long enough."""
        if self._waiting and self._waiting[0].due <= now:
            self._is_due = True
            self._begin()

    # --- checkpoints ---

    @property
    def has_state(self) -> bool:
        """False: once all rows have ended no call is under way, so a later run needs nothing."""
        return False

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot | None:
        """Freeze rows that wait, calls and results; nothing is waited for."""
        if not (self._is_durable or savepoint):
            return None
        self._collect()
        self._call_state.store([*self._ready, *self._calls.values()], self._rows_that_wait())
        return super().snapshot(checkpoint, savepoint=savepoint)

    def _rows_that_wait(self) -> list[tuple[pa.RecordBatch, int]]:
        """Return the rows that are in no call, each with the number of the first one."""
        return [(part.rows, part.first) for part in self._waiting]

    def close(self) -> None:
        """End the calls, and close the function."""
        loop, self._loop = self._loop, None
        function, self._function = self._function, None
        try:
            if loop is not None:
                self._close_function(loop, function)
        finally:
            super().close()

    def _close_function(self, loop: CallLoop, function: CallFunction | None) -> None:
        closing = None
        if function is not None and (
            loop.is_for_coroutines or is_coroutine_function(function.close)
        ):
            closing = awaited(function.close)
        with calling(self._uid, "close"):
            loop.close(closing)
            if function is not None and closing is None:
                function.close()


def _emit_nothing(uid: str, rows: FunctionRows, output: str | None) -> None:  # noqa: ARG001 - as others
    raise StateError(
        f"open() of {uid} emits rows",
        remedy="rows that call() returns, since others are in no checkpoint",
    )
