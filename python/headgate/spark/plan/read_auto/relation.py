"""Looks at a relation of files in Spark: do its rows depend on nothing but the files?

Each field, option, property and conf is known to change no row, or Spark reads. So a feature that a newer
Spark adds stays with Spark.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.plan.read_auto.columns import Unmarked
from headgate.spark.plan.read_auto.scan import Unsure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

_SOURCES: Final = "org.apache.spark.sql.execution.datasources"
_HIVE: Final = "Some(org.apache.hadoop.hive.ql.io.parquet"
_DELTA: Final = "org.apache.spark.sql.delta"
_DELTA_FORMAT: Final = f"{_DELTA}.DeltaParquetFileFormat"
#: Class of a format -> lists of files of which Spark's own scan reads all.
_LISTS: Final = {
    f"{_SOURCES}.parquet.ParquetFileFormat": {
        f"{_SOURCES}.InMemoryFileIndex",
        f"{_SOURCES}.CatalogFileIndex",
    },
    _DELTA_FORMAT: {f"{_DELTA}.stats.PreparedDeltaFileIndex"},
}
#: Values that change no row, as text; None if all do not, or if they are looked at elsewhere.
_Values = frozenset[str] | None
#: Field of ``LogicalRelation`` -> its values.
_PLAN: Final[dict[str, _Values]] = {
    "relation": None,
    "output": None,
    "catalogTable": None,
    "isStreaming": frozenset({"False", "false"}),
    "stream": frozenset({"None"}),
}
#: Field of ``HadoopFsRelation`` -> its values.
_RELATION: Final[dict[str, _Values]] = {
    "location": None,
    "partitionSchema": None,
    "dataSchema": None,
    "bucketSpec": frozenset({"None"}),
    "fileFormat": None,
    "options": None,
}
#: Field of ``DeltaParquetFileFormat`` -> its values.
_FORMAT_OF_DELTA: Final[dict[str, _Values]] = {
    **dict.fromkeys(("protocol", "metadata", "tablePath", "optimizationsEnabled")),
    **dict.fromkeys(("nullableRowTrackingConstantFields", "nullableRowTrackingGeneratedFields")),
    "isCDCRead": frozenset({"False", "false"}),
}
#: Field of ``TahoeLogFileIndex`` -> its values.
_INDEX_OF_DELTA: Final[dict[str, _Values]] = {
    **dict.fromkeys(("spark", "deltaLog", "path", "catalogTableOpt", "snapshotAtAnalysis")),
    "isTimeTravelQuery": None,
    "partitionFilters": frozenset({"List()"}),
}
#: Field of ``CatalogTable`` -> its values.
_TABLE: Final[dict[str, _Values]] = {
    **dict.fromkeys(("identifier", "multipartIdentifier", "tableType", "storage", "schema")),
    **dict.fromkeys(("owner", "createTime", "lastAccessTime", "createVersion", "properties")),
    **dict.fromkeys(("stats", "viewText", "viewOriginalText", "comment")),
    **dict.fromkeys(("tracksPartitionsInCatalog", "schemaPreservesCase")),
    "provider": frozenset({"Some(parquet)", "Some(PARQUET)"}),
    "partitionColumnNames": None,
    "bucketSpec": frozenset({"None"}),
    "collation": frozenset({"None"}),
    "unsupportedFeatures": frozenset({"List()", "ArraySeq()"}),
    "ignoredProperties": frozenset({"Map()"}),
}
#: Field of ``CatalogStorageFormat`` -> its values.
_STORAGE: Final[dict[str, _Values]] = {
    **dict.fromkeys(("locationUri", "compressed", "properties", "serdeName")),
    "inputFormat": frozenset({"None", f"{_HIVE}.MapredParquetInputFormat)"}),
    "outputFormat": frozenset({"None", f"{_HIVE}.MapredParquetOutputFormat)"}),
    "serde": frozenset({"None", f"{_HIVE}.serde.ParquetHiveSerDe)"}),
}
#: Options of ``spark.read`` and of tables that only say where the files are and which columns they have.
_OPTIONS: Final = frozenset({"path", "paths", "basepath", "mergeschema", "serialization.format"})
_PROPERTIES: Final = frozenset({"comment", "transient_lastDdlTime", "parquet.compression"})
_METADATA: Final = frozenset({"comment"})
#: An entry of the metadata of a column, or of a field in one.
_FIELD_ID: Final = '"parquet.field.id"'
#: The version to read, which Delta has found.
_OPTIONS_OF_DELTA: Final = frozenset({"versionasof", "timestampasof"})
#: Names of columns in files, and types that they had; the source of the table reads both in its log.
_METADATA_OF_DELTA: Final = frozenset(
    {"delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.typeChanges"}
)
#: Confs that change what is read have these prefixes.
_PREFIXES: Final = (
    *("spark.sql.files.", "spark.sql.parquet.", "spark.sql.legacy."),
    "spark.databricks.",
)
_FILES_CONFS: Final = (
    *("maxPartitionBytes", "maxPartitionNum", "maxRecordsPerFile", "minPartitionNum"),
    "openCostInBytes",
)
_PARQUET_CONFS: Final = (
    *("aggregatePushdown", "columnarReaderBatchSize", "compression.codec"),
    *("datetimeRebaseModeInWrite", "enableNestedColumnVectorizedReader", "enableVectorizedReader"),
    *("filterPushdown", "inferTimestampNTZ.enabled", "int96AsTimestamp", "int96RebaseModeInRead"),
    *("int96RebaseModeInWrite", "mergeSchema", "output.committer.class", "outputTimestampType"),
    *("recordLevelFilter.enabled", "respectSummaryFiles", "writeLegacyFormat"),
)
#: For writing and maintenance, the number of tasks that read a log, and a figure that Delta notes.
_DELTA_CONFS: Final = (
    *("autoCompact.enabled", "lastCommitVersionInSession", "optimizeWrite.enabled"),
    *("retentionDurationCheck.enabled", "schema.autoMerge.enabled", "snapshotPartitions"),
)
#: Confs with such a prefix that change no row -> the values that do not; None if no value does.
_CONFS: Final[dict[str, _Values]] = {
    **dict.fromkeys(f"spark.sql.files.{name}" for name in _FILES_CONFS),
    **dict.fromkeys(f"spark.sql.parquet.{name}" for name in _PARQUET_CONFS),
    "spark.sql.files.ignoreCorruptFiles": frozenset({"false"}),
    "spark.sql.files.ignoreMissingFiles": frozenset({"false"}),
    "spark.sql.parquet.binaryAsString": frozenset({"false"}),
    "spark.sql.parquet.datetimeRebaseModeInRead": frozenset({"corrected", "exception"}),
    # Delta sets it. Spark then finds a column by an id if the column's metadata has one.
    "spark.sql.parquet.fieldId.read.enabled": None,
    "spark.sql.parquet.fieldId.write.enabled": None,
    "spark.sql.legacy.timeParserPolicy": None,
    **dict.fromkeys(f"spark.databricks.delta.{name}" for name in _DELTA_CONFS),
}
#: Value of a conf of calendars by which times stay as they are.
_TODAY: Final = "CORRECTED"
_HADOOP: Final = "parquet."
#: Settings of Hadoop, after the prefix, that are for writing.
_WRITING: Final = (
    *("block.size", "compression", "dictionary.page.size", "enable.dictionary"),
    *("page.size", "writer.version"),
)


def is_delta(relation: Any) -> bool:
    """Return True for the relation of a Delta table."""
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return False
    return bool(relation.fileFormat().getClass().getName() == _DELTA_FORMAT)


def check_relation(leaf: Any, analyzed: Any, columns: Iterable[str]) -> None:
    """Return if the rows of a leaf of a plan are those of Parquet files or of a Delta table, and no more.

    Args:
        leaf: a ``LogicalRelation`` of the optimized plan.
        analyzed: the same of the analyzed plan.
        columns: that are read.

    Raises:
        Unsure: They may not be.
    """
    relation = leaf.relation()
    kind = relation.getClass().getSimpleName()
    if relation.getClass().getName() != f"{_SOURCES}.HadoopFsRelation":
        raise Unsure(f"it reads {kind}, not files")
    form = relation.fileFormat().getClass()
    if form.getName() not in _LISTS:
        raise Unsure(f"it reads files by {form.getSimpleName()}, not Parquet")
    location = relation.location().getClass()
    if location.getName() not in _LISTS[form.getName()]:
        raise Unsure(f"its files are listed by {location.getSimpleName()}")
    _check_fields("its plan", leaf, _PLAN)
    _check_fields("its relation", relation, _RELATION)
    of_delta = is_delta(relation)
    options = _OPTIONS | _OPTIONS_OF_DELTA if of_delta else _OPTIONS
    _check_names("spark.read has the option", relation.options(), options)
    metadata = _METADATA | _METADATA_OF_DELTA if of_delta else _METADATA
    for schema in (leaf.schema(), relation.schema()):
        text = str(schema.json())
        if _FIELD_ID in text:
            raise Unsure("its columns have ids of Parquet fields")
        _check_metadata(json.loads(text), set(columns), metadata)
    missing = sorted(set(columns) - {field["name"] for field in json.loads(text)["fields"]})
    if missing:
        raise Unsure(f"its files have no column {missing[0]!r}")
    if of_delta:
        _check_fields("its format", relation.fileFormat(), _FORMAT_OF_DELTA)
        _check_fields("its table", analyzed.relation().location(), _INDEX_OF_DELTA)
    elif leaf.catalogTable().isDefined():
        table = leaf.catalogTable().get()
        _check_fields("its table", table, _TABLE)
        _check_fields("the storage of its table", table.storage(), _STORAGE)
        _check_names("its table has the storage property", table.storage().properties(), _OPTIONS)
        _check_names("its table has the property", table.properties(), _PROPERTIES)


def check_confs(session: SparkSession) -> None:
    """Return if no setting makes Spark read other rows from the files.

    Raises:
        Unsure: One may.
    """
    for name, value in sorted(_confs(session).items()):
        if name.startswith(_PREFIXES):
            _check_value(name, value, _CONFS)
    hadoop: Any = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - no public way
    # py4j ends a loop over a map by an exception of the JVM, which takes longer than all else here.
    for name in sorted(hadoop.getPropsWithPrefix(_HADOOP).keySet().toArray()):
        if name not in _WRITING:
            raise Unsure(f"Hadoop's configuration has {_HADOOP}{name}")


def unmarked_files(session: SparkSession) -> Unmarked:
    """Return if Spark takes times for ones of today's calendar in files that do not say which version wrote them."""
    modes = [
        str(session.conf.get(f"spark.sql.parquet.{kind}RebaseModeInRead")).upper()
        for kind in ("int96", "datetime")
    ]
    return Unmarked(*(mode == _TODAY for mode in modes))


