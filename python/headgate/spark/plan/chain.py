"""Exchanges in a row: the consumers of one are the producers of the next, each pair in one task.

Spark would run both in one stage anyway, but in two workers: it takes each row from the first into the JVM,
and from there to the second. The tasks in one have the same input, Spark's shuffle, so what is lost, made
again, and deleted is the same as without it.

The result of an exchange is known by the node of Spark's plan itself. A name of a node would not do: Spark
copies names to nodes that it makes of others.

Decision: ADR 0048.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import UnsupportedTypeError
from headgate.spark.confs import batch_rows, is_connect
from headgate.spark.plan.facts import Followed
from headgate.spark.plan.read_auto.expressions import translated
from headgate.spark.plan.read_auto.scan import Unsure, kind_of
from headgate.spark.plan.read_auto.values import values_of
from headgate.spark.portable import portable
from headgate.spark.schema import arrow_schema
from headgate.spark.tasks.chained import ChainedTask, RowsBetween

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.spark.driver.plan_lifetimes import PlanLifetimes
    from headgate.spark.plan.read_auto.scan import Node

_BODY: Final = "headgate.spark.tasks.chained"
_FUNCTIONS: Final = "MapInArrow"
_CACHED: Final = "InMemoryRelation"
#: Nodes of a plan between two exchanges that a worker can do -> the name of their method of DataFrame.
_BETWEEN: Final = {"Project": "select", "Filter": "where", "SubqueryAlias": "alias"}
#: Conf by which functions get text of another type of Arrow.
_LARGE: Final = "spark.sql.execution.arrow.useLargeVarTypes"
#: Results that are known; of older ones Spark moves the rows.
_MOST: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class ReturningTask:
    """The tasks that return the rows of an exchange.

    Attributes:
        exchange: its name.
        body: the module of the task.
        pickled: the task.
        step: name of the step in Spark's plan.
        schema: of the rows.
        partitions: number of the tasks; None if Spark finds it while it runs.
        memory: bytes of the pool with which each of them reads; 0 if Spark brings the rows.
        has_function: True if a function of the user makes the rows.
    """

    exchange: str
    body: str
    pickled: bytes
    step: str
    schema: pa.Schema
    partitions: int | None
    memory: int
    has_function: bool


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The result of an exchange, with filters and chosen columns, as the input of further tasks.

    Attributes:
        returning: the tasks that return its rows.
        shuffled: what these tasks get: Spark's shuffle.
        between: what happens to the rows then.
        steps: the methods of DataFrame that this was, in the order of the rows.
        batch_rows: most rows in a batch that Spark would give to a function; None without a limit.
    """

    returning: ReturningTask
    shuffled: DataFrame
    between: RowsBetween
    steps: tuple[str, ...]
    batch_rows: int | None

    @property
    def facts(self) -> Followed:
        """The facts that the plan of the next exchange needs."""
        first = self.returning
        return Followed(first.exchange, first.partitions, first.memory, self.steps)


class _Results:
    """The results of one application's exchanges."""

    def __init__(self, context: SparkContext) -> None:
        from headgate.spark.driver.plan_lifetimes import PlanLifetimes  # noqa: PLC0415 - not on Spark Connect

        self.application: str = context.applicationId
        self._java: Any = context._jvm.java  # type: ignore[union-attr]  # noqa: SLF001 - py4j's only door
        self._lifetimes: PlanLifetimes = PlanLifetimes(context)
        self._lock = threading.Lock()
        #: The JVM's hash of a node's identity -> a weak reference to the node, and its tasks.
        self._tasks: OrderedDict[int, tuple[Any, ReturningTask]] = OrderedDict()

    def add(self, node: Any, task: ReturningTask) -> None:
        """Remember a node until it is garbage."""
        key = int(self._java.lang.System.identityHashCode(node))
        entry = self._java.lang.ref.WeakReference(node), task
        with self._lock:
            self._tasks[key] = entry
            while len(self._tasks) > _MOST:
                self._tasks.popitem(last=False)
        self._lifetimes.add(node, lambda: self._drop(key, entry))
        self._lifetimes.look()

    def of(self, node: Any) -> ReturningTask | None:
        """Return the tasks of a node; None if it is not the very node of a result."""
        key = int(self._java.lang.System.identityHashCode(node))
        with self._lock:
            reference, task = self._tasks.get(key, (None, None))
        # Several objects may have one hash.
        return task if reference is not None and reference.refersTo(node) else None

    def is_same(self, left: Any, right: Any) -> bool:
        """Return True if two references are to one object of the JVM."""
        return bool(self._java.lang.ref.WeakReference(left).refersTo(right))

    def _drop(self, key: int, entry: tuple[Any, ReturningTask]) -> None:
        with self._lock:
            if self._tasks.get(key) is entry:
                del self._tasks[key]


