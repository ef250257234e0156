"""The file system of the files that Spark has listed, by the settings of the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import OptionError
from headgate.spark.plan.read_auto.scan import Unsure
from headgate.spark.stores.located import located

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    from pyspark.sql import SparkSession


def located_files(session: SparkSession, uris: list[str]) -> tuple[pafs.FileSystem, list[str]]:
    """Return the file system of files that Spark has listed, and their paths in it.

    Raises:
        Unsure: There are none, or pyarrow may not read them as Spark does with the session's settings.
    """
    if not uris:
        raise Unsure("it has no files")
    try:
        return located(session, uris)
    except OptionError as error:
        raise Unsure(error.summary, error.remedy) from error
