"""The user's call for a file system with the settings of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headgate._arguments import path as checked_path
from headgate._arguments import refuse
from headgate.errors import OptionError
from headgate.spark.confs import is_connect

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    from pyspark.sql import SparkSession


def filesystem(uri: str, spark: SparkSession | None = None) -> pafs.FileSystem:
    """Return pyarrow's file system of a URI, with the settings ``spark.hadoop.fs.*`` of a session.

    Sources and sinks take it as ``filesystem=``, with paths without a scheme, such as ``"bucket/folder"``. It pickles
    with its keys. docs/sources.md has a table of the settings.

    Args:
        uri: a URI below ``s3a://``, ``s3://`` or ``gs://``, or of a local file.
        spark: the session; the active one if it is None.

    Raises:
        OptionError: There is no session, pyarrow has no such file system, or it cannot have one of the settings.
    """
    # Workers import headgate.spark, and need nothing that plans.
    from headgate.spark.plan.sources import session_of  # noqa: PLC0415
    from headgate.spark.stores import abfs  # noqa: PLC0415
    from headgate.spark.stores.located import store_of  # noqa: PLC0415

    uri = checked_path("uri", uri)
    session = session_of(spark)
    if is_connect(session):
        raise OptionError(
            "a client of Spark Connect does not see the settings of Hadoop",
            asked=f"filesystem({uri!r}, spark)",
            remedy="make a file system of pyarrow.fs with settings of your own",
        )
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise refuse("uri", uri, "is no URI", 'a URI such as "s3a://bucket"') from error
    if parts.scheme in abfs.CLASSES:
        raise OptionError(
            "pyarrow takes a folder that Hadoop has marked in Azure's storage for an empty file",
            remedy="exchange(spark.read.parquet(uri), ...), which lists files by Spark",
        )
    return store_of(session, parts)
