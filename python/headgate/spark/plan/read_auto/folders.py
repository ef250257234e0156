"""The files that Spark has listed for a relation, and the values that it read from the names of their folders."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from headgate.spark.plan.read_auto.scan import Unsure
from headgate.spark.plan.read_auto.values import number_of_time, parsed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

#: A list of files that Spark asks the catalog for.
_IN_CATALOG: Final = "CatalogFileIndex"
#: Most folders whose values are asked for: each takes Spark some calls.
_MOST: Final = 2_000


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
    count = int(folders.size())
    if count > _MOST:
        raise Unsure(
            f"it has {count} folders, and up to {_MOST} are looked at",
            "a filter on the columns of the folders",
        )
    by_folder: dict[SplitResult, list[str]] = {}
    for uri in files_of(location, session):
        by_folder.setdefault(_parts(uri.rpartition("/")[0]), []).append(uri)
    fields = relation.partitionSchema().fields()
    kinds = [
        (number, str(fields[number].name()), fields[number].dataType())
        for number in range(len(fields))
    ]
    values_by_uri: dict[str, Mapping[str, pa.Scalar]] = {}
    for place in range(count):
        folder = folders.apply(place)
        row, files = folder.values(), folder.files()
        uri = str(files.head().getPath().getParent().toUri().toString())
        uris = by_folder.get(_parts(uri), [])
        if len(uris) != int(files.size()):
            raise Unsure(f"Spark reads other files in {uri} than it lists")
        values = {
            name: _value(row.get(number, kind), schema.field(name).type)
            for number, name, kind in kinds
            if name in schema.names
        }
        values_by_uri.update(dict.fromkeys(uris, values))
    return values_by_uri


def _parts(uri: str) -> SplitResult:
    """Return a URI in parts: Hadoop writes ``file:/data`` or ``file:///data`` for the same."""
    return urlsplit(uri)


def _value(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Return a value of Spark's internal row."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    types = pa.types
    if value is None:
        return pa.scalar(None, type_)
    if types.is_date(type_) or types.is_timestamp(type_):
        scalar: pa.Scalar | None = number_of_time(int(value), type_)
    elif types.is_string(type_):
        scalar = parsed(str(value.toString()), type_)
    elif types.is_decimal(type_):
        # Spark takes the digits of a value with another scale as they are.
        is_same = int(value.scale()) == type_.scale
        scalar = pa.scalar(Decimal(str(value.toString())), type_) if is_same else None
    elif types.is_floating(type_):
        scalar = parsed(repr(value), type_)
    else:
        is_plain = types.is_boolean(type_) or types.is_signed_integer(type_)
        scalar = pa.scalar(value, type_) if is_plain else None
    try:
        if scalar is not None and scalar.as_py() is not None:  # by which it is pickled
            return scalar
    except (ValueError, OverflowError):
        pass
    raise Unsure(f"a folder has a value of type {type_} that Arrow or Python may not have")
