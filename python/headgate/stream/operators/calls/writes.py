"""The calls of an asynchronous sink: rows that the service does not take are written again, by themselves.

They are calls of ``map_async()``, whose results are rows that were refused for good. Decision: ADR 0060.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from headgate._kinds import is_coroutine_function
from headgate.errors import SchemaMismatchError
from headgate.stream.graph.call_functions import CallContext, CallFunction, Retry
from headgate.stream.graph.operator import instance_of
from headgate.stream.operators.calls.loop import Call
from headgate.stream.operators.calls.rows import error_rows

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import numpy.typing as npt

    from headgate.stream.graph.context import RuntimeContext


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """The end of rows that are not taken.

    Attributes:
        retries: most attempts after the first.
        retry_on: errors after which there is another one.
        has_refused: True if rows that are refused for good are the results; else they fail the call.
    """

    retries: int
    retry_on: tuple[type[Exception], ...]
    has_refused: bool


@dataclass(frozen=True, slots=True)
class _Rest:
    """Rows of a call that were not taken, and the number of writes before."""

    rows: pa.RecordBatch
    writes: int


class Writes(CallFunction):
    """Calls a plain function of a batch and a context, which writes.

    Args:
        function: of a user: a function, or an object or a class with ``call()``.
        takes_context: True if a function takes the context.
        policy: see there.
    """

    def __init__(self, function: Any, policy: WritePolicy, *, takes_context: bool) -> None:
        self._function_or_maker, self._takes_context = function, takes_context
        self._policy = policy
        self._function: Any = None
        #: By the name of the call. After a restart a call is made with all of its rows.
        self._rests: dict[str, _Rest] = {}

    def __deepcopy__(self, memo: object) -> Self:
        """Return one for another task: a function stays the same one, and an object is copied when it is opened."""
        return type(self)(self._function_or_maker, self._policy, takes_context=self._takes_context)

    def open(self, context: RuntimeContext) -> Awaitable[None] | None:
        """Open the function."""
        self._put_back = context.metrics.counter("rows_put_back")
        function = self._function_or_maker
        if not isinstance(function, (CallFunction, type)):
            return None
        self._function = instance_of(function)
        return self._function.open(context)  # type: ignore[no-any-return]

    def close(self) -> Awaitable[None] | None:
        """Close the function."""
        return None if self._function is None else self._function.close()

    def call(self, rows: pa.RecordBatch, context: CallContext) -> Any:
        """Write rows, or those of them that were not taken before; return those that are refused for good."""
        rest, write = self._begin(rows, context)
        try:
            return self._end(rest, context, self._written(rest, write))
        except Exception as error:  # noqa: BLE001 - of the user's function
            return self._failed(rest, context, error)

    def _written(self, rows: pa.RecordBatch, context: CallContext) -> Any:
        if self._function is not None:
            return self._function.call(rows, context)
        function = self._function_or_maker
        return function(rows, context) if self._takes_context else function(rows)

    def _begin(
        self, rows: pa.RecordBatch, context: CallContext
    ) -> tuple[pa.RecordBatch, CallContext]:
        """Return the rows to write, and the context under whose name: other rows have another one."""
        rest = self._rests.get(context.call_id)
        if context.attempt > self._policy.retries:
            self._rests.pop(context.call_id, None)  # also if its time ends
        if rest is None:
            return rows, context
        return rest.rows, CallContext(f"{context.call_id}-{rest.writes}", context.attempt)

    def _end(self, rows: pa.RecordBatch, context: CallContext, result: Any) -> list[pa.RecordBatch]:
        """Take note of rows that were not taken.

        Raises:
            Retry: there are some.
        """
        positions = _positions(result, rows.num_rows)
        if not len(positions):
            self._rests.pop(context.call_id, None)
            return []
        before = self._rests.get(context.call_id)
        writes = 1 if before is None else before.writes + 1
        self._rests[context.call_id] = _Rest(rows.take(pa.array(positions)), writes)
        raise Retry(f"{len(positions)} of {rows.num_rows} rows were not taken")

    def _failed(
        self, rows: pa.RecordBatch, context: CallContext, error: Exception
    ) -> list[pa.RecordBatch]:
        """Return rows that are refused for good.

        Raises:
            Exception: the error, if there is another attempt, or nothing takes these rows.
        """
        policy = self._policy
        if isinstance(error, SchemaMismatchError):
            raise error
        rest = self._rests.get(context.call_id)
        left = rows if rest is None else rest.rows
        if context.attempt <= policy.retries and isinstance(error, (Retry, *policy.retry_on)):
            self._put_back.add(left.num_rows)
            raise error
        self._rests.pop(context.call_id, None)
        if not policy.has_refused:
            raise error
        call = Call(0, context.call_id, left, 0, left.num_rows, 0.0, failed=context.attempt)
        return [error_rows(call, f"{type(error).__name__}: {error}")]


class CoroutineWrites(Writes):
    """Calls a coroutine function of a batch and a context, which writes."""

    async def call(self, rows: pa.RecordBatch, context: CallContext) -> Any:
        """Write rows as :meth:`Writes.call` does."""
        rest, write = self._begin(rows, context)
        try:
            result = self._written(rest, write)
            if isawaitable(result):
                result = await result
            return self._end(rest, context, result)
        except Exception as error:  # noqa: BLE001 - of the user's function
            return self._failed(rest, context, error)


class OpenedWrites(Writes):
    """Calls a plain function of an object that is opened or closed by coroutines."""

    async def open(self, context: RuntimeContext) -> None:
        """Open the function."""
        opening = super().open(context)
        if isawaitable(opening):
            await opening

    async def close(self) -> None:
        """Close the function."""
        closing = super().close()
        if isawaitable(closing):
            await closing


def writes_of(function: Any, policy: WritePolicy, *, takes_context: bool) -> Writes:
    """Return what calls a user's function, which was checked."""
    is_object = isinstance(function, CallFunction) or (
        isinstance(function, type) and issubclass(function, CallFunction)
    )
    if is_coroutine_function(function.call if is_object else function):
        return CoroutineWrites(function, policy, takes_context=takes_context)
    if is_object and any(map(is_coroutine_function, (function.open, function.close))):
        return OpenedWrites(function, policy, takes_context=takes_context)
    return Writes(function, policy, takes_context=takes_context)


def _positions(result: Any, rows: int) -> npt.NDArray[np.int64]:
    """Return the positions of rows that were not taken.

    Raises:
        SchemaMismatchError: the result is something else.
    """
    if result is None:
        return np.zeros(0, np.int64)
    try:
        values = np.asarray(result)
        is_right = values.ndim == 1 and (not values.size or values.dtype.kind in "iu")
    except (TypeError, ValueError):
        is_right = False
    if is_right and values.size:
        is_right = bool(values.min() >= 0 and values.max() < rows)
    if not is_right:
        raise SchemaMismatchError(
            f"a function of sink_async() returned {type(result).__name__}",
            have=f"positions from 0 to {rows - 1} of rows that were not taken, or None",
            remedy="return None · return [2, 5]",
        )
    return np.unique(values.astype(np.int64))
