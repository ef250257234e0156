"""Decides if the workers read a DataFrame, which must be only a scan of files, and makes its source."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import UnsupportedTypeError
from headgate.spark.plan.read_auto.files import check, local_paths
from headgate.spark.plan.read_auto.relation import check_confs, check_relation
from headgate.spark.plan.read_auto.scan import Unsure, scan_of
from headgate.spark.plan.sources import SourceInput
from headgate.spark.schema import arrow_schema, comparable_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.source.files import FileSource
    from headgate.spark.plan.facts import CallFacts, InputFacts
    from headgate.spark.plan.request import Request

_LOG: Final = logging.getLogger("headgate.spark")
_SPARK_READS: Final = "exchange by %s: Spark reads the input: %s"
_WORKERS_READ: Final = "exchange by %s: the workers read the input, %s"
_NO_PLAN: Final = "a client of Spark Connect does not see its plan"
_NO_FUNCTION: Final = "no function gets its rows"
_COMPUTED: Final = "Spark computes its keys"
#: Conf with the most rows in a batch that Spark gives to Python; 0 or less for no limit.
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


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
        _LOG.info(_SPARK_READS, by, reason)
        return request, str(reason)
    _LOG.info(_WORKERS_READ, by, source.name)
    read = SourceInput(source, "parquet", request.df.schema, source.schema)
    return replace(request, df=None, source=read), ""


def why_spark_reads(call: CallFacts, facts: InputFacts, *, on_connect: bool) -> str:
    """Return why Spark reads a DataFrame of which the workers could read the files; empty if they do."""
    if on_connect:
        return _NO_PLAN
    if call.mode == "auto" and call.is_shortest and not call.has_reduce:
        return _NO_FUNCTION
    return _COMPUTED if facts.has_computed_keys else ""


def source_of(df: DataFrame) -> FileSource:
    """Return a source that gives the rows of a DataFrame.

    Raises:
        Unsure: It may not, or the DataFrame is more than a scan of Parquet files.
        UnsupportedTypeError: A column has a type that cannot be sent.
    """
    try:
        return _source_of(df)
    except (Unsure, UnsupportedTypeError):
        raise
    except Exception as error:  # Spark reads what Headgate fails to look at.
        text = str(error).strip().partition("\n")[0]
        raise Unsure(f"the look at it failed with {type(error).__name__}: {text}") from error


def _source_of(df: DataFrame) -> FileSource:
    from pyspark.sql.types import StructType  # noqa: PLC0415 - pyspark only where Spark is

    from headgate.source.files import FileSource  # noqa: PLC0415 - imports pyarrow

    session = df.sparkSession
    plan: Any = df._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no public way
    leaves = plan.collectLeaves()
    if int(leaves.size()) != 1:
        raise Unsure("it reads more than one table")
    leaf = leaves.apply(0)
    table = StructType.fromJson(json.loads(leaf.schema().json()))
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    scan = scan_of(json.loads(plan.toJSON()), table.names, comparable_types(table, zone))
    read = {*scan.columns, *scan.filtered}
    check_relation(leaf, read)
    check_confs(session)
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
