"""The threads in which calls wait: one with an event loop, and those of plain functions. Decision: ADR 0060."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from headgate._kinds import is_coroutine_function
from headgate.errors import InternalError
from headgate.stream.graph.call_functions import CallContext, CallFunction
from headgate.stream.operators.calls.breaker import CallPauses, described
from headgate.stream.operators.calls.pace import CallPace
from headgate.stream.operators.calls.times import CallTimes
from headgate.stream.operators.calls.watch import WATCH, BlockedCalls, WatchedLoop

if TYPE_CHECKING:
    from headgate.stream.graph.call_rates import TokenLink
    from headgate.stream.graph.metrics import Metrics
    from headgate.stream.operators.calls.call import Call
    from headgate.stream.operators.calls.options import CallPolicy
    from headgate.stream.operators.calls.times import Wait

#: Seconds in which calls that are cancelled have to end.
_CANCEL: Final = 5.0
#: Limits of the seconds of attempts, five of each power of ten, so that a quantile is near.
_BOUNDS: Final = tuple(float(f"{10 ** (power / 5):.2g}") for power in range(-15, 16))


class CallLoop:
    """Makes the calls of one operator of a task.

    Args:
        name: of the threads.
        function: gets what a call is about, and its context.
        converted: gets what the function returned, and the number of rows of the call; errors are those of the call.
        policy: of all calls.
        most: calls at a time, and threads of a plain function.
        wake_up: called when calls have ended.
        metrics: counts them.
        tokens: of the rate, if the policy has one.
        shared: what the context of each call has.

    Attributes:
        times: of the calls, by what they wait for.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[Any, CallContext], Any],
        converted: Callable[[Any, int], Any],
        policy: CallPolicy,
        most: int,
        wake_up: Callable[[], None],
        metrics: Metrics,
        tokens: TokenLink | None = None,
        shared: Any = None,
    ) -> None:
        #: Calls that have ended and were not taken; the loop's thread adds them.
        self._ended: deque[Call] = deque()
        self._function = function
        self._converted = converted
        self._policy = policy
        self._shared = shared
        self._wake_up = wake_up
        self._calls = metrics.counter("calls")
        self._retries = metrics.counter("call_retries")
        self._errors = metrics.counter("call_errors")
        self._kinds = metrics.tally("call_error_kinds")
        self._histogram = metrics.histogram("call_seconds", _BOUNDS)
        #: Of attempts that are not in the histogram, which takes many at once.
        self._seconds: deque[float] = deque()
        if policy.rate is not None and tokens is None:
            raise InternalError(f"{name} have a rate, and nothing deals tokens")
        self._loop = asyncio.new_event_loop()
        self._pauses = None
        if policy.breaker is not None:
            self._pauses = CallPauses(name, policy.breaker, metrics, self._loop)
        self._pace = None
        if policy.rate is not None and tokens is not None:
            self._pace = CallPace(policy.rate, tokens, most, metrics, self._loop)
        self._is_soon = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._blocked = BlockedCalls(name, metrics)
        self.times = CallTimes(metrics)
        metrics.gauge("calls_most").set(most)
        self._threads = None if is_coroutine_function(function) else _Threads(name, most)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_for_coroutines(self) -> bool:
        """True if the function is a coroutine function."""
        return self._threads is None

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> None:
        """Run a coroutine in the loop, and wait for its end.

        Raises:
            TimeoutError: the time in seconds is over.
        """
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    def take_ended(self) -> list[Call]:
        """Return the calls that have ended since the last call of this."""
        seconds = [self._seconds.popleft() for _ in range(len(self._seconds))]
        if seconds:
            self._histogram.observe(seconds)
        if self._pace is not None:
            self._pace.observe()
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def count_failure(self, call: Call) -> None:
        """Count a call that has failed for good behind its last attempt, since its result does not fit."""
        call.failed += 1
        if call.error is not None:
            self._note_kind(call.error)
        self._errors.add()

    def _note_kind(self, error: BaseException) -> None:
        self._kinds.add(type(error).__name__, about=described(error))

    def begin(self, calls: Sequence[tuple[Call, Any]]) -> None:
        """Begin calls, each with what it is about."""
        self._loop.call_soon_threadsafe(self._begin, calls)

    def close(self, closing: Coroutine[Any, Any, Any] | None) -> None:
        """Cancel all calls, and end the threads; one that does not end in time is left alone.

        Args:
            closing: run in the loop behind the calls.
        """
        try:
            self.run(self._end(closing), _CANCEL)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CANCEL)
            if self._threads is not None:
                self._threads.close()

    # In the loop's thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self.times.note_loop()
        watched = WatchedLoop(
            threading.get_ident(),
            threading.get_native_id(),
            lambda: bool(self._tasks),
            self._blocked,
        )
        WATCH.add(watched)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            WATCH.remove(watched)
            self._loop.close()

    async def _end(self, closing: Coroutine[Any, Any, Any] | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if closing is not None:
            await closing

    def _begin(self, calls: Sequence[tuple[Call, Any]]) -> None:
        for call, about in calls:
            task = self._loop.create_task(self._attempts(call, about))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        WATCH.wake_up()

    async def _attempts(self, call: Call, about: Any) -> None:
        value = "" if self._pace is None else self._pace.value_of(about)
        is_over = is_under_way = False
        while not is_over:
            period = 0
            if self._pauses is not None or self._pace is not None:
                period = await self._permission(call, value, is_under_way=is_under_way)
            is_under_way = True
            error = await self._attempt(call, about)
            if self._pauses is not None:
                self._pauses.end(call.first, period, error)
            if self._pace is not None:
                self._pace.end(value, error)
            if error is None:
                break
            call.failed, call.result = call.failed + 1, None
            self._note_kind(error)
            is_over = not self._policy.is_retried(error, call.failed)
            if is_over:
                self._errors.add()
                call.error = error
            else:
                self._retries.add()
                with self._waiting("retries"):
                    await asyncio.sleep(self._policy.delay(error, call.failed))
        if self._pace is not None:
            self._pace.leave()
        self._ended.append(call)
        if not self._is_soon:
            # Once all that end now have ended, so that the task takes them together.
            self._is_soon = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        """Tell the task that calls have ended."""
        self._is_soon = False
        self._wake_up()

    @contextmanager
    def _waiting(self, wait: Wait) -> Iterator[None]:
        """Count a call among those that wait."""
        self.times.add(wait, 1)
        try:
            yield
        finally:
            self.times.add(wait, -1)

    async def _permission(self, call: Call, value: str, *, is_under_way: bool) -> int:
        """Wait until an attempt may begin; return its period of the pauses."""
        while True:
            if self._pauses is not None:
                with self._waiting("breaker"):
                    await self._pauses.wait(call.first)
            if self._pace is not None:
                with self._waiting("rate"):
                    await self._pace.begin(value, has_place=is_under_way)
                is_under_way = True
            # Only a call with a token is the single one that tries a service: a token may take an hour.
            period = 0 if self._pauses is None else self._pauses.begin()
            if period is not None:
                return period
            if self._pace is not None:
                self._pace.put_back(value)

    async def _attempt(self, call: Call, about: Any) -> BaseException | None:
        """Call the function once; return its error."""
        context = CallContext(call.call_id, call.failed + 1, self._shared)
        started = self._loop.time()
        self._calls.add()
        self.times.add("service", 1)
        limit = asyncio.timeout(self._policy.timeout)
        try:
            async with limit:
                if self._threads is None:
                    result = await self._function(about, context)
                else:
                    result = await self._threads.call(self._function, about, context)
            call.result = self._converted(result, call.length)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return error  # of something that the function waited for
        except BaseException as error:  # noqa: BLE001 - of the call, and not of the loop
            if isinstance(error, TimeoutError) and limit.expired() and not error.args:
                error.args = (f"no answer within timeout={self._policy.timeout:g} s",)
            return error
        finally:
            self.times.add("service", -1)
            self._seconds.append(self._loop.time() - started)
        return None


class _Threads:
    """Threads for calls that block. They do not keep the process alive: a call may never return.

    Args:
        name: of the threads.
        most: number of threads.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._number = self._busy = 0

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns in a thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def ended(result: Any, error: BaseException | None) -> None:
            self._busy -= 1
            if future.done():
                return  # nobody waits any more
            if isinstance(error, StopIteration):
                error = RuntimeError(f"the function raised {error!r}")  # no future takes it
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def run() -> None:
            result: Any = None
            failure: BaseException | None = None
            try:
                result = function(*arguments)
            except BaseException as error:  # noqa: BLE001 - of the call
                failure = error
            try:
                loop.call_soon_threadsafe(ended, result, failure)
            except RuntimeError:
                if not loop.is_closed():
                    raise

        self._busy += 1
        self._queue.put(run)
        if self._busy > self._number and self._number < self._most:
            self._number += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        result = await future
        return await result if isawaitable(result) else result

    def close(self) -> None:
        """Let the threads end when their calls return."""
        for _ in range(self._number):
            self._queue.put(None)

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            call()


def callable_of(function: Any, *, takes_context: bool) -> Callable[[Any, CallContext], Any]:
    """Return what is called with what a call is about, and its context.

    Args:
        function: of a user.
        takes_context: True if it takes the context.
    """
    if isinstance(function, CallFunction):
        function = function.call
    if takes_context:
        return function  # type: ignore[no-any-return]
    if is_coroutine_function(function):

        async def call(about: Any, _: CallContext) -> Any:
            return await function(about)

        return call
    return lambda about, _: function(about)


async def awaited(method: Callable[..., Any], *arguments: Any) -> None:
    """Call a method, which may be a coroutine function."""
    result = method(*arguments)
    if isawaitable(result):
        await result
