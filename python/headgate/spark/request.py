"""A checked call of exchange(): its input, schemas, partitioning and options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headgate import _options
from headgate._matches import close_matches
from headgate._option import CONF_PREFIX
from headgate.errors import OptionError
from headgate.selectors import HashSelector
from headgate.spark.confs import session_confs
from headgate.spark.keys import Columns, is_computed, words
from headgate.spark.schema import arrow_schema, result_schema
from headgate.spark.source_input import SourceInput
from headgate.spark.source_schema import spark_schema
from headgate.spark.tasks.user_function import Order
from headgate.spark.worker_python import check_workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.batches import BatchFunction
    from headgate.selectors import Selector
    from headgate.spark.keys import Key

#: What ``by`` takes: names of columns and fields, Columns, a selector or a function.
By: TypeAlias = "str | Column | Iterable[str | Column] | Selector | None"


@dataclass(frozen=True, slots=True)
class Request:
    """A checked call of exchange().

    Attributes:
        session: the session that runs the tasks.
        df: the input; None if the input is a source.
        source: the input; None if the input is a DataFrame.
        by: a list of keys, a selector, a callable, or None for round robin.
        sort_within: the keys by which the rows of a partition are sorted; empty if they are not.
        map: the function of the producers, or None.
        reduce: the function of the consumers, or None.
        given_schema: Arrow's schema of the input.
        wire: Spark's schema of the rows that are sent.
        wire_schema: Arrow's schema of the rows that are sent.
        result: Spark's schema of the result.
        result_schema: Arrow's schema of the result.
        options: the parsed options.
    """

    session: SparkSession
    df: DataFrame | None
    source: SourceInput | None
    by: Any
    sort_within: list[Key]
    map: BatchFunction | None
    reduce: BatchFunction | None
    given_schema: pa.Schema
    wire: StructType
    wire_schema: pa.Schema
    result: StructType
    result_schema: pa.Schema
    options: _options.Options

    @property
    def context(self) -> SparkContext:
        """The session's SparkContext."""
        return self.session.sparkContext

    @property
    def map_option(self) -> str:
        """The name of the option that declares the columns of ``map``."""
        return "schema" if self.reduce is None else "map_schema"

    @property
    def by_words(self) -> str:
        """The partitioning as text, for job descriptions."""
        if isinstance(self.by, list):
            return f"[{', '.join(map(words, self.by))}]"
        return "round robin" if self.by is None else type(self.by).__name__

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
    data: DataFrame | SourceInput,
    session: SparkSession,
    by: Any,
    map: BatchFunction | None,  # noqa: A002 - the name of the public interface
    reduce: BatchFunction | None,
    schema: StructType | pa.Schema | str | None,
    options: Mapping[str, Any],
    *,
    sort_within: Any = None,
    is_alone: bool = True,
) -> Request:
    """Check the arguments of exchange() and return them as a request.

    Args:
        data: the input.
        session: runs the tasks.
        by: as in exchange(), like the following.
        map: makes the rows to send.
        reduce: makes the result.
        schema: the columns of the result.
        options: all other arguments.
        sort_within: the columns by which the rows of a partition are sorted.
        is_alone: False if the exchange has other inputs.

    Raises:
        OptionError: An option is unknown or has a value that it does not take; there is a schema
            without a function whose columns it could declare, or a function without a schema; the
            DataFrame is streaming.
        UnknownColumnError: ``by`` names a column that the sent rows do not have.
        UnsupportedTypeError: A column has a type that cannot be sent, or cannot be a key.
        WorkerPythonError: The Python that runs tasks on this host cannot import headgate.
    """
    chosen = _options.resolve("exchange", options, session_confs(session, CONF_PREFIX))
    for name, function in (("map", map), ("reduce", reduce)):
        if function is not None and not callable(function):
            raise OptionError(f"{name} is a {type(function).__name__}, not a function")
    if schema is not None and map is None and reduce is None:
        raise OptionError(
            "schema needs map or reduce, whose columns it declares",
            asked=f"schema={schema!r}, without map and reduce",
            remedy="omit schema · pass map or reduce",
        )
    if schema is None and (map is not None or reduce is not None):
        name = "map" if reduce is None else "reduce"
        raise OptionError(
            f"schema is missing: the columns that {name} returns",
            remedy='schema="user string, n long" · schema=df.schema for the columns of the input',
        )
    if not isinstance(data, SourceInput) and data.isStreaming:
        raise OptionError(
            "the DataFrame is streaming, and an exchange needs rows that end",
            remedy="df.writeStream.foreachBatch(f), where f(batch, number) calls exchange(batch, ...)",
        )
    map_schema = chosen["map_schema"]
    if map_schema is not None and (map is None or reduce is None):
        raise OptionError(
            "map_schema needs both map and reduce",
            asked=f"map_schema={map_schema!r}",
            remedy="schema= for the columns of the only function",
        )
    result = data.schema if schema is None else _struct(schema, "schema")
    wire = data.schema
    if map is not None:
        wire = result if reduce is None else wire
        wire = wire if map_schema is None else _struct(map_schema, "map_schema")
    timezone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    wire_schema = arrow_schema(wire, timezone)
    check_workers(session)
    columns = Columns(
        wire,
        session.conf.get("spark.sql.caseSensitive") == "true",
        "the input" if map is None else "what map returns",
        not_computed=_why_not_computed(data, map, chosen, is_alone),
    )
    df, source = (None, data) if isinstance(data, SourceInput) else (data, None)
    return Request(
        session=session,
        df=df,
        source=source,
        by=_partitioning(by, columns),
        sort_within=_sort_within(sort_within, columns),
        map=map,
        reduce=reduce,
        given_schema=wire_schema if wire == data.schema else result_schema(data.schema, timezone),
        wire=wire,
        wire_schema=wire_schema,
        result=result,
        result_schema=result_schema(result, timezone),
        options=chosen,
    )


