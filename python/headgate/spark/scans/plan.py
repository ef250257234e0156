"""Takes the plan of a DataFrame apart, as Spark writes it in JSON. No Spark here."""

from __future__ import annotations

import datetime as dt
import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow.compute as pc

    #: A node of a plan or of an expression, as Spark's ``TreeNode.toJSON`` has it.
    Node = dict[str, Any]

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "EqualTo": operator.eq,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
}
_MIRRORED: Final = {
    "EqualTo": "EqualTo",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
#: Spark's name of a type -> the value of a literal. Spark orders NaN, collated strings and years before
#: 1 otherwise than Arrow, or might.
_LITERALS: Final[dict[str, Callable[[str], Any]]] = {
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "string": str,
    "date": dt.date.fromisoformat,
}


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


def scan_of(nodes: list[Node], names: list[str]) -> Scan:
    """Return the scan that a plan is.

    Args:
        nodes: the optimized plan, from its root to its leaf.
        names: columns of the leaf.

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
            found = tuple(_attribute(expression[0]) for expression in node["projectList"])
            columns = found if columns is None else columns
        elif kind == "Filter":
            rest = iter(node["condition"])
            filters.append(_expression(rest, filtered))
        else:
            raise Unsure(f"its plan has {kind}, which is more than columns and a filter")
    if _kind(leaf) != "LogicalRelation":
        raise Unsure(f"it is {_kind(leaf)}, not a scan of files")
    both = functools.reduce(operator.and_, filters) if filters else None
    return Scan(tuple(names) if columns is None else columns, both, frozenset(filtered))


def _kind(node: Node) -> str:
    return str(node["class"]).rpartition(".")[2]


def _attribute(node: Node) -> str:
    if _kind(node) != "AttributeReference":
        raise Unsure(f"it computes a column, by {_kind(node)}")
    return str(node["name"])


def _expression(rest: Iterator[Node], used: set[str]) -> pc.Expression:
    """Return the expression that begins at the next node; its children follow it."""
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    node = next(rest)
    kind = _kind(node)
    if kind in {"And", "Or"}:
        left, right = _expression(rest, used), _expression(rest, used)
        return left & right if kind == "And" else left | right
    if kind == "Not":
        return ~_expression(rest, used)
    if kind in {"IsNull", "IsNotNull"}:
        name = _attribute(next(rest))
        used.add(name)
        return pc.field(name).is_null() if kind == "IsNull" else pc.field(name).is_valid()
    if kind in _COMPARISONS:
        first, second = next(rest), next(rest)
        if _kind(first) == "Literal":
            first, second, kind = second, first, _MIRRORED[kind]
        column, value = _column(first, used), _literal(second, first)
        return _COMPARISONS[kind](column, value)
    if kind == "In":
        first, *listed = (next(rest) for _ in range(node["num-children"]))
        return _column(first, used).isin([_literal(one, first) for one in listed])
    raise Unsure(f"its filter has {kind}")


def _column(node: Node, used: set[str]) -> pc.Expression:
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    name, kind = _attribute(node), node["dataType"]
    if kind not in _LITERALS:
        raise Unsure(f"its filter compares {name!r} of type {kind}")
    used.add(name)
    return pc.field(name)


def _literal(node: Node, column: Node) -> Any:
    """Return the value of a literal, which has the type of the column that it is compared with."""
    if _kind(node) != "Literal" or node["dataType"] != column["dataType"] or node["value"] is None:
        raise Unsure(f"its filter compares {column['name']!r} with {_kind(node)}")
    try:
        value = _LITERALS[node["dataType"]](node["value"])
    except ValueError:
        raise Unsure(f"its filter has the literal {node['value']}") from None
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    kinds = {"byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64()}
    return pa.scalar(value, kinds.get(node["dataType"]))
