"""What Spark's planner knows of a DataFrame. Nothing runs: no Spark job is started.

A class of a plan that is not listed here gives an unknown number. So a new Spark leads to "unknown", and
never to a job: to ask some operators for their partitions would execute what is below them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import UnsupportedTypeError
from headgate.spark.plan.read_auto.decide import source_of
from headgate.spark.plan.read_auto.scan import Unsure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

#: Operators with one partition for each of those of their input.
_NARROW: Final = (
    *("ColumnarToRowExec", "DeserializeToObjectExec", "ExpandExec", "FilterExec", "GenerateExec"),
    *("MapElementsExec", "MapInArrowExec", "MapInPandasExec", "MapPartitionsExec", "ProjectExec"),
    *("SampleExec", "SerializeFromObjectExec"),
)
#: Operators that say their number without a look at their input: a range, coalesce().
_TELLING: Final = {"CoalesceExec", "RangeExec"}
#: Leaves whose rows are there already.
_LOCAL: Final = {"LocalTableScanExec", "RDDScanExec"}
#: What a shuffle says for which the caller gave a number.
_BY_NUMBER: Final = "REPARTITION_BY_NUM"
#: The only lists of files that are complete once the DataFrame is made.
_LISTED: Final = "InMemoryFileIndex"
#: Spark's word for unknown: the largest long. Estimates of joins are products, and mean nothing above this.
_UNKNOWN_BYTES: Final = 1 << 50
_RUNS: Final = "Spark decides when it runs, as the input has {}"


@dataclass(frozen=True, slots=True)
class Table:
    """What is known of a DataFrame.

    Attributes:
        partitions: None if Spark decides when it runs.
        why: a sentence about their number.
        bytes: of its rows by Spark's estimate; None if unknown.
        is_scan: True if the workers can read its files, and get the same rows.
    """

    partitions: int | None
    why: str
    bytes: int | None
    is_scan: bool = False


def table_of(node: Any, session: SparkSession, *, looks_at_files: bool) -> Table:
    """Return what is known of the rows of a node of an analyzed plan in the JVM.

    Args:
        node: of the plan.
        session: of the plan.
        looks_at_files: True if it is worth to know whether the workers could read its files.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - only where Spark is

    try:
        sql: Any = session._jvm.org.apache.spark.sql  # type: ignore[union-attr]  # noqa: SLF001 - no public way
        dataset = sql.classic.Dataset.ofRows(session._jsparkSession, node)  # noqa: SLF001
        execution = dataset.queryExecution()
        size = int(execution.optimizedPlan().stats().sizeInBytes())
        partitions, why = _partitions(execution.sparkPlan())
        is_scan = looks_at_files and _is_scan(dataset, session)
    except Py4JError as error:
        # Another Spark may have other classes, and to explain is not worth an error.
        reason = str(error).splitlines()[0]
        return Table(None, f"this Spark does not say ({type(error).__name__}: {reason})", None)
    return Table(partitions, why, size if size < _UNKNOWN_BYTES else None, is_scan)


def children(node: Any) -> Iterator[Any]:
    """Yield the nodes below one, those of subqueries after the others."""
    for nodes in (node.children(), node.subqueries()):
        for index in range(int(nodes.size())):
            yield nodes.apply(index)


def kind_of(node: Any) -> str:
    """Return the class of a node, such as "Filter"."""
    return str(node.getClass().getSimpleName())


def _is_scan(dataset: Any, session: SparkSession) -> bool:
    from pyspark.sql import DataFrame  # noqa: PLC0415 - pyspark only where Spark is

    try:
        source_of(DataFrame(dataset, session))
    except (Unsure, UnsupportedTypeError):
        return False
    return True


def _partitions(node: Any) -> tuple[int | None, str]:
    kind, below = kind_of(node), node.children()
    if kind in _NARROW and int(below.size()) == 1:
        return _partitions(below.apply(0))
    if kind == "UnionExec":
        each = [_partitions(below.apply(index))[0] for index in range(int(below.size()))]
        number = None if None in each else sum(filter(None, each))
        return number, _RUNS.format("a union") if number is None else "those of a union"
    if kind == "ShuffleExchangeExec":
        is_given = str(node.shuffleOrigin().toString()) == _BY_NUMBER
        number = int(node.outputPartitioning().numPartitions()) if is_given else None
        return number, "those of a repartition before it" if is_given else _RUNS.format("a shuffle")
    return _of_leaf(node, kind)


def _of_leaf(node: Any, kind: str) -> tuple[int | None, str]:
    if kind in _TELLING:
        return int(node.outputPartitioning().numPartitions()), "those of the DataFrame"
    if kind in _LOCAL:
        return int(node.execute().getNumPartitions()), "those of the DataFrame"
    if kind == "FileSourceScanExec":
        location = kind_of(node.relation().location())
        if location == _LISTED:
            return int(node.inputRDD().getNumPartitions()), "pieces of files, as Spark cuts them"
        return None, _RUNS.format(f"files in {location}")
    return None, _RUNS.format(kind)