def _why_not_computed(
    data: DataFrame | SourceInput, map_: Any, options: _options.Options, is_alone: bool
) -> str:
    """Return why Spark cannot compute keys from columns; empty if it can, since it moves the rows itself."""
    if map_ is not None:
        return "Spark does not see the rows that map returns"
    if isinstance(data, SourceInput):
        return "Spark does not see the rows of a source"
    if not is_alone:
        return "Spark does not see the rows of an exchange with several inputs"
    mode: str = options["mode"]
    return (
        "" if mode == "auto" else f'Spark does not see the rows of an exchange with mode="{mode}"'
    )


def _partitioning(by: Any, columns: Columns) -> Any:
    from pyspark.sql import Column  # noqa: PLC0415 - pyspark only where Spark is

    if by is None:
        return None
    if isinstance(by, (str, Column)):
        by = [by]
    if isinstance(by, (list, tuple)):
        if not by or not all(isinstance(one, (str, Column)) for one in by):
            raise OptionError(
                "by takes names of columns, Columns, a selector or a function", asked=f"by={by!r}"
            )
        return columns.keys(by)
    if isinstance(by, HashSelector):
        exact = replace(columns, case_sensitive=True, of="the rows that are sent")
        keys: Any = exact.keys(by.columns)
        return HashSelector(keys)
    if callable(by) or type(by).__module__.startswith("headgate"):
        return by
    if isinstance(by, Iterable):
        return _partitioning(list(by), columns)
    near = close_matches(str(by), columns.schema.names)
    raise OptionError(
        f"by={by!r} is not a column name, a Column, a selector or a function",
        remedy=" · ".join(f"by={name!r}" for name in near),
    )


def _sort_within(names: Any, columns: Columns) -> list[Key]:
    from pyspark.sql import Column  # noqa: PLC0415 - pyspark only where Spark is

    if names is None:
        return []
    given = [names] if isinstance(names, (str, Column)) else names
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise OptionError(f"sort_within={names!r} is not a name of a column, or several")
    listed = list(given)
    if not all(isinstance(one, (str, Column)) for one in listed):
        raise OptionError(
            "sort_within takes names of columns, or Columns", asked=f"sort_within={names!r}"
        )
    return replace(columns, argument="sort_within").keys(listed)


def _struct(schema: StructType | pa.Schema | str, name: str) -> StructType:
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
            raise OptionError(
                f"{name}={schema!r} is not a schema in Spark's DDL",
                remedy=f'{name}="user string, n long"',
            ) from error
        if isinstance(parsed, Struct):
            return parsed
    raise OptionError(
        f"{name} is a {type(schema).__name__}, not a DDL string, a StructType or a pyarrow.Schema",
        remedy=f'{name}="user string, n long"',
    )
