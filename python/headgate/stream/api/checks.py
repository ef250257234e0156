"""Checks of the arguments of streams, so that a wrong one is refused at the call and not in a task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate._arguments import Check, arrow_schema, function, instance, refuse, text, whole
from headgate._changes import CHANGE_TYPE, is_changing
from headgate._kinds import NOT_AWAITED, is_coroutine_function, kind_of, why_no_call
from headgate._matches import close_matches
from headgate.errors import StreamError
from headgate.key_groups import MAX_KEY_GROUPS
from headgate.sink.api import Sink
from headgate.source import Source, WatermarkStrategy
from headgate.stream.graph.nodes import OwnWorkers
from headgate.stream.graph.operator import is_maker
from headgate.stream.state.types import column_index, no_rows
from headgate.stream.windows.aggregates import Aggregate
from headgate.stream.windows.kinds import (
    CountWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    check_times,
)
from headgate.stream.windows.top import Top

#: Calls of keyed streams, of jobs, and of Flink and Spark, each with what to write on any stream.
_ELSEWHERE: Final = {
    "join": '.key_by("user").join(other.key_by("user"))',
    "keys": '.key_by("user").keys',
    "start": ".sink(FunctionSink(print)).start()",
    "run": ".sink(FunctionSink(print)).run()",
    "plan": ".sink(FunctionSink(print)).plan()",
    "print": ".sink(FunctionSink(print))",
    "add_sink": ".sink(...)",
    "sink_to": ".sink(...)",
    "execute": ".sink(...).run()",
    "flat_map": ".map(f), which returns any number of rows",
    "group_by": '.key_by("user")',
    "groupBy": '.key_by("user")',
    "keyBy": '.key_by("user")',
    "where": ".filter(...)",
    "select": '.map(lambda batch: batch.select(["user"]))',
}


def no_such_call(kind: str, name: str, calls: Sequence[str]) -> StreamError:
    """Return the error for an attribute that a stream does not have."""
    near = [f".{call}(...)" for call in close_matches(name, calls)]
    return _NoSuchCall(
        f"a {kind} has no {name}()",
        have=", ".join(calls),
        remedy=_ELSEWHERE.get(name) or " · ".join(near) or "build the job as docs/streams.md does",
    )


class _NoSuchCall(StreamError, AttributeError):
    """So that ``hasattr`` and ``copy`` work on streams."""


#: Names of resources.
_RESOURCE: Final = re.compile(r"[A-Za-z][\w.-]*")
#: Checks of what each operator takes.
OPERATOR: Final[dict[str, Check]] = {"name": text, "parallelism": whole(1, MAX_KEY_GROUPS)}


def _source(name: str, value: Any) -> None:
    """Check a source, or a DataFrame of Spark.

    Raises:
        OptionError: the value is neither.
    """
    if not isinstance(value, Source) and not hasattr(value, "mapInArrow"):
        remedy = 'stream(FileSource("clicks/*.parquet")) · stream(RateSource(1000)) · stream(df)'
        takes = "a Source of record batches, or a DataFrame of Spark"
        raise refuse(name, value, f"is {kind_of(value)}", takes, remedy)


SOURCE: Final[dict[str, Check]] = {
    "source": _source,
    "watermarks": instance(
        "a WatermarkStrategy",
        WatermarkStrategy,
        remedy='WatermarkStrategy.for_bounded_out_of_orderness(5000).with_timestamp_assigner("at")',
    ),
    **OPERATOR,
}


def _check_shared(name: str, load: Any) -> None:
    """Check what loads an object for the tasks of a process.

    Raises:
        OptionError: it is no function without arguments, or its calls have to be awaited.
    """
    function(name, load, 0, "def load(): return Model(...)")
    if is_coroutine_function(load):
        takes = "a function that returns the object"
        remedy = "def load(): ... · open() of a CallFunction, for what belongs to an event loop"
        raise refuse(name, load, "is a coroutine function", takes, remedy)


#: The check of what tasks share.
SHARED: Final[dict[str, Check]] = {"shared": _check_shared}


def _check_resources(name: str, value: Any) -> None:
    """Check amounts of resources by their names.

    Raises:
        OptionError: the value has something else.
    """
    takes = "amounts by the names that Spark has for resources"
    remedy = 'resources={"gpu": 1} · resources={"gpu": 0.5} · resources={"cpus": 4}'
    if not isinstance(value, Mapping):
        raise refuse(name, value, f"is {kind_of(value)}", takes, remedy)
    if not value:
        raise refuse(name, value, "has none", takes, remedy)
    for resource, amount in value.items():
        if not isinstance(resource, str) or not _RESOURCE.fullmatch(resource):
            raise refuse(name, value, f"has {resource!r}, which is no name", takes, remedy)
        is_number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
        # Spark takes the same parts, and no part of a core.
        is_whole = is_number and amount >= 1 and amount % 1 == 0
        if not is_whole and (not is_number or resource == "cpus" or not 0 < amount < 1):
            what = "a whole number" if resource == "cpus" else "a whole number, or a part of 1"
            raise refuse(name, value, f"has {amount!r} of {resource}", f"{takes}: {what}", remedy)


#: Checks of what a stage takes for itself.
OWN: Final[dict[str, Check]] = {"workers": whole(1, MAX_KEY_GROUPS), "resources": _check_resources}


def chosen_workers(workers: int | None, resources: Mapping[str, float] | None) -> OwnWorkers | None:
    """Return the workers that an operator has for itself; None if it asks for none."""
    if workers is None and resources is None:
        return None
    return OwnWorkers(workers, dict(resources or {}))


def refuse_added(call: str, rows: pa.Schema, added: Iterable[str]) -> None:
    """Refuse rows that have a column which a call adds, to its result or to its errors.

    Raises:
        StreamError: they have one.
    """
    for name in added:
        if name in rows.names:
            raise StreamError(
                f"{call} of a stream with a column {name!r}, which it adds",
                have=", ".join(rows.names),
                remedy="map() that gives the column another name",
            )


def check_side_outputs(schemas: Any) -> dict[str, pa.Schema]:
    """Return the schemas of side outputs by name.

    Raises:
        OptionError: they are none.
    """
    if schemas is None:
        return {}
    if not isinstance(schemas, Mapping) or not all(isinstance(n, str) and n for n in schemas):
        raise refuse(
            "side_outputs",
            schemas,
            f"is {kind_of(schemas)}",
            "a dict of schemas by name",
            'side_outputs={"late": schema}',
        )
    for name, schema in schemas.items():
        arrow_schema(f"side_outputs[{name!r}]", schema)
    return {name: schema.remove_metadata() for name, schema in schemas.items()}


def check_predicate(predicate: Any, schema: pa.Schema) -> None:
    """Check what a filter keeps.

    Raises:
        OptionError: neither an expression nor a function of a batch.
        StreamError: the expression does not fit the schema.
    """
    if not isinstance(predicate, pc.Expression):
        function("predicate", predicate, 1, 'pc.field("price") > 3 · lambda batch: ...')
        return
    try:
        no_rows(schema).filter(predicate)
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise StreamError(
            f"filter({predicate}) does not fit the rows: {reason}",
            have=", ".join(f"{field.name} {field.type}" for field in schema),
            remedy="name columns of the stream · compare them with values of their types",
        ) from error


def check_process(function: Any, base: type, methods: Sequence[str]) -> None:
    """Check what ``process()`` is to call.

    Args:
        function: an instance, or what makes one.
        base: the class, whose own methods but ``open`` and ``close`` only raise.
        methods: that an instance has.

    Raises:
        OptionError: it is neither.
    """
    kind = base.__name__
    takes = f"a {kind}: an object, its class, or a function that makes one"
    remedy = f"class Count({kind}): def {methods[1]}(self, batch, context): ..."
    if is_maker(function):
        wrong = why_no_call(function, 0)
        if wrong:
            raise refuse(
                "function", function, f"cannot be called without arguments: {wrong}", takes, remedy
            )
    if not is_maker(function) or isinstance(function, type):
        of = function if isinstance(function, type) else type(function)
        missing = [
            name
            for name in methods
            if not callable(getattr(function, name, None))
            or (name not in {"open", "close"} and getattr(of, name, None) is getattr(base, name))
        ]
        if missing:
            raise refuse(
                "function",
                function,
                f"is {kind_of(function)}, without {missing[0]}()",
                takes,
                remedy,
            )
        waiting = [name for name in methods if is_coroutine_function(getattr(function, name))]
        if waiting:
            wrong = f"has {waiting[0]}(), which cannot be called: {NOT_AWAITED}"
            raise refuse("function", function, wrong, takes, remedy)


def check_call_column(name: str, value: Any, rows: pa.Schema, *, is_batch: bool) -> None:
    """Check a column that says something of each call.

    Args:
        name: of the option.
        value: of the option.
        rows: schema of the stream.
        is_batch: True if calls have several rows.

    Raises:
        OptionError: it is no text, or a column of another type, or calls have several rows.
        UnknownColumnError: there is no such column.
    """
    of = rows.field(column_index(rows, text(name, value), f"{name}={{}}")).type
    if is_batch:
        remedy = f"a call per row · no {name}="
        raise refuse(name, value, "with batches of rows", "a column, of one row", remedy)
    if not (pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_integer(of)):
        takes = "a column of texts or whole numbers"
        raise refuse(name, value, f"is a column of type {of}", takes, "a map() before it")


def check_sink(sink: Any, schema: pa.Schema) -> None:
    """Check that a sink can write streams, and these columns.

    Raises:
        OptionError: it is none.
        HeadgateError: it cannot take the columns.
    """
    if not isinstance(sink, Sink):
        raise refuse(
            "sink",
            sink,
            f"is {kind_of(sink)}, not a headgate.sink.Sink",
            "a Sink",
            'FileSink("out", mode="append") · FunctionSink(lambda batch: ...)',
        )
    sink.check_schema(schema)


def check_window(
    window: Any, time: Any, aggregates: Any, of_rows: Any, top: Any, schema: pa.Schema
) -> tuple[Aggregate, ...]:
    """Check the arguments of a window; return the aggregates.

    Raises:
        OptionError: one has a wrong type.
        UnknownColumnError: the stream has no column of times of this name.
        StateError: the column has no times.
    """
    if not isinstance(window, (TumblingWindow, SlidingWindow, SessionWindow, CountWindow)):
        raise refuse(
            "window",
            window,
            f"is {kind_of(window)}",
            "a kind of windows",
            'TumblingWindow("1 minute") · SlidingWindow("1 minute", "10 seconds") · SessionWindow("30 minutes")',
        )
    if time is not None:
        check_times(schema, text("time", time))
    if of_rows is not None:
        function("function", of_rows, 1, "def f(windows): ..., which returns rows")
    if top is not None and not isinstance(top, Top):
        raise refuse("top", top, f"is {kind_of(top)}", "a Top", 'top=Top(3, by="price")')
    is_several = isinstance(aggregates, Sequence) and not isinstance(aggregates, (str, bytes))
    if not is_several or not all(isinstance(item, Aggregate) for item in aggregates):
        raise refuse(
            "aggregates",
            aggregates,
            f"is {kind_of(aggregates)}",
            "a list of Aggregate",
            'aggregates=[Aggregate("sum", "price")]',
        )
    return tuple(aggregates)


def check_keys(keys: Sequence[Any]) -> None:
    """Check that keys are names of columns.

    Raises:
        StreamError: one is none, or is there twice, or there is no key.
    """
    if not keys:
        raise StreamError("key_by() without columns", remedy='key_by("user")')
    for key in keys:
        if not isinstance(key, str):
            is_names = isinstance(key, (list, tuple)) and all(isinstance(k, str) for k in key)
            arguments = ", ".join(f'"{name}"' for name in key) if is_names and key else '"user"'
            raise StreamError(
                f"key_by({key!r}): a key is the name of a column, and this is {kind_of(key)}",
                remedy=f"key_by({arguments})"
                + ("" if is_names else " · make the key a column in a map() before"),
            )
    if len(set(keys)) < len(keys):
        names = ", ".join(f'"{name}"' for name in dict.fromkeys(keys))
        raise StreamError(
            f"key_by() with a column twice: {', '.join(keys)}", remedy=f"key_by({names})"
        )


def wrong_stream(call: str, other: Any, remedy: str) -> StreamError:
    """Return the error for an argument that is no stream of the right kind."""
    return StreamError(f"{call} of {kind_of(other)}", remedy=remedy)


def check_suffixes(suffixes: Any) -> tuple[str, str]:
    """Return what the columns of each side get behind a name that both have.

    Raises:
        OptionError: no pair of texts.
    """
    is_pair = isinstance(suffixes, (tuple, list)) and len(suffixes) == 2
    if not is_pair or not all(isinstance(suffix, str) for suffix in suffixes):
        raise refuse(
            "suffixes",
            suffixes,
            f"is {kind_of(suffixes)}",
            "a pair of texts",
            'suffixes=("", "_right")',
        )
    return suffixes[0], suffixes[1]


def refuse_changes(call: str, schema: pa.Schema, remedy: str) -> None:
    """Refuse a stream with changes.

    Raises:
        StreamError: it has some.
    """
    if is_changing(schema):
        raise StreamError(
            f"{call} of a stream whose rows change", have=f"a column {CHANGE_TYPE}", remedy=remedy
        )