_LOCK: Final = threading.Lock()
_results: _Results | None = None


def _results_of(context: SparkContext) -> _Results:
    """Return the results of an application's exchanges, the only one of this process."""
    global _results  # noqa: PLW0603 - one per process, as Spark's context
    with _LOCK:
        if _results is None or _results.application != context.applicationId:
            _results = _Results(context)
        return _results


def add_result(result: DataFrame, task: ReturningTask) -> None:
    """Let tasks that follow an exchange run in the tasks that return its rows.

    Args:
        result: what ``mapInArrow`` returned with these tasks.
        task: the tasks.
    """
    if not is_connect(result):
        context = result.sparkSession.sparkContext
        _results_of(context).add(result._jdf.logicalPlan(), task)  # noqa: SLF001 - no public way


def chain_of(df: DataFrame) -> Chain:
    """Return a DataFrame as the result of an exchange, with filters and chosen columns.

    Raises:
        Unsure: It is none.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - only where Spark is

    if is_connect(df):
        raise Unsure("a client of Spark Connect does not see its plan")
    try:
        return _chain_of(df)
    except UnsupportedTypeError as error:
        raise Unsure(str(error).partition("\n")[0]) from error
    except Py4JError as error:  # another Spark may have other classes
        text = str(error).strip().partition("\n")[0]
        raise Unsure(f"the look at its plan failed: {text}") from error


def after(
    chain: Chain,
    task: Any,
    body: str,
    name: str,
    schema: StructType | str,
    *,
    is_by_row: bool,
    may_keep: bool,
) -> DataFrame:
    """Return what a task makes of the rows of a chain, in the tasks that return them.

    Args:
        chain: the chain.
        task: the task, whose input are rows.
        body: the module whose ``run(task, batches)`` does its work.
        name: of the step in Spark's plan.
        schema: Spark's schema of what the task returns.
        is_by_row: True if the task takes a batch of any size; else it gets those that Spark would give it.
        may_keep: True if a function of the user gets the batches, and may keep them.
    """
    first = chain.returning
    both = ChainedTask(
        first_body=first.body,
        first=first.pickled,
        between=chain.between,
        batch_rows=None if is_by_row else chain.batch_rows,
        copies=may_keep and first.has_function,
        second_body=body,
        second=task,
    )
    return chain.shuffled.mapInArrow(portable(both, _BODY, f"{first.step}, {name}"), schema)


def _chain_of(df: DataFrame) -> Chain:
    session = df.sparkSession
    results = _results_of(session.sparkContext)
    node: Any = df._jdf.logicalPlan()  # noqa: SLF001 - no public way
    steps = []
    while (kind := _kind(node)) in _BETWEEN:
        steps.append(_BETWEEN[kind])
        node = _child(node)
    task = results.of(node) if kind == _FUNCTIONS else None
    if task is None:
        which = f"one of the newest {_MOST} exchanges" if kind == _FUNCTIONS else "an exchange"
        raise Unsure(f"its plan has {kind}, which is not the result of {which}")
    if session.conf.get(_LARGE, "false") == "true":
        raise Unsure(f"{_LARGE} is true")
    sql: Any = session._jvm.org.apache.spark.sql  # type: ignore[union-attr]  # noqa: SLF001 - no public way
    dataset = sql.classic.Dataset.ofRows
    # A plan of our own: Spark looks for cached rows once per plan, and the caller may cache it later.
    execution = dataset(session._jsparkSession, df._jdf.logicalPlan()).queryExecution()  # noqa: SLF001
    has_steps = any(step != "alias" for step in steps)
    plan: Any = execution.optimizedPlan() if has_steps else execution.withCachedData()
    above, function = _above_function(plan)
    if not results.is_same(function.functionExpr().func(), node.functionExpr().func()):
        raise Unsure("Spark's plan of it has another function")
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    schema = arrow_schema(df.schema, zone)
    ids = [int(function.output().apply(i).exprId().id()) for i in range(len(task.schema))]
    filter_, columns = _rows_between(above, ids, _struct(function), zone)
    if not columns:
        raise Unsure("no column of it is left")
    for column, field in zip(columns, schema, strict=True):
        if task.schema.field(column).type != field.type:
            had = task.schema.field(column).type
            raise Unsure(f"column {field.name!r} is {field.type}, and was {had} in its exchange")
    return Chain(
        returning=task,
        shuffled=_frame(dataset(session._jsparkSession, _child(node)), session),  # noqa: SLF001
        between=RowsBetween(filter_, columns, schema),
        steps=tuple(reversed(steps)),
        batch_rows=batch_rows(session),
    )


def _above_function(node: Any) -> tuple[list[Any], Any]:
    """Return the filters and projections above the first function of Python, and its node."""
    above = []
    while (kind := _kind(node)) in _BETWEEN:
        above.append(node)
        node = _child(node)
    if kind == _CACHED:
        raise Unsure("its rows are cached")
    if kind != _FUNCTIONS:
        raise Unsure(f"Spark's plan of it has {kind}")
    return above, node


def _rows_between(
    above: Sequence[Any], ids: list[int], schema: StructType, zone: str
) -> tuple[pc.Expression | None, tuple[int, ...]]:
    """Return the filter of the nodes above a function, and the indexes of the columns that are left.

    Args:
        above: the nodes, the highest first.
        ids: Spark's ids of the columns of the function.
        schema: of these columns.
        zone: time zone of the session.
    """
    names = schema.names
    of_id = {id_: index for index, id_ in enumerate(ids)}
    # A filter cannot tell columns with one name apart.
    values = {
        id_: value
        for id_, value in values_of(schema, ids, zone).items()
        if names.count(names[of_id[id_]]) == 1
    }
    left, filter_ = ids, None
    for node in reversed(above):
        if _kind(node) == "Project":
            left = []
            for item in _items(node.projectList()):
                new, old = _projected(_json(item))
                if old not in of_id:
                    raise Unsure(f"its column {item.name()!r} is not of its exchange")
                left.append(new)
                of_id[new] = of_id[old]
                if old in values:
                    values[new] = values[old]
        elif _kind(node) == "Filter":
            spark_condition = node.condition()
            condition = translated(
                _json(spark_condition), values, spark_condition.apply, "its filter", zone=zone
            ).expression
            filter_ = condition if filter_ is None else filter_ & condition
    return filter_, tuple(of_id[id_] for id_ in left)


def _projected(nodes: list[Node]) -> tuple[int, int]:
    """Return the id of a column of a projection, and that of the column below it that it is."""
    first, *others = nodes
    column = others[0] if kind_of(first) == "Alias" and len(others) == 1 else first
    if kind_of(column) != "AttributeReference":
        computed = next(iter(others), first) if kind_of(first) == "Alias" else first
        raise Unsure(
            f"Spark computes a column of it, by {kind_of(computed)}",
            "compute it in the function before or after",
        )
    return _id(first), _id(column)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _child(node: Any) -> Any:
    return node.children().apply(0)


def _items(items: Any) -> list[Any]:
    return [items.apply(index) for index in range(int(items.size()))]


def _json(expression: Any) -> list[Node]:
    nodes: list[Node] = json.loads(expression.toJSON())
    return nodes


def _id(node: Node) -> int:
    return int(node["exprId"]["id"])


def _struct(node: Any) -> StructType:
    from pyspark.sql.types import StructType  # noqa: PLC0415 - pyspark only where Spark is

    return StructType.fromJson(json.loads(node.schema().json()))


def _frame(dataset: Any, session: SparkSession) -> DataFrame:
    from pyspark.sql import DataFrame  # noqa: PLC0415 - pyspark only where Spark is

    return DataFrame(dataset, session)
