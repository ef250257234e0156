"""Finds the exchanges in the plan of a DataFrame, and what Spark knows of their inputs. Nothing runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.confs import is_connect
from headgate.spark.explained.advice import may_workers_read
from headgate.spark.explained.recent_plans import name_of, remembered
from headgate.spark.explained.tables import Table, children, kind_of, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from headgate.spark.plan.rules import Plan

_SHUFFLES: Final = {"Repartition", "RepartitionByExpression", "RebalancePartitions"}
_PYTHON: Final = "MapInArrow"


@dataclass(frozen=True, slots=True)
class PlannedExchange:
    """An exchange of a plan.

    Attributes:
        plan: of the exchange.
        tables: for each input what Spark knows of it; None for a source, and where nobody has it.
        fed_by: for each input the exchanges from which Spark brings rows to it.
    """

    plan: Plan
    tables: tuple[Table | None, ...]
    fed_by: tuple[tuple[str, ...], ...]


class Finder:
    """Finds the exchanges of a plan, those first whose rows others get.

    Args:
        session: of the DataFrame.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._context = None if is_connect(session) else session.sparkContext
        self._exchanges: dict[str, PlannedExchange] = {}
        #: Ids of nodes of a plan of Spark Connect, which has the same object in several places.
        self._visited: set[int] = set()
        #: Exchanges whose rows Spark takes.
        self._returned: dict[str, None] = {}
        #: Exchanges that are in the plan, and whose plans are not remembered any more.
        self.forgotten: set[str] = set()

    def of(self, df: DataFrame) -> list[PlannedExchange]:
        """Return the exchanges of a DataFrame's plan."""
        plan: Any = df._plan if is_connect(df) else df._jdf.logicalPlan()  # noqa: SLF001 - no public way
        self._visit(plan)
        return list(self._exchanges.values())

    def returned_by(self, df: DataFrame) -> list[str]:
        """Return the exchanges whose rows a classic DataFrame has, or operators of Spark above all exchanges."""
        return list(self._nearest(df._jdf.logicalPlan()))  # noqa: SLF001 - no public way

    def is_returned(self, name: str) -> bool:
        """Return True if Spark takes the rows of an exchange, and not only tasks of the next one do."""
        return name in self._returned

    def _nearest(self, node: Any) -> dict[str, None]:
        """Return the exchanges whose rows come to a node through nodes of Spark alone."""
        name = name_of(node, self._context)
        if name:
            return {name: None}
        return {name: None for child in children(node) for name in self._nearest(child)}

    def _visit(self, node: Any) -> None:
        name = name_of(node, self._context)
        if name:
            self._returned[name] = None
        if name and (name in self._exchanges or name in self.forgotten):
            return
        if self._context is None and id(node) in self._visited:
            return
        self._visited.add(id(node))
        for child in _connect_children(node) if self._context is None else children(node):
            self._visit(child)
        if name:
            self._add(name, node)

    def _add(self, name: str, node: Any) -> None:
        """Add an exchange, after those in whose tasks its producers run.

        Args:
            name: of the exchange.
            node: the node of its result, or of the task that does the work of its consumers.
        """
        if name in self._exchanges or name in self.forgotten:
            return
        plan = remembered(name)
        if plan is None:
            self.forgotten.add(name)
            return
        parts = _parts_of(node, plan)
        for facts, part in zip(plan.call.inputs, parts, strict=True):
            if facts.follows is not None and part is not None:
                self._add(facts.follows.exchange, part)
        inputs = _inputs(parts, plan)
        tables = tuple(self._table(plan, number, below) for number, below in enumerate(inputs))
        fed_by = tuple(() if below is None else tuple(self._nearest(below)) for below in inputs)
        self._exchanges[name] = PlannedExchange(plan, tables, fed_by)

    def _table(self, plan: Plan, number: int, node: Any) -> Table | None:
        if self._context is None or node is None:
            return None
        looks = may_workers_read(plan, plan.call.inputs[number])
        return table_of(node, self._session, looks_at_files=looks)


def _connect_children(node: Any) -> Iterator[Any]:
    """Yield the nodes below a node of Spark Connect, which has them as attributes."""
    from pyspark.sql.connect.plan import LogicalPlan  # noqa: PLC0415 - only on Spark Connect

    for value in vars(node).values():
        for child in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(child, LogicalPlan):
                yield child


def _parts_of(node: Any, plan: Plan) -> list[Any]:
    """Return for each input the node whose rows go to the shuffle, below that of the result; None where unknown."""
    nothing: list[Any] = [None] * len(plan.call.inputs)
    if plan.session.on_connect or plan.mode == "broadcast":
        return nothing  # a small input is in a subquery
    while kind_of(node) not in _SHUFFLES:
        if int(node.children().size()) != 1:
            return nothing
        node = node.children().apply(0)
    below = list(_parts(node.children().apply(0), len(plan.call.inputs)))
    return below if len(below) == len(plan.call.inputs) else nothing


def _inputs(parts: list[Any], plan: Plan) -> list[Any]:
    """Return the node of each input whose rows Spark has; None where it has none, or where it is not known.

    Args:
        parts: what :func:`_parts_of` returns.
        plan: of the exchange.
    """
    each = zip(plan.call.inputs, parts, strict=True)
    return [
        None
        if facts.source or facts.follows is not None or part is None
        else _below_functions(part, _functions(plan, number))
        for number, (facts, part) in enumerate(each)
    ]


def _parts(node: Any, inputs: int) -> Iterator[Any]:
    """Yield the nodes whose rows go to the shuffle, one for each input."""
    if inputs == 1 or kind_of(node) != "Union":
        yield node
        return
    for child in children(node):
        # The union of the first inputs, then the others.
        yield from _parts(child, inputs - 1)


def _functions(plan: Plan, number: int) -> int:
    """Return how many functions of Python are between an input and the shuffle."""
    if plan.mode == "kept":
        return 1
    facts = plan.call.inputs[number]
    return int(facts.has_function) + int(not facts.placement.is_by_spark)


def _below_functions(node: Any, number: int) -> Any:
    """Return the node below so many functions of Python; None if the plan has another form."""
    for _ in range(number):
        if kind_of(node) != _PYTHON:
            return None
        node = node.children().apply(0)
    return node
