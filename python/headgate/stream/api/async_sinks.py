"""The call of streams that writes to a service, many batches at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate._arguments import takes, whole
from headgate.sink import FunctionSink, Sink
from headgate.stream.api.call_rates import check_rate
from headgate.stream.api.calls import AsyncCalls, call_options, check_function
from headgate.stream.api.checks import OPERATOR, check_sink, refuse_added, refuse_changes
from headgate.stream.api.job import StreamingJob
from headgate.stream.api.stream_calls import StreamT
from headgate.stream.operators.calls.rows import ERROR_COLUMNS, WRITES, error_schema
from headgate.stream.operators.calls.writes import WriteCallOperator
from headgate.stream.operators.sinks import SinkOperator
from headgate.stream.state.types import check_columns

if TYPE_CHECKING:
    from headgate.stream.graph.call_functions import CallFunction

_REMEDY = (
    "async def write(batch, context): ... · def write(batch): ... · class Writes(CallFunction)"
)


class AsyncSinkCalls(AsyncCalls[StreamT]):
    """A stream, as far as it writes to services."""

    @takes(in_flight=whole(1, 1 << 20), retries=whole(), batch_rows=whole(1), **OPERATOR)
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
        breaker: float | None = None,
        rate: str | None = None,
        rate_min: str | None = None,
        rate_name: str | None = None,
        refused: Sink | None = None,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamingJob:
        """Write the rows to a service by calls, many at a time; return the job, as :meth:`DataStream.sink` does.

        The calls are those of :meth:`map_async`: rows that wait and calls under way are part of each checkpoint, which waits for
        none of them. After a restart those calls are made again, under the same ``call_id``: the service has each row at least once.
        Rows that the service has not taken are put back, and are part of later calls. Calls end in any order.

        Args:
            function: gets a batch and, if it takes one, a :class:`CallContext`; a plain function, each call of which has a thread, a
                coroutine function, or a :class:`CallFunction` such as :class:`HttpPost` or its class. It returns None if the service
                has taken all rows, or the positions of the rows that it has not. Those are put back after the time of ``backoff=``.
            batch_rows: most rows of a call.
            batch_bytes: most bytes of a call, about.
            batch_wait: how long rows wait for others to fill a batch.
            in_flight: most calls at a time of a task.
            in_flight_bytes: of the rows of calls: with so many, no further call begins.
            timeout: of an attempt, in seconds or as ``"30s"``; None for any time.
            retries: most attempts of a call after the first, and most times that a row is put back.
            backoff: before the second attempt; see :meth:`map_async`.
            retry_on: errors after which there is another attempt; never :class:`Refusal`.
            breaker: share of attempts behind which calls pause; see :meth:`map_async`.
            rate: most attempts in a time, of all tasks together; see :meth:`map_async`.
            rate_min: see there.
            rate_name: see there.
            refused: takes the rows of calls that have failed for good, and rows that were not taken, with ``_error``, ``_attempts``
                and ``_call_id`` behind their columns. None to fail the job's attempt.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            StreamError: the rows change, so their order counts; columns of the stream have names of those of ``refused``.
        """
        takes_context = check_function(function, "a batch", _REMEDY)
        refuse_changes("sink_async()", self.schema, "KafkaSink · FunctionSink")
        check_columns(self.schema)
        refuse_added("sink_async()", self.schema, [*ERROR_COLUMNS.names, WRITES])
        schema = error_schema(self.schema)
        if refused is not None:
            check_sink(refused, schema)
        rates = check_rate(rate, None, rate_min, rate_name, self.schema, is_batch=True)
        options = call_options(
            batches=(batch_rows, batch_bytes, batch_wait),
            room=(in_flight, in_flight_bytes),
            attempts=(timeout, retries, backoff, retry_on),
            breaker=breaker,
            rate=rates,
            order=False,
            on_error="fail" if refused is None else "side_output",
            takes_context=takes_context,
        )
        make = partial(
            WriteCallOperator, function, self.schema, options, has_refused=refused is not None
        )
        called = self._then("sink_async", name, make, schema, parallelism, rate=rates)
        sink = FunctionSink(_ignore) if refused is None else refused
        node = called._add(  # noqa: SLF001 - of this class
            "sink", None, partial(SinkOperator, sink), pa.schema([]), is_sink=True
        )
        return StreamingJob(self._graph, node)


def _ignore(batch: pa.RecordBatch) -> None:
    """Take the rows that are refused, of which there are none."""
