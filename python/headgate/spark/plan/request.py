"""A checked call of exchange(): its input, schemas, partitioning and options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from headgate import _options
from headgate._arguments import refuse
from headgate._kinds import NOT_AWAITED, kind_of, why_no_call
from headgate._option_table import CONF_PREFIX
from headgate.errors import OptionError
from headgate.functions.per_key import PerKey
from headgate.selectors import HashSelector
from headgate.spark.confs import session_confs
from headgate.spark.encryption import with_tls
from headgate.spark.plan.keys import Columns, is_computed
from headgate.spark.plan.sources import SourceInput, is_table, source_input
from headgate.spark.plan.whole_groups import check_whole_groups
from headgate.spark.schema import arrow_schema, result_schema
from headgate.spark.source_schema import spark_schema
from headgate.spark.tasks.user_function import Order
from headgate.spark.worker_python import check_workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.batches import BatchFunction
    from headgate.selectors import Selector
    from headgate.source import Source
    from headgate.spark.plan.chain import Chain
    from headgate.spark.plan.keys import Key
    from headgate.spark.plan.sizes import Measured
    from headgate.spark.tasks.planned_source import PlannedSource

#: What ``by`` takes: names of columns and fields, Columns, a selector or a function.
By: TypeAlias = "str | Column | Iterable[str | Column] | Selector | None"


_FUNCTION: Final = "def f(batches): ..., which returns batches, a table or a DataFrame"


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """One of several inputs of :func:`headgate.spark.exchange`.

    Args:
        data: A DataFrame, or a source that ends and whose records are record batches.
        by: Which partition each row goes to, as in :func:`exchange`; by default as the call says.
        map: A function that makes the rows of this input, as in :func:`exchange`; None for its own.
        map_schema: The columns that ``map`` returns; by default those of the input.
        sort_within: Columns by which the rows of each partition are sorted before ``reduce`` gets them;
            by default as the call says.
        combine: A function that merges rows of this input, as in :func:`exchange`.
        broadcast: True to send all rows of this input, which should be small, to each call of ``reduce``. The
            rows of the only other input then stay in their partitions, whatever their keys are, and
            ``reduce`` is called once for each partition with rows. So ``reduce`` must take any part of
            these rows, as an inner or left join does. ``"auto"`` does so if the input has at most
            ``broadcast_bytes``, which the call measures: it runs ``map`` of this input. A larger one is
            moved by ``by``, as the other input is. So ``reduce`` must return the same either way.

    Example:
        >>> exchange([Input(trades, by="sym"), Input(quotes, by="symbol")], reduce=as_of, schema="...")
    """

    data: DataFrame | Source[Any, Any, Any]
    by: By = None
    map: BatchFunction | None = None
    map_schema: StructType | pa.Schema | str | None = None
    sort_within: str | Column | Iterable[str | Column] | None = None
    combine: BatchFunction | None = None
    broadcast: bool | Literal["auto"] = False


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A checked input of a call, with what it has in common with the others.

    Attributes:
        session: the session that runs the tasks.
        df: the input; None if the input is a source.
        source: the input; None if the input is a DataFrame.
        by: a list of keys, a selector, a callable, or None for round robin.
        sort_within: the keys by which the rows of a partition are sorted; empty if they are not.
        map: the function of the producers, or None.
        combine: the function that merges rows, or None.
        reduce: the function of the consumers, or None.
        input_schema: Arrow's schema of the input.
        wire: Spark's schema of the rows that are sent.
        wire_schema: Arrow's schema of the rows that are sent.
        result: Spark's schema of the result.
        result_schema: Arrow's schema of the result.
        options: the parsed options.
        planned: the source with its splits, once they are listed; None for a DataFrame.
        chain: the exchange whose result ``df`` is, if its tasks make the rows that are sent; else None.
        is_broadcast: True if each call of ``reduce`` gets all rows of the input.
        may_be_broadcast: True if the size of the input decides about that.
        measured: that size; None if it does not decide, or is not known yet.
    """

    session: SparkSession
    df: DataFrame | None
    source: SourceInput | None
    by: Any
    sort_within: list[Key]
    map: BatchFunction | None
    combine: BatchFunction | None
    reduce: BatchFunction | None
    input_schema: pa.Schema
    wire: StructType
    wire_schema: pa.Schema
    result: StructType
    result_schema: pa.Schema
    options: _options.Options
    planned: PlannedSource | None = None
    chain: Chain | None = None
    is_broadcast: bool = False
    may_be_broadcast: bool = False
    measured: Measured | None = None

    @property
    def map_option(self) -> str:
        """The name of the option that declares the columns of ``map``."""
        return "schema" if self.reduce is None else "map_schema"

    @property
    def has_computed_keys(self) -> bool:
        """True if only Spark can compute a key."""
        by = self.by if isinstance(self.by, list) else []
        return any(map(is_computed, [*by, *self.sort_within]))

    @property
    def order(self) -> Order | None:
        """The order in which ``reduce`` gets the rows, if a worker sorts them."""
        keys: Any = tuple(self.sort_within)
        return Order(keys, self.options["memory"]) if keys else None


