"""A checked call of exchange(): its input, schemas, partitioning and options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate import _options
from headgate._matches import close_matches
from headgate._option import CONF_PREFIX
from headgate.errors import OptionError
from headgate.spark.confs import session_confs
from headgate.spark.schema import arrow_schema, key_columns, result_schema
from headgate.spark.source_input import SourceInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.batches import BatchFunction


@dataclass(frozen=True, slots=True)
class Request:
    """A checked call of exchange().

    Attributes:
        session: the session that runs the tasks.
        df: the input; None if the input is a source.
        source: the input; None if the input is a DataFrame.
        by: a list of column names, a selector, a callable, or None for round robin.
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
    """Check the arguments of exchange() and return them as a request.

    Raises:
        OptionError: An option is unknown or has a value that it does not take; there is a schema
            without a function whose columns it could declare.
        UnknownColumnError: ``by`` names a column that the sent rows do not have.
        UnsupportedTypeError: A column has a type that cannot be sent, or cannot be a key.
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
        given_schema=wire_schema if wire == data.schema else result_schema(data.schema, timezone),
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
            raise OptionError("by takes column names, a selector or a function", asked=f"by={by!r}")
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
        f"by={by!r} is not a column name, a selector or a function",
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
                f"{name}={schema!r} is not a schema in Spark's DDL",
                remedy=f'{name}="user string, n long" · a StructType',
            ) from error
        if isinstance(parsed, Struct):
            return parsed
    raise OptionError(
        f"{name} is a {type(schema).__name__}, not a DDL string or a StructType",
        remedy=f'{name}="user string, n long" · a StructType',
    )
