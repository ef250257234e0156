"""Decides if the workers read a DataFrame, which must be only a scan of files, and makes its source."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import UnsupportedTypeError
from headgate.spark.confs import batch_rows
from headgate.spark.plan.read_auto.delta import delta_source
from headgate.spark.plan.read_auto.expressions import translated
from headgate.spark.plan.read_auto.files import checked
from headgate.spark.plan.read_auto.folders import files_by_folder, files_of
from headgate.spark.plan.read_auto.relation import (
    check_confs,
    check_relation,
    is_delta,
    unmarked_files,
)
from headgate.spark.plan.read_auto.scan import (
    Columns,
    Unsure,
    kind_of,
    more_than_a_scan,
    no_scan,
    scan_of,
)
from headgate.spark.plan.read_auto.skipping import column_with_nan
from headgate.spark.plan.read_auto.stores import located_files
from headgate.spark.plan.read_auto.values import values_of
from headgate.spark.plan.sources import SourceInput
from headgate.spark.schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.source.delta import DeltaSource
    from headgate.source.files import FileSource
    from headgate.spark.plan.facts import CallFacts, InputFacts
    from headgate.spark.plan.read_auto.scan import Node, Scan
    from headgate.spark.plan.request import Request

_LOG: Final = logging.getLogger("headgate.spark")
_SPARK_READS: Final = "exchange by %s: Spark reads the input: %s"
_WORKERS_READ: Final = "exchange by %s: the workers read the input, %s"
_NO_PLAN: Final = "a client of Spark Connect does not see its plan"
_NO_FUNCTION: Final = "no function gets its rows"
_COMPUTED: Final = "Spark computes its keys"
#: Conf by which ``mapInArrow`` gets Comet's batches without a row in the JVM.
_COMET_FEEDS_PYTHON: Final = "spark.comet.exec.pyarrowUDF.enabled"
_COMET_SCANS: Final = ("CometNativeScan ", "CometScan ")
#: Package of the classes of Iceberg.
_ICEBERG: Final = "org.apache.iceberg."
#: Nodes that may be above the files in a plan that is only a scan.
_ABOVE_FILES: Final = {"Project", "Filter", "SubqueryAlias", "View"}


def read_by_workers(
    request: Request, facts: InputFacts, call: CallFacts, *, on_connect: bool
) -> tuple[Request, str]:
    """Have the workers read the files of a DataFrame, if its rows are the same for sure and go to a function.

    Returns:
        The request, with a source if the workers read; and why Spark reads the DataFrame, empty if it does not.
    """
    if request.df is None:
        return request, ""
    by = facts.placement.label
    try:
        why = why_spark_reads(call, facts, on_connect=on_connect)
        if why:
            raise Unsure(why)
        source = source_of(request.df)
    except Unsure as reason:
        _LOG.info(_SPARK_READS, by, reason.sentence)
        return request, reason.sentence
    _LOG.info(_WORKERS_READ, by, source.name)
    schema = request.df.schema
    from headgate.source.files import FileSource  # noqa: PLC0415 - imports pyarrow

    kind = "parquet" if isinstance(source, FileSource) else "delta"
    read = SourceInput(source, kind, schema, source.schema, source.known_bytes)
    return replace(request, df=None, source=read), ""


def why_spark_reads(call: CallFacts, facts: InputFacts, *, on_connect: bool) -> str:
    """Return why Spark reads a DataFrame of which the workers could read the files; empty if they do."""
    if on_connect:
        return _NO_PLAN
    if call.mode == "auto" and call.is_shortest and not call.has_reduce:
        return _NO_FUNCTION
    return _COMPUTED if facts.has_computed_keys else ""


def source_of(df: DataFrame) -> FileSource | DeltaSource:
    """Return a source that gives the rows of a DataFrame.

    Raises:
        Unsure: It may not, or the DataFrame is more than a scan of Parquet files or of a Delta table.
        UnsupportedTypeError: A column has a type that cannot be sent.
    """
    try:
        return _source_of(df)
    except (Unsure, UnsupportedTypeError):
        raise
    except Exception as error:  # Spark reads what Headgate fails to look at.
        text = str(error).strip().partition("\n")[0]
        raise Unsure(f"the look at it failed with {type(error).__name__}: {text}") from error


def _source_of(df: DataFrame) -> FileSource | DeltaSource:
    from pyspark.sql.types import StructType  # noqa: PLC0415 - pyspark only where Spark is

    session = df.sparkSession
    analyzed: Any = df._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public way
    analyzed_leaf = _leaf_of(analyzed)
    _leave_to_comet(df)
    sql: Any = session._jvm.org.apache.spark.sql  # type: ignore[union-attr]  # noqa: SLF001
    # Spark looks for cached rows once per plan, and the caller may have cached it since.
    dataset = sql.classic.Dataset.ofRows(session._jsparkSession, analyzed)  # noqa: SLF001
    plan = dataset.queryExecution().optimizedPlan()
    leaf = plan.collectLeaves().apply(0)
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    nodes = json.loads(plan.toJSON())
    plans = _nodes_from_root(plan, len(nodes))
    table = StructType.fromJson(json.loads(leaf.schema().json()))
    of_folders = _names_of_folders(leaf)
    columns = _columns(nodes[-1], table, of_folders, zone)
    scan = scan_of(nodes, plans, columns, partial(translated, zone=zone))
    if not scan.used:
        raise Unsure("it has no column of its files")
    check_relation(leaf, analyzed_leaf, scan.used)
    check_confs(session)
    nan_column = column_with_nan(scan.risks)
    schema = arrow_schema(StructType([f for f in table.fields if f.name in scan.used]), zone)
    relation = leaf.relation()
    source: FileSource | DeltaSource = (
        delta_source(relation, _read_columns(scan), scan.filter, schema, session, nan_column)
        if is_delta(relation)
        else _file_source(relation, scan, schema, of_folders, session, nan_column)
    )
    for have, want in zip(source.schema, arrow_schema(df.schema, zone), strict=True):
        if not have.type.equals(want.type):
            raise Unsure(f"its column {want.name!r} is {want.type}, and would be {have.type}")
    return source


def _file_source(
    relation: Any,
    scan: Scan,
    schema: pa.Schema,
    of_folders: Container[str],
    session: SparkSession,
    nan_column: str,
) -> FileSource:
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    from headgate.source.files import FileSource  # noqa: PLC0415 - imports pyarrow

    folder_schema = pa.schema([f for f in schema if f.name in of_folders])
    values = None
    if scan.folders or folder_schema.names:
        by_uri = files_by_folder(relation, scan.folders, folder_schema, session)
        filesystem, paths = located_files(session, list(by_uri))
        values = dict(zip(paths, by_uri.values(), strict=True)) if folder_schema.names else None
    else:
        filesystem, paths = located_files(session, files_of(relation.location(), session))
    in_files = pa.schema([f for f in schema if f.name not in of_folders])
    files = checked(filesystem, paths, in_files, unmarked_files(session), nan_column)
    return FileSource(
        files,
        columns=_read_columns(scan),
        filter=scan.filter,
        schema=schema,
        partitioning=values,
        # Functions may need memory for each row of a batch, as they do in Spark's mapInArrow.
        batch_rows=batch_rows(session),
    )


def _leave_to_comet(df: DataFrame) -> None:
    """Refuse a scan that Comet does, if it gives its batches to Python: they are there sooner than by the workers.

    Raises:
        Unsure: It is one.
    """
    if df.sparkSession.conf.get(_COMET_FEEDS_PYTHON, "false") != "true":
        return
    plan = str(df._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001 - no public way
    if any(scan in plan for scan in _COMET_SCANS):
        raise Unsure(
            "Comet reads it, and gives Python its own batches", f"{_COMET_FEEDS_PYTHON}=false"
        )


def _leaf_of(plan: Any) -> Any:
    """Return the leaf of an analyzed plan, which is refused before Spark takes the time to optimize it.

    Raises:
        Unsure: It is more than a scan.
    """
    leaves = plan.collectLeaves()
    if int(leaves.size()) != 1:
        raise Unsure("it reads more than one table", "a list of inputs, one for each table")
    while (kind := str(plan.getClass().getSimpleName())) in _ABOVE_FILES:
        plan = plan.children().apply(0)
    if kind == "LogicalRelation":
        return plan
    if kind == "DataSourceV2Relation" and str(plan.table().getClass().getName()).startswith(
        _ICEBERG
    ):
        raise Unsure(
            "it is a table of Iceberg, of which Spark lists the files",
            "exchange(IcebergSource(table, catalog=...), ...)",
        )
    raise more_than_a_scan(kind) if int(plan.children().size()) else no_scan(kind)


def _read_columns(scan: Scan) -> Sequence[str] | Mapping[str, pc.Expression]:
    """Return the columns as a source takes them."""
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    expressions = {name: value.expression for name, value in scan.columns.items()}
    if all(expression.equals(pc.field(name)) for name, expression in expressions.items()):
        return list(expressions)
    return expressions


def _nodes_from_root(plan: Any, length: int) -> list[Any]:
    """Return the nodes of a plan without branches in the JVM, from its root on."""
    plans = [plan]
    while len(plans) < length:
        below = plans[-1].children()
        if int(below.size()) != 1:
            raise Unsure("its plan has branches")
        plans.append(below.apply(0))
    return plans


def _names_of_folders(leaf: Any) -> frozenset[str]:
    """Return the names of the columns in the names of folders, if the leaf reads files."""
    if leaf.getClass().getSimpleName() != "LogicalRelation" or is_delta(leaf.relation()):
        return frozenset()
    schema = getattr(leaf.relation(), "partitionSchema", None)
    if leaf.relation().getClass().getSimpleName() != "HadoopFsRelation" or schema is None:
        return frozenset()
    return frozenset(field["name"] for field in json.loads(schema().json())["fields"])


def _columns(leaf: Node, table: StructType, of_folders: Container[str], zone: str) -> Columns:
    """Return the columns of a leaf that can be sent."""
    if kind_of(leaf) != "LogicalRelation":
        return Columns({}, {}, frozenset())
    ids = [int(output[0]["exprId"]["id"]) for output in leaf["output"]]
    names = dict(zip(ids, table.names, strict=True))
    folders = frozenset(id_ for id_ in ids if names[id_] in of_folders)
    return Columns(values_of(table, ids, zone), names, folders)
