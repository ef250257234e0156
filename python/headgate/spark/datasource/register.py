"""Registers sources with a Spark session under names of the caller's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import NotBuiltError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.source.registry import Registered


def register(spark: SparkSession, **sources: Registered) -> None:
    """Register sources under names of your own for the format ``headgate``.

    Built-in sources need no call: Spark finds the format in the installed wheel. A later call
    replaces the names of an earlier one.

    Args:
        spark: the session.
        sources: name -> a :class:`~headgate.source.Source` class with ``from_options``, or an
            instance. ``spark.read.format("headgate").option("source", name)`` then reads it.

    Raises:
        OptionError: a value is not a source.
        NotBuiltError: Spark 4.0 keeps the format as it found it.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - pyspark only where Spark is

    from headgate.source import Source  # noqa: PLC0415 - loads pyarrow
    from headgate.spark.datasource.data_source import HeadgateDataSource  # noqa: PLC0415
    from headgate.spark.plan.sources import session_of  # noqa: PLC0415

    spark = session_of(spark)
    for name, source in sources.items():
        kind = source if isinstance(source, type) else type(source)
        if not issubclass(kind, Source):
            raise OptionError(
                f"{name} is a {kind.__name__}, not a Source",
                asked=f"{name}={source!r}",
                remedy="a subclass of headgate.source.Source · an instance of one",
            )

    # Cloudpickle sends a class that is local to a function by value, together with its sources.
    class Registered(HeadgateDataSource):
        """The data source with a caller's own names."""

        registered = sources

    try:
        spark.dataSource.register(Registered)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        raise NotBuiltError(
            f"Spark {spark.version} keeps the format headgate as it found it in the wheel",
            asked=f"register({', '.join(sources)})",
            remedy='.option("source", "your.module:YourSource") · a newer Spark',
        ) from error
