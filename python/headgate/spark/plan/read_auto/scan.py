"""Takes the plan of a DataFrame apart, as Spark writes it in JSON. No Spark here."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import operator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.filters import condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    import pyarrow.compute as pc

    #: A node of a plan or of an expression, as Spark's ``TreeNode.toJSON`` has it.
    Node = dict[str, Any]

_MIRRORED: Final = {
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
#: Spark's name of a type, without its parameters -> the value of a literal. Spark writes the literals of
#: other types as text in the session's zone, or not at all.
_LITERALS: Final[dict[str, Callable[[str], Any]]] = {
    "boolean": {"true": True, "false": False}.__getitem__,
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "decimal": Decimal,
    "string": str,
    "date": dt.date.fromisoformat,
    "timestamp_ntz": lambda text: dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=int(text)),  # noqa: DTZ001 - it has no zone
}
#: Spark's expression -> the filter that it is.
_FILTERS: Final = {
    **{name: name for name in (*_MIRRORED, "IsNull", "IsNotNull", "In")},
    "StartsWith": "StringStartsWith",
    "EndsWith": "StringEndsWith",
    "Contains": "StringContains",
}
#: A character that replaces bytes that are not UTF-8, so the literal is not the one in the plan.
_REPLACED: Final = "\ufffd"


class Unsure(Exception):
    """Whether the workers would read the same rows is not known, for this reason."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A plan that reads files, drops rows and drops columns.

    Attributes:
        columns: names of the columns, in their order.
        filter: keeps the rows for which it is true; None for all.
        filtered: names of the columns that the filter uses.
    """

    columns: tuple[str, ...]
    filter: pc.Expression | None
    filtered: frozenset[str]


def scan_of(nodes: list[Node], names: list[str], types: Mapping[str, pa.DataType]) -> Scan:
    """Return the scan that a plan is.

    Args:
        nodes: the optimized plan, from its root to its leaf.
        names: columns of the leaf.
        types: columns that a filter may compare -> their types.

    Raises:
        Unsure: The plan does more, or an expression has a meaning of its own in Spark.
    """
    columns: tuple[str, ...] | None = None
    filters: list[pc.Expression] = []
    filtered: set[str] = set()
    *above, leaf = nodes
    for node in above:
        kind = _kind(node)
        if kind == "Project":
            projected = tuple(_attribute(expression[0]) for expression in node["projectList"])
            columns = projected if columns is None else columns
        elif kind == "Filter":
            rest = iter(node["condition"])
            filters.append(_expression(rest, types, filtered))
        else:
            raise Unsure(f"its plan has {kind}, which is more than columns and a filter")
    if _kind(leaf) != "LogicalRelation":
        raise Unsure(f"it is {_kind(leaf)}, not a scan of files")
    both = functools.reduce(operator.and_, filters) if filters else None
    return Scan(tuple(names) if columns is None else columns, both, frozenset(filtered))


def condition_of(nodes: list[Node], types: Mapping[str, pa.DataType]) -> pc.Expression:
    """Return the condition that the nodes of an expression are.

    Args:
        nodes: the expression, each node before its children.
        types: columns that it may compare -> their types.

    Raises:
        Unsure: It has a meaning of its own in Spark.
    """
    return _expression(iter(nodes), types, set())


def _kind(node: Node) -> str:
    return str(node["class"]).rpartition(".")[2]


def _attribute(node: Node) -> str:
    if _kind(node) != "AttributeReference":
        raise Unsure(f"it computes a column, by {_kind(node)}")
    return str(node["name"])


def _expression(
    rest: Iterator[Node], types: Mapping[str, pa.DataType], used: set[str]
) -> pc.Expression:
    """Return the expression that begins at the next node; its children follow it."""
    node = next(rest)
    kind = _kind(node)
    if kind in {"And", "Or"}:
        left, right = _expression(rest, types, used), _expression(rest, types, used)
        return left & right if kind == "And" else left | right
    if kind == "Not":
        return ~_expression(rest, types, used)
    if kind == "AttributeReference" and node["dataType"] == "boolean":
        return _condition("EqualTo", node, True, types, used)
    if kind not in _FILTERS:
        raise Unsure(f"its filter has {kind}")
    column, *others = (next(rest) for _ in range(node["num-children"]))
    if kind in _MIRRORED and _kind(column) == "Literal":
        (column, others), kind = (others[0], [column]), _MIRRORED[kind]
    _attribute(column)
    values = [_literal(literal, column) for literal in others]
    value = values if kind == "In" else values[0] if values else None
    return _condition(_FILTERS[kind], column, value, types, used)


def _condition(
    kind: str, column: Node, value: Any, types: Mapping[str, pa.DataType], used: set[str]
) -> pc.Expression:
    name = _attribute(column)
    used.add(name)
    comparison = condition(kind, name, types[name], value) if name in types else None
    if comparison is None:
        raise Unsure(f"its filter compares {name!r} of type {column['dataType']}")
    return comparison


def _literal(node: Node, column: Node) -> Any:
    """Return the value of a literal, which has the type of the column that it is compared with."""
    if _kind(node) != "Literal" or node["dataType"] != column["dataType"]:
        raise Unsure(f"its filter compares {column['name']!r} with {_kind(node)}")
    text, kind = node["value"], str(node["dataType"]).partition("(")[0]
    if text is None:
        return None
    try:
        if kind not in _LITERALS:
            raise Unsure(f"its filter compares {column['name']!r} of type {node['dataType']}")
        if _REPLACED in text:
            raise Unsure(f"its filter has the literal {text!r}")
        return _LITERALS[kind](text)
    except (ValueError, KeyError, OverflowError, decimal.InvalidOperation):
        raise Unsure(f"its filter has the literal {text}") from None
