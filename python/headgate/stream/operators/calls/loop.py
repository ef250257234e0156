"""The threads in which calls wait: one with an event loop, and those of plain functions. Decision: ADR 0060."""

from __future__ import annotations

import asyncio
import queue
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import InternalError
from headgate.stream.graph.call_functions import CallContext, CallFunction, Retry
from headgate.stream.operators.calls.breaker import ANSWERS, CallPauses
from headgate.stream.operators.calls.pace import CallPace

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.graph.call_rates import CallRate, TokenLink
    from headgate.stream.graph.metrics import Metrics

#: Most seconds between two attempts, unless the service asks for more.
_LONGEST_BACKOFF: Final = 60.0
#: Seconds in which calls that are cancelled have to end.
_CANCEL: Final = 5.0
#: So many rows may wait for the rate of a slow value while others are called.
_WAITING: Final = 4096


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """How often and how long a call is tried.

    Attributes:
        timeout: most seconds of an attempt; None for any time.
        retries: most attempts after the first.
        backoff: seconds before the second attempt; twice as many before each further one.
        retry_on: classes of errors after which it is called again, beside Retry.
        breaker: calls pause if more than this share of attempts fails; None if they never do.
        rate: of attempts in all tasks; None for any.
    """

    timeout: float | None
    retries: int
    backoff: float
    retry_on: tuple[type[Exception], ...]
    breaker: float | None = None
    rate: CallRate | None = None

    @property
    def num_waiting(self) -> int:
        """Most calls of a task that wait for the tokens of their values, beside those under way."""
        return 0 if self.rate is None or self.rate.column is None else _WAITING

    def is_retried(self, error: BaseException, failed: int) -> bool:
        """Return True if a call goes on after an error.

        Args:
            error: of the attempt.
            failed: number of attempts so far.
        """
        # Rows of a wrong schema are the function's mistake, which it would make again.
        is_for_retry = isinstance(error, (Retry, *self.retry_on)) and not isinstance(error, ANSWERS)
        return failed <= self.retries and is_for_retry

    def delay(self, error: BaseException, failed: int) -> float:
        """Return the seconds before the next attempt: what the service asks for, or a random part of the back-off."""
        if isinstance(error, Retry) and error.after is not None:
            return error.after
        longest = min(_LONGEST_BACKOFF, self.backoff * 2.0 ** min(failed - 1, 30))
        return longest * random.uniform(0.5, 1)  # noqa: S311 - so that calls do not come all at once


@dataclass(slots=True, eq=False)
class Call:
    """One call, from when its rows are chosen until its result is sent.

    Attributes:
        first: number of its first row, by arrival at the task.
        call_id: see :class:`CallContext`.
        batch: has its rows.
        start: position of the first one.
        length: number of rows.
        size: bytes of its rows, then of its result, about.
        order: class of its key, where the order by key counts.
        failed: number of attempts that have failed.
        result: what the function returned, as the operator converts it, before the task has taken it.
        outcome: the rows of its result; None before it has ended. Only the task's thread sets it.
        error: that ended it.
        refused: its rows with the error, for the side output.
        group: its key group in the checkpoint that it comes from, if it had ended there; else that of its rows.
        digest: of its row, if results are remembered.
    """

    first: int
    call_id: str
    batch: pa.RecordBatch
    start: int
    length: int
    size: float
    order: int = 0
    failed: int = 0
    result: Any = None
    outcome: list[pa.RecordBatch] | None = None
    error: BaseException | None = None
    refused: pa.RecordBatch | None = None
    group: int | None = None
    digest: bytes = b""

    @property
    def rows(self) -> pa.RecordBatch:
        """Its rows."""
        return self.batch.slice(self.start, self.length)


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
    ) -> None:
        #: Calls that have ended and were not taken; the loop's thread adds them.
        self._ended: deque[Call] = deque()
        self._function = function
        self._converted = converted
        self._policy = policy
        self._wake_up = wake_up
        self._calls = metrics.counter("calls")
        self._retries = metrics.counter("call_retries")
        self._errors = metrics.counter("call_errors")
        self._histogram = metrics.histogram("call_seconds")
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
        self._tasks: set[asyncio.Task[None]] = set()
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
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
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

    async def _attempts(self, call: Call, about: Any) -> None:
        value = "" if self._pace is None else self._pace.value_of(about)
        is_over = is_under_way = False
        while not is_over:
            period = await self._permission(value, is_under_way=is_under_way)
            is_under_way = True
            error = await self._attempt(call, about)
            if self._pauses is not None:
                self._pauses.end(period, error)
            if self._pace is not None:
                self._pace.end(value, error)
            if error is None:
                break
            call.failed += 1
            is_over = not self._policy.is_retried(error, call.failed)
            if is_over:
                self._errors.add()
                call.error = error
            else:
                self._retries.add()
                await asyncio.sleep(self._policy.delay(error, call.failed))
        if self._pace is not None:
            self._pace.leave()
        self._ended.append(call)
        self._wake_up()

    async def _permission(self, value: str, *, is_under_way: bool) -> int:
        """Wait until an attempt may begin; return its period of the pauses."""
        while True:
            if self._pauses is not None:
                await self._pauses.wait()
            if self._pace is not None:
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
        context = CallContext(call.call_id, call.failed + 1)
        started = self._loop.time()
        self._calls.add()
        try:
            async with asyncio.timeout(self._policy.timeout):
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
            return error
        finally:
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
        return function.call
    if takes_context:
        return function  # type: ignore[no-any-return]
    if is_coroutine_function(function):

        async def call(about: Any, _: CallContext) -> Any:
            return await function(about)

        return call
    return lambda about, _: function(about)


def is_coroutine_function(function: Any) -> bool:
    """Return True if calls of a function or of an object return coroutines."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - of an object


async def awaited(method: Callable[..., Any], *arguments: Any) -> None:
    """Call a method, which may be a coroutine function."""
    result = method(*arguments)
    if isawaitable(result):
        await result
