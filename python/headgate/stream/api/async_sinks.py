"""The call of streams that writes to a service, many batches at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from headgate._arguments import refuse, takes, whole
from headgate._kinds import kind_of, parameters_taken
from headgate.sink import FunctionSink, Sink
from headgate.stream.api.calls import AsyncCalls
from headgate.stream.api.checks import OPERATOR, check_sink, refuse_changes
from headgate.stream.api.job import StreamingJob
from headgate.stream.api.stream_calls import StreamT
from headgate.stream.graph.call_functions import CallFunction
from headgate.stream.operators.calls.rows import ERRORS, error_schema
from headgate.stream.operators.calls.writes import WritePolicy, writes_of
from headgate.stream.operators.sinks import SinkOperator

_REMEDY = (
    "async def write(batch, context): ... · def write(batch): ... · class Writes(CallFunction)"
)


class AsyncSinkCalls(AsyncCalls[StreamT]):
    """A stream, as far as it writes to services."""

    @takes(retries=whole(), batch_rows=whole(1), **OPERATOR)
    def sink_async(
        self,
        function: Callable[..., Any] | CallFunction | type[CallFunction],
        *,
        batch_rows: int = 500,
        batch_bytes: int | str = "4m",
        batch_wait: float | str = 0.1,
        in_flight: int = 16,
        in_flight_bytes: int | str = "64m",
        timeout: float | str | None = 60,
        retries: int = 10,
        backoff: float | str = 1,
        retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        refused: Sink | None = None,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamingJob:
        """Write the rows to a service by calls, many at a time; return the job, as :meth:`DataStream.sink` does.

        The calls are those of :meth:`map_async`: rows that wait and calls under way are part of each checkpoint, which waits for
        none of them. After a restart those calls are made again, under the same ``call_id``, with all of their rows: the service has
        each row at least once. Calls end in any order.

        Args:
            function: gets a batch and, if it takes one, a :class:`CallContext`; a plain function, each call of which has a thread, a
                coroutine function, or a :class:`CallFunction` or its class. It returns None if the service has taken all rows,
                or the positions of the rows that it has not. Those are written again by the next attempt, under a ``call_id`` of its
                own, since they are another request.
            batch_rows: most rows of a call.
            batch_bytes: most bytes of a call, about.
            batch_wait: how long rows wait for others to fill a batch.
            in_flight: most calls at a time of a task.
            in_flight_bytes: of the rows of calls: with so many, no further call begins.
            timeout: of an attempt, in seconds or as ``"30s"``; None for any time.
            retries: most attempts of a call after the first.
            backoff: before the second attempt; see :meth:`map_async`.
            retry_on: errors after which there is another attempt.
            refused: takes the rows of calls that have failed for good, as far as they were not taken, with ``_error``, ``_attempts``
                and ``_call_id`` behind their columns; after a timeout all rows of the call. None to fail the job's attempt.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            StreamError: the rows change, so their order counts; columns of the stream have names of those of ``refused``.
        """
        takes_context = _check_function(function)
        refuse_changes("sink_async()", self.schema, "KafkaSink · FunctionSink")
        schema = error_schema(self.schema)
        if refused is not None:
            check_sink(refused, schema)
        classes = retry_on if isinstance(retry_on, tuple) else (retry_on,)
        policy = WritePolicy(retries, classes, refused is not None)
        called = self.map_async(
            writes_of(function, policy, takes_context=takes_context),
            schema=schema,
            in_flight=in_flight,
            in_flight_bytes=in_flight_bytes,
            ordered=False,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            retry_on=retry_on,
            on_error="fail" if refused is None else "side_output",
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            batch_wait=batch_wait,
            parallelism=parallelism,
            name=name or "sink_async",
        )
        edges = called._edges  # noqa: SLF001 - of this class
        if refused is not None:
            edges = (*edges, *called.side_output(ERRORS)._edges)  # type: ignore[attr-defined]  # noqa: SLF001 - of this class
        make = partial(SinkOperator, FunctionSink(_ignore) if refused is None else refused)
        rows = self._of(*edges)._then("sink", None, make, pa.schema([]), None, is_sink=True)  # noqa: SLF001 - of this class
        return StreamingJob(self._graph, rows._edges[0].node)  # noqa: SLF001 - of this class


def _ignore(batch: pa.RecordBatch) -> None:
    """Take the rows that are refused, of which there are none."""


def _check_function(function: Any) -> bool:
    """Check a function that writes; return True if it takes the context. :meth:`map_async` checks objects.

    Raises:
        OptionError: it is none.
    """
    of = function if isinstance(function, type) else type(function)
    if issubclass(of, CallFunction):
        wrong = parameters_taken(function, 0) if isinstance(function, type) else ""
        if wrong or of.call is CallFunction.call:
            wrong = f"cannot be made without arguments: {wrong}" if wrong else "has no call()"
            raise refuse("function", function, wrong, "a CallFunction", _REMEDY)
        return True
    wrong = "" if callable(function) and not isinstance(function, type) else kind_of(function)
    if wrong:
        raise refuse("function", function, f"is {wrong}", "a function that writes", _REMEDY)
    takes_context = not parameters_taken(function, 2)
    wrong = "" if takes_context else parameters_taken(function, 1)
    if wrong:
        takes = "a function of a batch, or of a batch and a context"
        raise refuse("function", function, f"cannot be called: {wrong}", takes, _REMEDY)
    return takes_context
