"""The call of streams whose functions wait for a service or a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, Literal

from headgate._arguments import (
    arrow_schema,
    duration,
    milliseconds,
    refuse,
    size,
    takes,
    whole,
)
from headgate._changes import is_changing
from headgate._kinds import kind_of, parameters_taken
from headgate.errors import OptionError, StreamError
from headgate.stream.api.call_memos import check_memo, check_memo_ttl, edge_of_digests
from headgate.stream.api.call_rates import check_rate
from headgate.stream.api.checks import (
    OPERATOR,
    OWN,
    SHARED,
    check_call_column,
    chosen_workers,
    refuse_added,
    refuse_changes,
)
from headgate.stream.api.stream_calls import StreamCalls, StreamT
from headgate.stream.graph.call_functions import CallFunction
from headgate.stream.graph.limits import UNLIMITED, BatchLimits, batch_limits
from headgate.stream.graph.nodes import Shipping
from headgate.stream.operators.calls.memo import MemoCallOperator
from headgate.stream.operators.calls.operator import AsyncCallOperator
from headgate.stream.operators.calls.options import CallOptions, CallPolicy
from headgate.stream.operators.calls.rows import (
    ERROR_COLUMNS,
    ERRORS,
    error_schema,
    is_same_column,
)
from headgate.stream.state.types import check_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.graph.call_rates import CallRate

#: Rows of a batch that only has a limit of bytes.
_ANY_ROWS = 1 << 40
_REMEDY = "async def f(row): ... · def f(row, context): ... · class Embed(CallFunction)"


class AsyncCalls(StreamCalls[StreamT]):
    """A stream, as far as it calls functions that wait."""

    @takes(
        schema=arrow_schema,
        in_flight=whole(1, 1 << 20),
        retries=whole(),
        **SHARED,
        **OWN,
        **OPERATOR,
    )
    def map_async(
        self,
        function: Callable[..., Any] | CallFunction | type[CallFunction],
        *,
        schema: pa.Schema,
        in_flight: int = 64,
        in_flight_bytes: int | str = "64m",
        ordered: Literal[True, False, "by_key"] = True,
        timeout: float | str | None = 60,
        retries: int = 0,
        backoff: float | str = 1,
        retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        on_error: Literal["fail", "side_output", "null"] = "fail",
        batch_rows: int | None = None,
        batch_bytes: int | str | None = None,
        batch_wait: float | str = 0,
        call_id: str | None = None,
        memo: Literal[True] | str | Callable[[dict[str, Any]], Any] | None = None,
        memo_ttl: timedelta | str | None = None,
        breaker: float | None = None,
        rate: str | None = None,
        rate_by: str | None = None,
        rate_min: str | None = None,
        rate_name: str | None = None,
        shared: Callable[[], Any] | None = None,
        workers: int | None = None,
        resources: Mapping[str, float] | None = None,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamT:
        """Call a function that waits, such as for a service or a model, with many calls at a time.

        Rows that wait, calls, and results that were not sent are part of each checkpoint. After a restart such calls are
        made again, under the same ``call_id``, and results are sent without a call. Watermarks wait for the rows before
        them, so no row gets late by a slow call.

        Args:
            function: a coroutine function, whose calls share a thread; a plain function, each call of which has a thread; or a
                :class:`CallFunction`, or its class. It gets a row as a dict, or with ``batch_rows=`` or ``batch_bytes=`` a
                batch, and as a second argument, if it takes one, a :class:`CallContext`. It returns a dict or several, or
                rows as for :meth:`map`; ``[]`` for no rows; None is an error.
            schema: of the result. A column that a dict does not have is null.
            in_flight: most calls at a time of a task, those that wait for their next attempt included.
            in_flight_bytes: of the rows of calls, and of results that wait to be sent: with so many, no further call begins.
                Each call that is under way may add its result.
            ordered: True for results in the order of the task's rows; False for results as they come; ``"by_key"`` for the order
                of the rows of each key, on a keyed stream, with a call per row.
            timeout: of an attempt, in seconds or as ``"30s"``; None for any time. A plain function goes on until it returns,
                and its result is dropped.
            retries: most attempts after the first.
            backoff: before the second attempt, twice as long before each further one, up to a minute; each time a random
                part of it, from half to all. :class:`Retry` says how long to wait instead, and so does ``Retry-After`` of an answer of
                429 or 503, in the exception of an HTTP client.
            retry_on: errors after which there is another attempt. A result of another schema is never tried again.
            on_error: what becomes of a call that has failed: ``"fail"`` ends the attempt of the job; ``"side_output"`` puts
                its rows into ``side_output("errors")``, with ``_error``, ``_attempts`` and ``_call_id``; ``"null"``
                gives its rows with the columns that they share with ``schema``, and nulls.
            batch_rows: most rows of a call, which then gets a batch.
            batch_bytes: most bytes of a call's batch, about.
            batch_wait: how long rows wait for others to fill a batch.
            call_id: column of texts or whole numbers that names the calls, which have a row each. A service that takes it as
                an idempotency key then knows also a call that is made again for a row behind the last checkpoint. A row
                with null, and all rows without ``call_id=``, have names that are made.
            memo: what makes rows equal: a column, or a function of a row as a dict that returns a text, a number, or a tuple of
                such values; True for all columns. The result of a call is remembered, in keyed state, and sent for equal rows
                without a call; those that come while it is under way wait for it. Columns that the rows have too, with the same name and
                type, are each row's own: a call that changes one fails. Errors are not remembered. A call with several
                rows has those that need one, and returns a row for each, in their order. On a stream without
                keys equal rows are sent to one task; on a keyed one only rows of the same key are equal.
            memo_ttl: how long a result is remembered, from its call on; None for ever.
            breaker: share of attempts, such as 0.5: if more of a task's last 20 to 100 ones have failed, its calls pause, first for
                a second, and twice as long each time up to a minute. Then single calls are made: the first error begins the next
                pause, and after three results all calls go on. ``query.status`` has a notice. None for no pause.
            rate: most attempts in a time, of all tasks together, such as ``"500/s"``, ``"30/min"`` or ``"1000/h"``; any, if not given.
                Rows wait for it without a call. Each answer of 429, that is a :class:`Retry` with ``after=`` or an exception
                whose ``status``, ``status_code`` or ``code`` it is, lowers the rate; it grows again.
            rate_by: column of texts or whole numbers: each value of it has the rate for itself. Null is a value too. Rows of a
                value that waits do not stop others, up to 4,096 of them.
            rate_min: lowest rate to which such answers lead; a hundredth of ``rate`` if not given, and none is lowered if it equals
                ``rate``.
            rate_name: operators of all jobs of this driver that have the same name share one rate.
            shared: loads what all calls share, such as a model: a function without arguments. Each process of the job calls it once, also
                for several operators that have the same function, and over restarts. ``context.shared`` is what it returns, which must
                be safe for threads; it is closed at the end of the job, if it has ``close()`` or is a context manager.
            workers: number of processes, or Spark tasks, that run this operator and those chained behind it, and nothing
                else. Each has a task if ``parallelism`` is not given.
            resources: what each of these workers takes for itself on Spark, such as ``{"gpu": 1}`` or ``{"cpus": 4}``. If
                ``workers`` is not given, there is one for each task. On one machine, and in Spark's local mode,
                it is a label that nothing enforces.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            StreamError: ``ordered="by_key"`` without keys; ``ordered=False`` for rows that change; columns of the stream that have
                a name of those of the side output; ``memo=`` of rows that change.
            UnsupportedTypeError: a column of a type whose rows pyarrow cannot choose.
            UnknownColumnError: no column is named as ``call_id``, ``memo`` or ``rate_by`` says.
        """
        check_columns(self.schema)
        check_columns(schema)
        schema = schema.remove_metadata()
        takes_context = check_function(function, "a row", _REMEDY)
        is_batch = batch_rows is not None or batch_bytes is not None
        _check_order(ordered, self._keys, self.schema, is_batch=is_batch)
        _check_on_error(on_error, self.schema, schema)
        if call_id is not None:
            check_call_column("call_id", call_id, self.schema, is_batch=is_batch)
        rates = check_rate(rate, rate_by, rate_min, rate_name, self.schema, is_batch=is_batch)
        options = call_options(
            batches=(batch_rows, batch_bytes, batch_wait),
            room=(in_flight, in_flight_bytes),
            attempts=(timeout, retries, backoff, retry_on),
            breaker=breaker,
            rate=rates,
            order=ordered,
            on_error=on_error,
            takes_context=takes_context,
            call_id=call_id,
        )
        digests = check_memo(memo, self.schema, self._keys)
        ttl = check_memo_ttl(memo_ttl, memo)
        outputs = {ERRORS: error_schema(self.schema)} if on_error == "side_output" else {}
        own_workers = chosen_workers(workers, resources)
        more: dict[str, Any] = {"rate": rates, "shared": shared, "workers": own_workers}
        make: Callable[[], Any]
        if digests is None:
            make = partial(AsyncCallOperator, function, self.schema, self._keys, schema, options)
            # A buffer is the least that load decides about.
            is_by_load = any(edge.shipping is Shipping.LOAD for edge in self._edges)
            most = BatchLimits(options.rows or in_flight) if is_by_load else UNLIMITED
            return self._then(
                "map_async", name, make, schema, parallelism, outputs, limits=most, **more
            )
        edge = edge_of_digests(self, digests, self._keys, name, parallelism, own_workers)
        if self._keys:
            more["workers"] = None
        keys = self._keys or edge.keys
        make = partial(MemoCallOperator, function, edge.schema, keys, schema, options, ttl)
        inputs = [edge]
        return self._then(
            "map_async", name, make, schema, parallelism, outputs, inputs=inputs, **more
        )


def call_options(
    *,
    batches: tuple[Any, Any, Any],
    room: tuple[int, Any],
    attempts: tuple[Any, int, Any, Any],
    breaker: Any,
    rate: CallRate | None,
    order: Literal[True, False, "by_key"],
    on_error: Literal["fail", "side_output", "null"],
    takes_context: bool,
    call_id: str | None = None,
) -> CallOptions:
    """Return how rows become calls.

    Args:
        batches: ``batch_rows``, ``batch_bytes`` and ``batch_wait`` of :meth:`AsyncCalls.map_async`.
        room: ``in_flight`` and ``in_flight_bytes``.
        attempts: ``timeout``, ``retries``, ``backoff`` and ``retry_on``.
        breaker: as there.
        rate: of the calls.
        order: ``ordered``.
        on_error: as there.
        takes_context: True if a function takes the context.
        call_id: as there.

    Raises:
        OptionError: a value is none that it takes.
    """
    limits = batch_limits(*batches[:2])
    is_batch = limits.rows is not None or limits.bytes is not None
    wait = milliseconds("batch_wait", batches[2], 0)
    if wait and not is_batch:
        raise refuse("batch_wait", batches[2], "without batches", "0", "batch_rows=64")
    timeout, retries, backoff, retry_on = attempts
    policy = CallPolicy(
        None if timeout is None else duration("timeout", timeout, 0.001),
        retries,
        duration("backoff", backoff, 0),
        _classes(retry_on),
        _share(breaker),
        rate,
    )
    return CallOptions(
        policy,
        room[0],
        size("in_flight_bytes", room[1], 1),
        order,
        on_error,
        (limits.rows or _ANY_ROWS) if is_batch else None,
        limits.bytes,
        wait,
        takes_context,
        call_id,
    )


def check_function(function: Any, rows: str, remedy: str) -> bool:
    """Check what is to be called; return True if it takes the context of a call.

    Args:
        function: of a user.
        rows: what it gets, for the message.
        remedy: the functions that are right.

    Raises:
        OptionError: it is none.
    """
    of = function if isinstance(function, type) else type(function)
    if issubclass(of, CallFunction):
        wrong = parameters_taken(function, 0) if isinstance(function, type) else ""
        if wrong or of.call is CallFunction.call:
            wrong = f"cannot be made without arguments: {wrong}" if wrong else "has no call()"
            raise refuse("function", function, wrong, "a CallFunction", remedy)
        # Bound to what stands for an instance, unless it is a static method.
        called = getattr_static(of, "call").__get__(function, of)
    elif isinstance(function, type) or not callable(function):
        wrong = f"is {kind_of(function)}"
        raise refuse("function", function, wrong, "a function or a CallFunction", remedy)
    else:
        called = function
    if not parameters_taken(called, 2):
        return True
    wrong = parameters_taken(called, 1)
    if wrong:
        takes = f"a function of {rows}, or of {rows} and a context"
        raise refuse("function", function, f"cannot be called: {wrong}", takes, remedy)
    return False


def _check_order(ordered: Any, keys: tuple[str, ...], rows: pa.Schema, *, is_batch: bool) -> None:
    choices = 'True, False or "by_key"'
    if ordered not in (True, False, "by_key") or isinstance(ordered, int) != isinstance(
        ordered, bool
    ):
        raise refuse("ordered", ordered, "is unknown", choices)
    if ordered == "by_key" and is_batch:
        raise refuse(
            "ordered",
            ordered,
            "with batches, whose rows have several keys",
            f"{choices}; with batches True or False",
            "ordered=True · a call per row",
        )
    if ordered == "by_key" and not keys:
        raise StreamError(
            'map_async(ordered="by_key") on a stream without keys', remedy='key_by("user") before'
        )
    if ordered is False and is_changing(rows):
        refuse_changes("map_async(ordered=False)", rows, 'ordered=True · ordered="by_key"')


def _check_on_error(on_error: Any, rows: pa.Schema, schema: pa.Schema) -> None:
    if on_error not in ("fail", "side_output", "null"):
        raise refuse("on_error", on_error, "is unknown", '"fail", "side_output" or "null"')
    refuse_added("map_async()", rows, ERROR_COLUMNS.names)
    never_null = [
        field.name for field in schema if not field.nullable and not is_same_column(rows, field)
    ]
    if on_error == "null" and never_null:
        raise OptionError(
            f"on_error='null' and a column {never_null[0]!r} that is never null",
            have=", ".join(rows.names),
            remedy='a nullable column in schema= · on_error="side_output"',
        )


def _share(breaker: Any) -> float | None:
    takes = "a share above 0 and below 1, or None"
    if breaker is None:
        return None
    if not isinstance(breaker, float):
        raise refuse("breaker", breaker, f"is {kind_of(breaker)}", takes, "breaker=0.5")
    if not 0 < breaker < 1:
        raise refuse("breaker", breaker, "is no part of the calls", takes, "breaker=0.5")
    return breaker


def _classes(retry_on: Any) -> tuple[type[Exception], ...]:
    classes = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in classes):
        raise refuse(
            "retry_on",
            retry_on,
            f"is {kind_of(retry_on)}",
            "a class of exceptions, or a tuple of them",
            "retry_on=(TimeoutError, ConnectionError)",
        )
    return classes