def check(
    input_: Input,
    session: SparkSession,
    reduce: BatchFunction | None,
    schema: StructType | pa.Schema | str | None,
    options: Mapping[str, Any],
    *,
    name: str = "the first argument",
    is_alone: bool = True,
) -> Request:
    """Check an input of exchange(), and what all inputs have in common; return both as a request.

    Args:
        input_: the input.
        session: runs the tasks.
        reduce: makes the result.
        schema: the columns of the result.
        options: all other arguments.
        name: of the input, for error texts.
        is_alone: False if the exchange has other inputs.

    Raises:
        OptionError: An option is unknown or has a value that it does not take; there is a schema
            without a function whose columns it could declare, or a function without a schema; the
            DataFrame is streaming.
        UnknownColumnError: ``by`` names a column that the sent rows do not have.
        UnsupportedTypeError: A column has a type that cannot be sent, or cannot be a key.
        WorkerPythonError: The Python that runs tasks on this host cannot import headgate.
    """
    is_auto = isinstance(input_.broadcast, str) and input_.broadcast == "auto"
    if not is_auto and not isinstance(input_.broadcast, bool):
        takes = 'True, False or "auto"'
        raise refuse("broadcast", input_.broadcast, f"is not {takes}", takes)
    data = input_.data if is_table(input_.data) else source_input(input_.data, name)
    map = input_.map  # noqa: A001 - the name of the public interface
    options = {**options, "map_schema": input_.map_schema}
    chosen = _options.resolve("exchange", options, session_confs(session, CONF_PREFIX))
    chosen = with_tls(chosen, session)
    _check_functions(input_, reduce, is_alone=is_alone)
    if schema is not None and map is None and reduce is None:
        raise OptionError(
            "schema needs map or reduce, whose columns it declares",
            remedy="omit schema · pass map or reduce",
        )
    map_schema = chosen["map_schema"]
    if map_schema is not None and (map is None or reduce is None):
        raise OptionError(
            "map_schema is for the rows between map and reduce, and there is no "
            + ("map" if map is None else "reduce"),
            asked="map_schema=" + ("" if schema is None else " and schema="),
            have="no map" if map is None else "only map",
            remedy="omit map_schema · a map"
            if map is None
            else "omit map_schema: schema= declares the columns that map returns · a reduce",
        )
    if schema is None and (map is not None or reduce is not None):
        function_name = "map" if reduce is None else "reduce"
        raise OptionError(
            f"schema is missing: the columns that {function_name} returns",
            remedy='schema="user string, n long" · schema=df.schema for the columns of the input',
        )
    if not isinstance(data, SourceInput) and data.isStreaming:
        raise OptionError(
            "the DataFrame is streaming, and an exchange needs rows that end",
            remedy="df.writeStream.foreachBatch(f), where f(batch, number) calls exchange(batch, ...)",
        )
    result = data.schema if schema is None else struct_of(schema, "schema")
    wire = data.schema
    if map is not None:
        wire = result if reduce is None else wire
        wire = wire if map_schema is None else struct_of(map_schema, "map_schema")
    timezone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    wire_schema = arrow_schema(wire, timezone)
    check_workers(session)
    columns = Columns(
        wire,
        session.conf.get("spark.sql.caseSensitive") == "true",
        "the input" if map is None else "what map returns",
        not_computed=_why_not_computed(data, input_, chosen, is_alone),
    )
    keys = partitioning(input_.by, columns)
    if isinstance(reduce, PerKey):
        replace(columns, argument="per_key").keys(reduce.keys)
    check_whole_groups(map, reduce, keys, chosen["num_partitions"])
    _check_combine(input_.combine, reduce, wire)
    df, source = (None, data) if isinstance(data, SourceInput) else (data, None)
    sorted_by = replace(columns, argument="sort_within")
    return Request(
        session=session,
        df=df,
        source=source,
        by=keys,
        sort_within=[] if input_.sort_within is None else _keys(input_.sort_within, sorted_by),
        map=map,
        combine=input_.combine,
        reduce=reduce,
        input_schema=wire_schema if wire == data.schema else result_schema(data.schema, timezone),
        wire=wire,
        wire_schema=wire_schema,
        result=result,
        result_schema=result_schema(result, timezone),
        options=chosen,
        is_broadcast=input_.broadcast is True,
        may_be_broadcast=is_auto,
    )


def check_parameters(name: str, function: BatchFunction | None, inputs: int) -> None:
    """Refuse a function that cannot be called with so many inputs."""
    wrong = "" if function is None else why_no_call(function, inputs)
    if wrong:
        each = (
            "the batches of the input" if inputs == 1 else f"the batches of each of {inputs} inputs"
        )
        remedy = _FUNCTION if inputs == 1 else "a function with a parameter for each input"
        if wrong == NOT_AWAITED:
            remedy = f"{remedy} · headgate.spark.calls(df, f, schema=), which awaits a coroutine for each row"
        raise OptionError(f"{name} cannot be called with {each}: {wrong}", remedy=remedy)


