"""Makes pyarrow's file systems from a session's settings of Hadoop. Decision: ADR 0047."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from headgate.spark.confs import context_confs
from headgate.spark.slots import local_attempts
from headgate.spark.stores import abfs, gs, s3a
from headgate.spark.stores.settings import Settings, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow.fs as pafs
    from pyspark.sql import SparkSession

#: Properties of a JVM with this prefix change how AWS's client for Java works.
_AWS_PROPERTIES: Final = "aws."
#: Class on which Hadoop's file systems are built.
_FILE_SYSTEM: Final = "org.apache.hadoop.fs.FileSystem"
#: Scheme -> the cause for which workers cannot read it with the settings of a session.
_CAUSES: Final = {
    "hdfs": ": pyarrow needs libhdfs and a JVM in each worker",
}


def located(session: SparkSession, uris: Iterable[str]) -> tuple[pafs.FileSystem, list[str]]:
    """Return the file system of files that Spark has listed, and their paths in it.

    Args:
        session: has the settings.
        uris: of the files, as Spark encodes them; at least one.

    Raises:
        OptionError: They are in several file systems, pyarrow does not have theirs, it cannot have a setting, or it
            does not open the first file.
    """
    import pyarrow.fs as pafs  # noqa: PLC0415 - slow to import

    parts = [urlsplit(uri) for uri in uris]
    first = parts[0]
    if any((part.scheme, part.netloc) != (first.scheme, first.netloc) for part in parts):
        raise refusal("its files are in several file systems", "read each with a call of its own")
    store = store_of(session, first)
    paths = [_path(part) for part in parts]
    if not isinstance(store, pafs.LocalFileSystem):
        try:
            is_there = store.get_file_info(paths[0]).type == pafs.FileType.File
            cause = "it is not there"
        except OSError as error:
            is_there, cause = False, str(error)
        if not is_there:
            raise refusal(
                f"pyarrow cannot open {first.scheme}://{paths[0]}: {cause}",
                "let driver and executors reach the store from Python",
            )
    return store, paths


def store_of(session: SparkSession, uri: SplitResult) -> pafs.FileSystem:
    """Return pyarrow's file system of a URI, with the settings of a session.

    Raises:
        OptionError: pyarrow has none for this URI, or it cannot have one of the settings.
    """
    import pyarrow.fs as pafs  # noqa: PLC0415 - slow to import

    if uri.scheme == "file" and not uri.netloc:
        return pafs.LocalFileSystem()
    if uri.scheme in abfs.CLASSES:
        return _abfs(session, uri)
    store = {"gs": _gs, "s3": _s3, "s3a": _s3}.get(uri.scheme)
    if store is None:
        scheme = f"{uri.scheme}://" if uri.scheme else "a path without a scheme"
        raise refusal(
            f"workers do not read {scheme} with the settings of a session"
            + _CAUSES.get(uri.scheme, ""),
            "files on s3a:// or gs:// · FileSource(path, filesystem=a pyarrow.fs.FileSystem)",
        )
    if not uri.netloc or "@" in uri.netloc:
        raise refusal(
            "the URI names no bucket, or has keys", "s3a://bucket, and the keys as settings"
        )
    return store(session, uri)


def _path(uri: SplitResult) -> str:
    """Return the path of a file in pyarrow's file system."""
    container = uri.netloc.partition("@")[0]
    return f"{container}{unquote(uri.path)}"


