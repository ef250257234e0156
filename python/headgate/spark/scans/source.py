"""Makes the source of a DataFrame that is only a scan of files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.scans.files import check, local_paths
from headgate.spark.scans.plan import Unsure, scan_of
from headgate.spark.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.source.files import FileSource

#: Options of ``spark.read`` that only say where the files are.
_KNOWN: Final = {"path", "paths", "mergeschema"}
#: Confs that let Spark read files otherwise -> the only value that does not.
_CONFS: Final = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
}
#: Confs that say what Spark makes of days before the Gregorian calendar, in files of others.
_REBASING: Final = "spark.sql.parquet.datetimeRebaseModeInRead"


def source_of(df: DataFrame) -> FileSource:
    """Return a source that gives the rows of a DataFrame.

    Raises:
        Unsure: It may not, or the DataFrame is more than a scan of Parquet files.
        UnsupportedTypeError: A column has a type that cannot be sent.
    """
    from headgate.source.files import FileSource  # noqa: PLC0415 - imports pyarrow

    session = df.sparkSession
    plan: Any = df._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no public way
    if int(plan.collectLeaves().size()) != 1:
        raise Unsure("it reads more than one table")
    leaf = plan.collectLeaves().apply(0)
    names = [str(name) for name in leaf.schema().fieldNames()]
    scan = scan_of(json.loads(plan.toJSON()), names)
    _check_relation(leaf)
    for name, value in _CONFS.items():
        if str(session.conf.get(name, value)).lower() != value:
            raise Unsure(f"{name} is {session.conf.get(name)}")
    if str(session.conf.get(_REBASING, "EXCEPTION")).upper() == "LEGACY":
        raise Unsure(f"{_REBASING} is LEGACY")
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    whole = arrow_schema(_schema_of(leaf), zone)
    needed = [field for field in whole if field.name in {*scan.columns, *scan.filtered}]
    paths = local_paths(str(uri) for uri in leaf.relation().location().inputFiles())
    schema = whole.empty_table().select([field.name for field in needed]).schema
    check(paths, schema)
    return FileSource(paths, columns=scan.columns, filter=scan.filter, schema=schema)


def _check_relation(leaf: Any) -> None:
    relation = leaf.relation()
    kind = relation.getClass().getSimpleName()
    if kind != "HadoopFsRelation":
        raise Unsure(f"it reads {kind}, not files")
    form = relation.fileFormat().getClass().getSimpleName()
    if form != "ParquetFileFormat":
        raise Unsure(f"it reads files by {form}, not Parquet")
    if int(relation.partitionSchema().size()):
        raise Unsure("the names of its folders have columns")
    options = str(relation.options().keys().mkString("\n")).lower().split("\n")
    others = sorted({*options} - {*_KNOWN, ""})
    if others:
        raise Unsure(f"spark.read has the option {others[0]}")


def _schema_of(leaf: Any) -> Any:
    from pyspark.sql.types import _parse_datatype_json_string  # noqa: PLC0415

    return _parse_datatype_json_string(leaf.schema().json())
