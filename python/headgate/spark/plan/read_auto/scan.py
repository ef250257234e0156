"""Takes the plan of a DataFrame apart, as Spark writes it in JSON. No Spark here."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow.compute as pc

    from headgate.spark.plan.read_auto.values import Risk, Value

    #: A node of a plan or of an expression, as Spark's ``TreeNode.toJSON`` has it.
    Node = dict[str, Any]
    #: Translates nodes of an expression by the values of columns; the third argument returns the node in the JVM
    #: at a place, the fourth is the expression in words.
    Translate = Callable[[Sequence[Node], Mapping[int, Value], Callable[[int], Any], str], Value]

#: The leaf that reads files.
_FILES: Final = "LogicalRelation"
_SUBQUERIES: Final = ("Subquery", "Exists", "ListQuery", "DynamicPruning")


class Unsure(Exception):
    """Whether the workers would read the same rows is not known, for this reason.

    Args:
        reason: a clause about the DataFrame.
        remedy: a change by which the workers would read it; empty if there is none.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy

    @property
    def sentence(self) -> str:
        """The reason and the remedy."""
        return f"{self}. To change that: {self.remedy}" if self.remedy else str(self)


@dataclass(frozen=True, slots=True)
class Scan:
    """A plan that reads files, drops rows, and drops, renames or computes columns.

    Attributes:
        columns: name of a column -> its value, in their order.
        filter: keeps the rows for which it is true; None for all.
        used: names of the columns of the files and folders that are needed.
        folders: Spark's expressions, each of which is true for the folders whose rows are kept.
        risks: of the filter.
    """

    columns: Mapping[str, Value]
    filter: pc.Expression | None
    used: frozenset[str]
    folders: tuple[Any, ...]
    risks: frozenset[Risk]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the files and folders of a scan.

    Attributes:
        values: Spark's id of a column -> its value.
        names: Spark's id of a column -> its name, in their order.
        folders: Spark's ids of those that folders have.
    """

    values: Mapping[int, Value]
    names: Mapping[int, str]
    folders: frozenset[int]


def kind_of(node: Node) -> str:
    """Return the class of a node, such as "Filter"."""
    return str(node["class"]).rpartition(".")[2]


def more_than_a_scan(kind: str) -> Unsure:
    """Return the reason for a node of a plan that is above a scan."""
    reason = f"its plan has {kind}, which is more than columns and a filter"
    return Unsure(reason, "do it in map or reduce, or write its rows to Parquet files first")


def no_scan(kind: str) -> Unsure:
    """Return the reason for a leaf of a plan that reads no files."""
    return Unsure(f"it is {kind}, not a scan of files", "write its rows to Parquet files first")


def scan_of(
    nodes: Sequence[Node], plans: Sequence[Any], columns: Columns, translate: Translate
) -> Scan:
    """Return the scan that a plan is.

    Args:
        nodes: the optimized plan, from its root to its leaf.
        plans: the same nodes in the JVM.
        columns: of the leaf.
        translate: translates an expression.

    Raises:
        Unsure: The plan does more, or an expression has a meaning of its own in Spark.
    """
    for node in nodes[:-1]:
        if kind_of(node) not in {"Project", "Filter"}:
            raise more_than_a_scan(kind_of(node))
    if kind_of(nodes[-1]) != _FILES:
        raise no_scan(kind_of(nodes[-1]))
    values = dict(columns.values)
    output = {name: id_ for id_, name in columns.names.items()}
    filters: list[Value] = []
    folders: list[Any] = []
    for node, plan in zip(reversed(nodes[:-1]), reversed(plans[:-1]), strict=True):
        if kind_of(node) == "Filter":
            of_folders, others = _split(node["condition"], plan, columns)
            folders += of_folders
            for start, conjunct in others:
                by_place = partial(_in_condition, plan, start)
                filters.append(translate(conjunct, values, by_place, "its filter"))
            continue
        output, below = {}, dict(values)
        for number, expression in enumerate(node["projectList"]):
            name, id_ = str(expression[0]["name"]), _id(expression[0])
            if name in output:
                raise Unsure(f"it has two columns {name!r}")
            output[name] = id_
            by_place = partial(_in_list, plan, number)
            values[id_] = translate(expression, below, by_place, f"its column {name!r}")
    outputs = {name: _value_of(values, id_, name) for name, id_ in output.items()}
    used = frozenset[str]().union(*(value.columns for value in [*outputs.values(), *filters]))
    both = reduce(operator.and_, (it.expression for it in filters)) if filters else None
    risks = frozenset["Risk"]().union(*(it.risks for it in filters))
    return Scan(outputs, both, used, tuple(folders), risks)


def _split(
    condition: Sequence[Node], plan: Any, columns: Columns
) -> tuple[list[Any], list[tuple[int, Sequence[Node]]]]:
    """Return the conditions over folders alone in the JVM, and the others with their places."""
    of_folders, others = [], []
    for start, end in _conjuncts(condition):
        conjunct = condition[start:end]
        if _is_of_folders(conjunct, columns):
            folder = plan.condition().apply(start)
            if folder.deterministic():
                of_folders.append(folder)
                continue
        others.append((start, conjunct))
    return of_folders, others


def _value_of(values: Mapping[int, Value], id_: int, name: str) -> Value:
    if id_ not in values:
        raise Unsure(f"column {name!r} is not in its files")
    return values[id_]


def _in_condition(plan: Any, start: int, place: int) -> Any:
    return plan.condition().apply(start + place)


def _in_list(plan: Any, number: int, place: int) -> Any:
    return plan.projectList().apply(number).apply(place)


def _id(node: Node) -> int:
    return int(node["exprId"]["id"])


def _conjuncts(condition: Sequence[Node]) -> list[tuple[int, int]]:
    """Return the places, from and to, of the conditions that are combined by AND."""
    places: list[tuple[int, int]] = []

    def end_of(start: int) -> int:
        end = start + 1
        for _ in range(condition[start]["num-children"]):
            end = end_of(end)
        return end

    def split(start: int) -> None:
        if kind_of(condition[start]) == "And":
            left = start + 1
            split(left)
            split(end_of(left))
        else:
            places.append((start, end_of(start)))

    split(0)
    return places


def _is_of_folders(conjunct: Sequence[Node], columns: Columns) -> bool:
    """Return True if a condition sees nothing but the columns of folders, by their own names."""
    attributes = [node for node in conjunct if kind_of(node) == "AttributeReference"]
    return (
        bool(attributes)
        and all(
            _id(node) in columns.folders and columns.names[_id(node)] == node["name"]
            for node in attributes
        )
        and not any(word in kind_of(node) for node in conjunct for word in _SUBQUERIES)
    )
