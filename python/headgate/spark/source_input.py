"""A source in place of a DataFrame: is it one, can it end, and what are its rows in Spark's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from headgate.errors import NotBuiltError, OptionError
from headgate.spark.source_schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.source import Source
    from headgate.source.watermark import WatermarkStrategy
    from headgate.spark.tasks.task import SourcePlan


@dataclass(frozen=True, slots=True)
class SourceInput:
    """A source that readers in the producer tasks read.

    Attributes:
        source: bounded, its records are batches.
        name: the source's.
        schema: Spark's schema of the batches.
        watermarks: the strategy of its readers, or None.
    """

    source: Source[Any, Any, Any]
    name: str
    schema: StructType
    watermarks: WatermarkStrategy | None

    def plan(self, parallelism: int) -> SourcePlan:
        """Return what readers and enumerator of a run need, with so many readers."""
        from headgate.spark.tasks.task import SourcePlan  # noqa: PLC0415 - loads the native module

        return SourcePlan(self.source, self.name, parallelism, self.watermarks)


def source_input(source: Any, watermarks: Any) -> SourceInput:
    """Return the first argument of a call as a source.

    Raises:
        OptionError: it is neither a DataFrame nor a source, or a source that never ends, has no
            schema or no column, or cannot travel to the workers.
        UnsupportedTypeError: a column that Spark has no type for.
    """
    from headgate.source import Boundedness, Source  # noqa: PLC0415 - imports pyarrow
    from headgate.source.watermark import WatermarkStrategy  # noqa: PLC0415

    if isinstance(source, type) and issubclass(source, Source):
        raise OptionError(
            f"{source.__name__} is a class; an exchange reads an instance of it",
            asked=f"exchange({source.__name__}, ...)",
            remedy=f"exchange({source.__name__}(...), ...)",
        )
    if not isinstance(source, Source):
        raise OptionError(
            f"the first argument is a {type(source).__name__}, not a DataFrame or a source",
            remedy="a DataFrame of a classic session · a headgate.source.Source",
        )
    name = source.name
    if source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED:
        raise OptionError(
            f"source {name!r} never ends, and a run of an exchange must",
            asked=f"exchange() of {name!r}",
            have="boundedness CONTINUOUS_UNBOUNDED",
            remedy='spark.readStream.format("headgate") · headgate.source.read() · a bounded source',
        )
    if watermarks is not None and not isinstance(watermarks, WatermarkStrategy):
        raise OptionError(
            f"watermarks is a {type(watermarks).__name__}, not a WatermarkStrategy",
            remedy="watermarks=WatermarkStrategy.for_bounded_out_of_orderness(ms)",
        )
    _check_travels(name, source, watermarks)
    schema = source.schema
    if schema is None:
        raise OptionError(
            f"source {name!r} has no schema: its records are no batches",
            asked=f"exchange() of {name!r}",
            have="schema None",
            remedy="return the batches' schema from Source.schema · headgate.source.read()",
        )
    if not schema.names:
        raise OptionError(
            f"source {name!r} has no column, so there is nothing to send",
            remedy="keep one column at least",
        )
    return SourceInput(source, name, spark_schema(schema), watermarks)


def session_of(spark: Any) -> SparkSession:
    """Return the session that a source is read in; where none is given, the one that Spark would take.

    Raises:
        OptionError: there is none, or what is given is none.
        NotBuiltError: it is a Spark Connect one.
    """
    if _is_connect(spark):
        raise connect_error("session")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - pyspark only where Spark is

    found = _current_session() if spark is None else spark
    if _is_connect(found):
        raise connect_error("session")
    if not isinstance(found, SparkSession):
        raise OptionError(
            "a source needs a Spark session, and there is none"
            if spark is None
            else f"spark is a {type(spark).__name__}, not a SparkSession",
            asked=f"spark={spark!r}",
            remedy="exchange(source, spark=spark)",
        )
    return found


def _current_session() -> SparkSession | None:
    from pyspark import SparkContext  # noqa: PLC0415 - pyspark only where Spark is
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    if active is not None or SparkContext._active_spark_context is None:  # noqa: SLF001 - its getOrCreate looks there
        return active
    # A thread of the user's own has no active session; this is the application's.
    return SparkSession.builder.getOrCreate()


def refuse_for_table(df: Any, spark: Any, parallelism: Any, watermarks: Any) -> None:
    """Check that a call with a DataFrame asks for nothing that only a source has.

    Raises:
        OptionError: it does.
        NotBuiltError: the DataFrame is a Spark Connect one.
    """
    if _is_connect(df):
        raise connect_error("DataFrame")
    for name, value in (("parallelism", parallelism), ("watermarks", watermarks)):
        if value is not None:
            raise OptionError(
                f"{name} is for a source; a DataFrame has partitions of its own",
                asked=f"{name}={value!r}",
                remedy=f"leave {name} out · a headgate.source.Source in place of the DataFrame",
            )
    if spark is not None and spark is not df.sparkSession:
        raise OptionError(
            "the DataFrame belongs to another session than spark=",
            remedy="leave spark out: a DataFrame knows its session",
        )


def connect_error(what: str) -> NotBuiltError:
    """Return the error for what belongs to Spark Connect."""
    return NotBuiltError(
        f"exchange() needs a classic Spark session; this {what} belongs to Spark Connect",
        asked="a Spark Connect session",
        have="no Spark driver in this process",
    )


def is_table(data: Any) -> TypeGuard[DataFrame]:
    """Whether the first argument of a call is a DataFrame, of whatever kind."""
    return hasattr(data, "mapInArrow") or _is_connect(data)


def _is_connect(thing: Any) -> bool:
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(thing).__mro__)


def _check_travels(name: str, source: Any, watermarks: Any) -> None:
    from pyspark import cloudpickle  # noqa: PLC0415 - pyspark only where Spark is

    try:
        cloudpickle.dumps((source, watermarks))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise OptionError(
            f"source {name!r} cannot travel to the workers: {type(error).__name__}: {error}",
            remedy="open files and connections in create_reader() and create_enumerator()",
        ) from error