def _check_functions(input_: Input, reduce: BatchFunction | None, *, is_alone: bool) -> None:
    """Refuse functions that cannot be called with batches."""
    functions = {"map": input_.map, "combine": input_.combine, "reduce": reduce}
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise OptionError(f"{name} is {kind_of(function)}, not a function", remedy=_FUNCTION)
        if name != "reduce" or is_alone:
            check_parameters(name, function, 1)


def _check_combine(
    combine: BatchFunction | None, reduce: BatchFunction | None, wire: StructType
) -> None:
    """Refuse ``combine`` where nothing would merge its results, or where there is nothing to merge."""
    if combine is None:
        return
    if reduce is None:
        raise OptionError(
            "combine needs reduce, which merges what combine returned for parts of a partition",
            asked="combine= without reduce=",
            remedy="reduce=f, which may be the same function · omit combine",
        )
    if not wire.fields:
        raise OptionError(
            "combine merges rows by their columns, and the rows that are sent have none",
            remedy="omit combine · select at least one column",
        )


def _why_not_computed(
    data: DataFrame | SourceInput, input_: Input, options: _options.Options, is_alone: bool
) -> str:
    """Return why Spark cannot compute keys from columns; empty if it can, since it moves the rows itself."""
    if input_.map is not None:
        return "Spark does not see the rows that map returns"
    if input_.combine is not None:
        return "Spark does not see the rows that combine returns"
    if isinstance(data, SourceInput):
        return "Spark does not see the rows of a source"
    if not is_alone:
        return "Spark does not see the rows of an exchange with several inputs"
    if options["mode"] == "kept":
        return 'Spark does not see the rows of an exchange with mode="kept"'
    return ""


def partitioning(by: Any, columns: Columns) -> Any:
    """Return the argument ``by`` as :class:`Request` has it."""
    from pyspark.sql import Column  # noqa: PLC0415 - pyspark only where Spark is

    if by is None:
        return None
    if isinstance(by, HashSelector):
        exact = replace(columns, case_sensitive=True, of="the rows that are sent")
        keys: Any = exact.keys(by.columns)
        return HashSelector(keys)
    if isinstance(by, type):
        raise OptionError(
            f"by is {kind_of(by)}, not an object of it", remedy=f"by={by.__name__}(...)"
        )
    if callable(by) and not isinstance(by, Column):
        wrong = why_no_call(by, 1)
        if wrong:
            raise OptionError(
                f"by is a function that cannot be called with a batch: {wrong}",
                remedy="def by(batch): return a partition number for each row",
            )
        return by
    if type(by).__module__.startswith("headgate"):
        return by
    return _keys(by, columns, ", a selector, or a function")


def _keys(names: Any, columns: Columns, others: str = "") -> list[Key]:
    """Return the keys that an argument names.

    Args:
        names: the argument.
        columns: what it may name.
        others: what else it takes, for the error text.
    """
    from pyspark.sql import Column  # noqa: PLC0415 - pyspark only where Spark is

    items = [names] if isinstance(names, (str, Column)) else names
    is_list = isinstance(items, Iterable) and not isinstance(items, Mapping)
    listed = list(items) if is_list else []
    if not listed or not all(isinstance(name, (str, Column)) for name in listed):
        column_names = columns.schema.names
        raise OptionError(
            f"{columns.argument} takes names of columns, or Columns{others}",
            asked=f"{columns.argument}={names!r}",
            have=", ".join(column_names) or "no columns",
            remedy=f'{columns.argument}="{column_names[0]}"'
            if column_names
            else "a DataFrame with columns",
        )
    return columns.keys(listed)


def struct_of(schema: StructType | pa.Schema | str, name: str) -> StructType:
    """Return a declared schema as Spark's."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    from pyspark.errors import ParseException  # noqa: PLC0415 - pyspark only where Spark is
    from pyspark.sql.types import StructType as Struct  # noqa: PLC0415

    if isinstance(schema, Struct):
        return schema
    if isinstance(schema, pa.Schema):
        return spark_schema(schema)
    if isinstance(schema, str):
        try:
            parsed = Struct.fromDDL(schema)
        except ParseException as error:
            reason = str(error.getMessage() or error).partition("\n")[0]
            raise OptionError(
                f"{name}={schema!r} is not a schema in Spark's DDL: {reason}",
                remedy=f'{name}="user string, n long"',
            ) from error
        if isinstance(parsed, Struct):
            return parsed
    raise OptionError(
        f"{name} is {kind_of(schema)}, not a DDL string, a StructType or a pyarrow.Schema",
        remedy=f'{name}="user string, n long"',
    )
