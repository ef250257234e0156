"""A source as the input of exchange(): checks that it ends, has a schema and can be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from headgate._kinds import kind_of
from headgate._option_table import STREAM
from headgate.errors import OptionError
from headgate.spark.confs import is_connect
from headgate.spark.source_schema import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.source import Source


@dataclass(frozen=True, slots=True)
class SourceInput:
    """A checked source, which the producer tasks read.

    Attributes:
        source: a bounded source whose records are batches.
        name: name of the source.
        schema: Spark's schema of the batches.
        arrow_schema: Arrow's schema of the batches, as the source says.
        bytes: of what it reads; None if unknown.
    """

    source: Source[Any, Any, Any]
    name: str
    schema: StructType
    arrow_schema: pa.Schema
    bytes: int | None = None


def source_input(source: Any, what: str = "the first argument") -> SourceInput:
    """Check an input of exchange() and return it as a source.

    Args:
        source: the input.
        what: the input in words.

    Raises:
        OptionError: It is not a source, or a source that never ends, has no schema or no columns,
            or cannot be pickled for the workers.
        UnsupportedTypeError: A column has a type for which Spark has none.
    """
    from headgate.source import Boundedness, Source  # noqa: PLC0415 - imports pyarrow

    if isinstance(source, type) and issubclass(source, Source):
        raise OptionError(
            f"{source.__name__} is a class; exchange() needs an instance of it",
            asked=f"exchange({source.__name__}, ...)",
            remedy=f"exchange({source.__name__}(...), ...)",
        )
    if isinstance(source, SourceInput) or type(source).__name__ == "Input":
        raise OptionError(
            f"{what} is an Input, which is one of a list",
            remedy="exchange([Input(...), Input(...)], reduce=f, schema=...) · exchange(df, by=..., map=...)",
        )
    if not isinstance(source, Source):
        raise OptionError(
            f"{what} is {kind_of(source)}, not a DataFrame of Spark or a source",
            remedy=_to_spark(source),
        )
    name = source.name
    if source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED:
        raise OptionError(
            f"source {name!r} never ends; exchange() needs one that ends",
            asked=f"exchange() of {name!r}",
            have="boundedness CONTINUOUS_UNBOUNDED",
            remedy=f'{STREAM} · spark.readStream.format("headgate") · a bounded source',
        )
    _check_travels(name, source)
    schema = source.schema
    if schema is None:
        raise OptionError(
            f"source {name!r} has no schema; exchange() needs records that are Arrow batches",
            asked=f"exchange() of {name!r}",
            have="schema None",
            remedy="return the schema of the batches from Source.schema · headgate.source.read()",
        )
    if not schema.names:
        raise OptionError(
            f"source {name!r} has no columns, so there is nothing to send",
            remedy="give its schema at least one column",
        )
    return SourceInput(source, name, spark_schema(schema), schema)


def _to_spark(data: Any) -> str:
    """Return how to make a DataFrame of what was given."""
    if isinstance(data, str):
        return f"spark.table({data!r}) · spark.read.parquet({data!r}) · a headgate.source.Source"
    if hasattr(data, "toDF"):
        return "rdd.toDF() · a headgate.source.Source"
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "to_dict"):
        return "spark.createDataFrame(table) · a headgate.source.Source"
    return "a DataFrame of a Spark session · a headgate.source.Source"


def session_of(spark: Any) -> SparkSession:
    """Return the session that reads a source: ``spark``, or the active session if it is None.

    Raises:
        OptionError: No session is active, or ``spark`` is not a session.
    """
    if is_connect(spark):
        return spark  # type: ignore[no-any-return]
    from pyspark.sql import SparkSession  # noqa: PLC0415 - pyspark only where Spark is

    session = _current_session() if spark is None else spark
    if not isinstance(session, SparkSession) and not is_connect(session):
        raise OptionError(
            "there is no active Spark session"
            if spark is None
            else f"spark is {kind_of(spark)}, not a SparkSession",
            asked=f"spark={spark!r}",
            remedy="spark=spark" if spark is None else "a session of SparkSession.builder",
        )
    return session  # type: ignore[return-value]


def _current_session() -> SparkSession | None:
    from pyspark import SparkContext  # noqa: PLC0415 - pyspark only where Spark is
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    if active is not None or SparkContext._active_spark_context is None:  # noqa: SLF001 - its getOrCreate looks there
        return active
    # A thread that the user started has no active session, so take the application's.
    return SparkSession.builder.getOrCreate()


def refuse_for_table(df: Any, spark: Any, parallelism: Any) -> None:
    """Refuse the arguments that are for sources only, in a call with a DataFrame.

    Raises:
        OptionError: The call has ``parallelism``, or ``spark`` is not the session of the DataFrame.
    """
    if parallelism is not None:
        raise OptionError(
            "parallelism is for sources; the input is a DataFrame, which has partitions already",
            asked=f"parallelism={parallelism!r}",
            remedy="omit parallelism · pass a headgate.source.Source instead of the DataFrame",
        )
    if spark is not None and spark is not df.sparkSession:
        raise OptionError(
            "spark= is another session than that of the DataFrame",
            remedy="omit spark: the DataFrame has its session",
        )


def is_table(data: Any) -> TypeGuard[DataFrame]:
    """Return True if the first argument of a call is a DataFrame, classic or of Spark Connect."""
    return hasattr(data, "mapInArrow") or is_connect(data)


def _check_travels(name: str, source: Any) -> None:
    from pyspark import cloudpickle  # noqa: PLC0415 - pyspark only where Spark is

    try:
        cloudpickle.dumps(source)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise OptionError(
            f"source {name!r} cannot be pickled for the workers: {type(error).__name__}: {error}",
            remedy="open files and connections in create_reader() and create_enumerator()",
        ) from error