def _confs(session: SparkSession) -> Mapping[str, str]:
    """Return the confs that differ from Spark's defaults, or may."""
    confs: Any = session.conf._jconf.getAll()  # noqa: SLF001 - Spark 4.0 has no other way
    pairs = confs.mkString("\n").split("\n")
    return dict(pair.split(" -> ", 1) for pair in pairs if " -> " in pair)


def _check_value(name: str, value: str, harmless_values: Mapping[str, _Values]) -> None:
    harmless = harmless_values.get(name, frozenset())
    if harmless is not None and value.lower() not in harmless:
        raise Unsure(f"{name} is {value}")


def _check_fields(whose: str, thing: Any, harmless_values: Mapping[str, _Values]) -> None:
    """Check all fields of a case class."""
    for index, name in enumerate(str(thing.productElementNames().mkString("\n")).split("\n")):
        if name not in harmless_values:
            raise Unsure(f"{whose} has the field {name}")
        harmless = harmless_values[name]
        if harmless is not None and (value := str(thing.productElement(index))) not in harmless:
            raise Unsure(f"{whose} has {name} {value}")


def _check_names(owner: str, options: Any, harmless: frozenset[str]) -> None:
    """Check the names of a map of options; their case does not matter."""
    names = str(options.keys().mkString("\n")).split("\n")
    lower = {name.lower() for name in harmless}
    others = sorted(name for name in names if name and name.lower() not in lower)
    if others:
        raise Unsure(f"{owner} {others[0]}")


def _check_metadata(schema: dict[str, Any], columns: set[str], harmless: frozenset[str]) -> None:
    for field in schema["fields"]:
        others = sorted({*field["metadata"]} - harmless)
        if field["name"] in columns and others:
            raise Unsure(f"column {field['name']!r} has the metadata {others[0]}")
