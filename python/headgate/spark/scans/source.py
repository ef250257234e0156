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
#: Conf with the most rows in a batch that Spark gives to Python; 0 or less for no limit.
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: Conf that says what Spark makes of days before the Gregorian calendar, in files of others.
_REBASING: Final = "spark.sql.parquet.datetimeRebaseModeInRead"


def source_of(df: DataFrame) -> FileSource:
    """Return a source that gives the rows of a DataFrame.

    Raises:
        Unsure: It may not, or the DataFrame is more than a scan of Parquet files.
        UnsupportedTypeError: A column has a type that cannot be sent.
    """
    from pyspark.sql.types import StructType  # noqa: PLC0415 - pyspark only where Spark is

    from headgate.source.files import FileSource  # noqa: PLC0415 - imports pyarrow

    session = df.sparkSession
    plan: Any = df._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no public way
    leaves = plan.collectLeaves()
    if int(leaves.size()) != 1:
        raise Unsure("it reads more than one table")
    leaf = leaves.apply(0)
    table = StructType.fromJson(json.loads(leaf.schema().json()))
    scan = scan_of(json.loads(plan.toJSON()), table.names)
    _check_relation(leaf)
    for name, only in _CONFS.items():
        if (value := str(session.conf.get(name, only))).lower() != only:
            raise Unsure(f"{name} is {value}")
    if str(session.conf.get(_REBASING, "EXCEPTION")).upper() == "LEGACY":
        raise Unsure(f"{_REBASING} is LEGACY")
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    read = {*scan.columns, *scan.filtered}
    schema = arrow_schema(StructType([f for f in table.fields if f.name in read]), zone)
    paths = local_paths(str(uri) for uri in leaf.relation().location().inputFiles())
    check(paths, schema)
    most = int(str(session.conf.get(_BATCH_ROWS, "10000")))
    return FileSource(
        paths,
        columns=scan.columns,
        filter=scan.filter,
        schema=schema,
        # Functions may need memory for each row of a batch, as they do in Spark's mapInArrow.
        batch_rows=most if most > 0 else None,
    )


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
