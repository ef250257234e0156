"""A call of exchange(), checked: what is sent, what comes out, who gets which row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate import _options
from headgate._matches import close_matches
from headgate._option import CONF_PREFIX
from headgate.errors import OptionError
from headgate.spark.schema import arrow_schema, key_columns, result_schema
from headgate.spark.source_input import SourceInput
from headgate.spark.wire.messages import MAX_INDEXES

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.spark.tasks.user_function import BatchFunction


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for.

    Attributes:
        session: whose tasks do it.
        df: the input; None where it is a source.
        source: the input; None where it is a DataFrame.
        by: a list of column names, a selector, a callable, or None for round robin.
        map: runs in the producers, or None.
        reduce: runs in the consumers, or None.
        wire: Spark's schema of the rows that are sent.
        wire_schema: the same in Arrow.
        result: Spark's schema of the rows that come out.
        result_schema: the same in Arrow.
        options: parsed.
    """

    session: SparkSession
    df: DataFrame | None
    source: SourceInput | None
    by: Any
    map: BatchFunction | None
    reduce: BatchFunction | None
    wire: StructType
    wire_schema: pa.Schema
    result: StructType
    result_schema: pa.Schema
    options: _options.Options

    @property
    def context(self) -> SparkContext:
        """The application."""
        return self.session.sparkContext

    @property
    def map_option(self) -> str:
        """The option that declares what ``map`` returns."""
        return "schema" if self.reduce is None else "map_schema"

    @property
    def by_words(self) -> str:
        """The partitioning, for people."""
        if isinstance(self.by, list):
            return f"[{', '.join(self.by)}]"
        return "round robin" if self.by is None else type(self.by).__name__


def check(
    data: DataFrame | SourceInput,
    session: SparkSession,
    by: Any,
    map: BatchFunction | None,  # noqa: A002 - the name of the public interface
    reduce: BatchFunction | None,
    schema: StructType | str | None,
    options: Mapping[str, Any],
) -> Request:
    """Return the call as a request.

    Raises:
        OptionError: an unknown option, a value that it does not take, or a schema for nothing.
        UnknownColumnError: ``by`` names no column of the rows that are sent.
        UnsupportedTypeError: a column that cannot be sent, or be a key.
    """
    chosen = _options.resolve("exchange", options, _conf(session))
    if (chosen["num_partitions"] or 1) > MAX_INDEXES:
        raise OptionError(f"num_partitions={chosen['num_partitions']} is above {MAX_INDEXES}")
    for name, function in (("map", map), ("reduce", reduce)):
        if function is not None and not callable(function):
            raise OptionError(f"{name} is a {type(function).__name__}, not a function")
    if schema is not None and map is None and reduce is None:
        raise OptionError(
            "a schema without map and reduce",
            asked=f"schema={schema!r}",
            remedy="leave schema out · give map or reduce",
        )
    map_schema = chosen["map_schema"]
    if map_schema is not None and (map is None or reduce is None):
        raise OptionError(
            "map_schema is for a call with both map and reduce",
            asked=f"map_schema={map_schema!r}",
            remedy="schema, for what map or reduce returns when it is the only one",
        )
    result = data.schema if schema is None else _struct(schema, "schema")
    wire = data.schema
    if map is not None:
        wire = result if reduce is None else wire
        wire = wire if map_schema is None else _struct(map_schema, "map_schema")
    timezone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    wire_schema = arrow_schema(wire, timezone)
    if reduce is not None and schema is None:
        result = wire
    df, source = (None, data) if isinstance(data, SourceInput) else (data, None)
    return Request(
        session=session,
        df=df,
        source=source,
        by=_partitioning(session, by, wire, map),
        map=map,
        reduce=reduce,
        wire=wire,
        wire_schema=wire_schema,
        result=result,
        result_schema=result_schema(result, timezone),
        options=chosen,
    )


def _partitioning(session: SparkSession, by: Any, wire: StructType, map_: Any) -> Any:
    if by is None:
        return None
    if isinstance(by, str):
        by = [by]
    if isinstance(by, (list, tuple)):
        wrong = next((name for name in by if not isinstance(name, str)), None)
        if wrong is not None or not by:
            raise OptionError(
                "by takes names of columns, a selector or a function", asked=f"by={by!r}"
            )
        of = "the input" if map_ is None else "what map returns"
        sensitive = session.conf.get("spark.sql.caseSensitive") == "true"
        return key_columns(wire, by, case_sensitive=sensitive, of=of)
    columns = getattr(by, "columns", None)
    if isinstance(columns, (list, tuple)):
        key_columns(wire, columns, case_sensitive=True, of="the rows that are sent")
        return by
    if callable(by) or type(by).__module__.startswith("headgate"):
        return by
    if isinstance(by, Iterable):
        return _partitioning(session, list(by), wire, map_)
    near = close_matches(str(by), wire.names)
    raise OptionError(
        f"by={by!r} is no name of a column, selector or function",
        remedy=" · ".join(f"by={name!r}" for name in near),
    )


def _struct(schema: StructType | str, name: str) -> StructType:
    from pyspark.errors import ParseException  # noqa: PLC0415 - pyspark only where Spark is
    from pyspark.sql.types import StructType as Struct  # noqa: PLC0415

    if isinstance(schema, Struct):
        return schema
    if isinstance(schema, str):
        try:
            parsed = Struct.fromDDL(schema)
        except ParseException as error:
            raise OptionError(
                f"{name}={schema!r} is no schema", asked='as "user string, n long"'
            ) from error
        if isinstance(parsed, Struct):
            return parsed
    raise OptionError(f"{name} is a {type(schema).__name__}, not a DDL string or a StructType")


def _conf(session: SparkSession) -> dict[str, str]:
    found = dict(session.sparkContext.getConf().getAll())
    found.update(session.conf.getAll)
    return {k: v for k, v in found.items() if k.startswith(CONF_PREFIX)}