def _s3(session: SparkSession, uri: SplitResult) -> pafs.FileSystem:
    import pyarrow.fs as pafs  # noqa: PLC0415 - slow to import

    jvm: Any = session._jvm  # noqa: SLF001 - no public way
    properties = str(jvm.java.lang.System.getProperties().keySet()).strip("[]").split(", ")
    for name in properties:
        if name.startswith(_AWS_PROPERTIES):
            raise refusal(
                f"the JVM has the property {name}, which pyarrow does not see",
                f"leave -D{name} out",
            )
    environment = s3a.Environment.of(os.environ)
    arguments = _arguments(
        session,
        uri,
        s3a.CLASS,
        "org.apache.hadoop:hadoop-aws of Spark's version of Hadoop",
        lambda settings: s3a.arguments(settings, uri.netloc, environment),
    )
    if "region" not in arguments:
        try:
            arguments["region"] = pafs.resolve_s3_region(uri.netloc)
        except OSError as error:
            raise refusal(
                f"the region of the bucket {uri.netloc} is not known",
                'fs.s3a.endpoint.region="eu-west-1"',
            ) from error
    return pafs.S3FileSystem(**arguments)


def _gs(session: SparkSession, uri: SplitResult) -> pafs.FileSystem:
    import pyarrow.fs as pafs  # noqa: PLC0415 - slow to import

    context = session.sparkContext
    environment = gs.Environment.of(
        os.environ,
        context_confs(context),
        is_local=local_attempts(context.master or "") is not None,
    )
    arguments = _arguments(
        session,
        uri,
        gs.CLASS,
        f"com.google.cloud.bigdataoss:gcs-connector, 3.0 or newer, and spark.hadoop.fs.gs.impl={gs.CLASS}",
        lambda settings: gs.arguments(settings, environment),
    )
    return pafs.GcsFileSystem(**arguments)


def _abfs(session: SparkSession, uri: SplitResult) -> pafs.FileSystem:
    import pyarrow.fs as pafs  # noqa: PLC0415 - slow to import

    container, _, host = uri.netloc.partition("@")
    if not container or not host or ":" in uri.netloc or "@" in host:
        raise refusal(
            "the URI names no container and account, or has keys",
            "abfss://container@account.dfs.core.windows.net, and the key as a setting",
        )
    arguments = _arguments(
        session,
        uri,
        abfs.CLASSES[uri.scheme],
        "org.apache.hadoop:hadoop-azure of Spark's version of Hadoop",
        lambda settings: abfs.arguments(settings, host, is_safe=uri.scheme == "abfss"),
    )
    return pafs.AzureFileSystem(**arguments)


def _arguments(
    session: SparkSession,
    uri: SplitResult,
    kind: str,
    package: str,
    turned: Callable[[Settings], dict[str, Any]],
) -> dict[str, Any]:
    """Return the arguments into which the settings are turned with which Spark reads this URI.

    Args:
        session: has the settings.
        uri: of a file or a folder.
        kind: class of Hadoop's file systems that has to read it.
        package: has this class.
        turned: turns settings into arguments.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - only where Spark is

    jvm: Any = session._jvm  # noqa: SLF001 - no public way
    # Hadoop keeps a file system, with the settings of its first use, for all later uses of the bucket.
    configuration: Any = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    root = jvm.org.apache.hadoop.fs.Path(f"{uri.scheme}://{uri.netloc}/")
    try:
        store = root.getFileSystem(configuration)
    except Py4JJavaError as error:
        raise refusal(
            f"Spark has no file system for {uri.scheme}://{uri.netloc}: {error.java_exception.toString()}",
            f"start the session with the package {package}",
        ) from error
    if (name := str(store.getClass().getName())) != kind:
        raise refusal(
            f"Spark reads {uri.scheme} by {name}",
            f"start the session with spark.hadoop.fs.{uri.scheme}.impl={kind}",
            setting=f"fs.{uri.scheme}.impl={name}",
        )
    base = str(store.getClass().getSuperclass().getName())
    if kind == gs.CLASS and base != _FILE_SYSTEM:
        raise refusal(
            f"Spark reads {uri.scheme} by an older version of {kind}, built on {base}",
            f"start the session with the package {package}",
        )
    arguments, used = (
        turned(Settings.of(source, jvm)) for source in (configuration, store.getConf())
    )
    if used != arguments:
        raise refusal(
            f"settings have changed since Spark first used {uri.scheme}://{uri.netloc}, and it keeps the old ones",
            "give the settings to the builder of the session",
        )
    return arguments
