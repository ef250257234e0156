"""Makes sources known to a Spark session by names of the caller's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.source.registry import Registered


def register(spark: SparkSession, **sources: Registered) -> None:
    """Make the format ``headgate`` known to a session, with sources under names of your own.

    Sources that ship need no call: Spark finds the format by itself where the wheel is installed.
    A later call replaces the names of an earlier one.

    Args:
        spark: the session.
        sources: name -> a :class:`~headgate.source.Source` class with ``from_options``, or a source
            as it is. ``spark.read.format("headgate").option("source", name)`` then reads it.

    Raises:
        OptionError: something that is no source.
    """
    from headgate.source import Source  # noqa: PLC0415 - loads pyarrow
    from headgate.spark.datasource.data_source import HeadgateDataSource  # noqa: PLC0415

    for name, source in sources.items():
        kind = source if isinstance(source, type) else type(source)
        if not issubclass(kind, Source):
            raise OptionError(
                f"{name} is a {kind.__name__}, not a Source",
                asked=f"{name}={source!r}",
                remedy="a subclass of headgate.source.Source · an instance of one",
            )

    # A class of this function travels by value, with what it names.
    class Registered(HeadgateDataSource):
        """The data source with a caller's own names."""

        registered = sources

    spark.dataSource.register(Registered)
