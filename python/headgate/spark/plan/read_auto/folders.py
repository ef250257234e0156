"""The files that Spark has listed for a relation, and the values that it read from the names of their folders."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from headgate.spark.plan.read_auto.jvm import Methods, methods_of
from headgate.spark.plan.read_auto.scan import Unsure
from headgate.spark.plan.read_auto.values import number_of_time, parsed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

#: A list of files that Spark asks the catalog for.
_IN_CATALOG: Final = "CatalogFileIndex"
_SOURCES: Final = "org.apache.spark.sql.execution.datasources"
#: Classes and methods, from a file that Spark has listed to the URI of its folder.
_TO_FOLDER: Final = (
    (f"{_SOURCES}.FileStatusWithMetadata", "getPath"),
    ("org.apache.hadoop.fs.Path", "getParent"),
    ("org.apache.hadoop.fs.Path", "toUri"),
)


def files_of(location: Any, session: SparkSession) -> list[str]:
    """Return the URIs of the files of a list of files in the JVM."""
    java: Any = session._jvm  # noqa: SLF001 - no public way
    # A text of all takes one call, and an array one for each. Spark escapes the ends of lines in URIs.
    uris = java.scala.collection.immutable.ArraySeq.unsafeWrapArray(location.inputFiles())
    return [uri for uri in str(uris.mkString("\n")).split("\n") if uri]


def files_by_folder(
    relation: Any, filters: Sequence[Any], schema: pa.Schema, session: SparkSession
) -> Mapping[str, Mapping[str, pa.Scalar]]:
    """Return URIs of the files of a relation -> the values of the columns of their folders.

    Spark drops the folders for which a filter is not true, and has cast the values.

    Args:
        relation: a ``HadoopFsRelation`` with columns in the names of folders.
        filters: Spark's expressions over these columns.
        schema: of these columns.
        session: the session.

    Raises:
        Unsure: Spark gives a value that Arrow may not have.
    """
    java: Any = session._jvm  # noqa: SLF001 - no public way
    nothing = java.java.util.ArrayList()
    wanted = java.java.util.ArrayList()
    for condition in filters:
        wanted.add(condition)
    sequence = java.org.apache.spark.api.python.PythonUtils.toSeq
    location = relation.location()
    if location.getClass().getSimpleName() == _IN_CATALOG:
        location = location.filterPartitions(sequence(wanted))
    folders = location.listFiles(sequence(wanted), sequence(nothing))
    methods = methods_of(session)
    by_folder: dict[str, list[str]] = {}
    for uri in files_of(location, session):
        by_folder.setdefault(uri.rpartition("/")[0], []).append(uri)
    by_parts = {_parts(folder): uris for folder, uris in by_folder.items()}
    files = folders.map(methods.of(f"{_SOURCES}.PartitionDirectory", "files"))
    counts = methods.texts(files.map(methods.of("scala.collection.SeqOps", "size")))
    parents = files.map(methods.of("scala.collection.IterableOps", "head"))
    for class_, name in _TO_FOLDER:
        parents = parents.map(methods.of(class_, name))
    values_by_uri: dict[str, Mapping[str, pa.Scalar]] = {}
    values = _values_of(relation, folders, schema, methods)
    for uri, count, columns in zip(methods.texts(parents), counts, values, strict=True):
        uris = by_parts.get(_parts(uri), [])
        if len(uris) != int(count):
            raise Unsure(f"Spark reads other files in {uri} than it lists")
        values_by_uri.update(dict.fromkeys(uris, columns))
    return values_by_uri


def _values_of(
    relation: Any, folders: Any, schema: pa.Schema, methods: Methods
) -> list[dict[str, pa.Scalar]]:
    """Return the values of the columns of a schema for each folder."""
    rows = folders.map(methods.of(f"{_SOURCES}.PartitionDirectory", "values"))
    values: list[dict[str, pa.Scalar]] = [{} for _ in range(int(folders.size()))]
    for number, field in enumerate(relation.partitionSchema().fields()):
        name = str(field.name())
        if name not in schema.names:
            continue
        type_ = schema.field(name).type
        is_null, value = methods.column(number, field.dataType())
        # Folders of one day, or of one kind, have the same text.
        scalars: dict[str, pa.Scalar] = {}
        texts = methods.texts(rows.map(value))
        for of_folder, null, text in zip(
            values, methods.texts(rows.map(is_null)), texts, strict=True
        ):
            if null == "true":
                of_folder[name] = _value(None, type_)
                continue
            if text not in scalars:
                scalars[text] = _value(text, type_)
            of_folder[name] = scalars[text]
    return values


def _parts(uri: str) -> SplitResult:
    """Return a URI in parts: Hadoop writes ``file:/data`` or ``file:///data`` for the same."""
    return urlsplit(uri)


def _value(text: str | None, type_: pa.DataType) -> pa.Scalar:
    """Return a value of Spark's internal row, of which the JVM has made a text."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    types = pa.types
    if text is None:
        return pa.scalar(None, type_)
    if types.is_date(type_) or types.is_timestamp(type_):
        scalar: pa.Scalar | None = number_of_time(int(text), type_)
    elif types.is_decimal(type_) and Decimal(text).as_tuple().exponent != -type_.scale:
        # Spark takes the digits of a value with another scale as they are.
        scalar = None
    else:
        scalar = parsed(text, type_)
    try:
        if scalar is not None and scalar.as_py() is not None:  # by which it is pickled
            return scalar
    except (ValueError, OverflowError):
        pass
    raise Unsure(f"a folder has a value of type {type_} that Arrow or Python may not have")
