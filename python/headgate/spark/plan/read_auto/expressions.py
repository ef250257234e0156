"""Expressions of Spark as Arrow's: those of which the values are known to be the same, and no others."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.filters import is_comparable, is_moved_by_java
from headgate.spark.plan.read_auto.functions import (
    FUNCTIONS,
    are_comparable,
    cast,
    contained,
    contains_like,
)
from headgate.spark.plan.read_auto.scan import Unsure, kind_of
from headgate.spark.plan.read_auto.values import (
    Value,
    constant,
    is_float,
    limits,
    number_of_time,
    parsed,
)
from headgate.spark.schema import arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from headgate.spark.plan.read_auto.scan import Node

#: Literals whose text in JSON depends on a calendar or a zone; Spark itself says their number.
_TIMES: Final = {"date", "timestamp", "timestamp_ntz"}
#: A character that replaces bytes that are not UTF-8, so the literal is not the one in the plan.
_REPLACED: Final = "\ufffd"
_IN_MAP: Final = "compute it in map"


def translated(
    nodes: Sequence[Node],
    columns: Mapping[int, Value],
    in_spark: Callable[[int], Any],
    whose: str,
    *,
    zone: str,
) -> Value:
    """Return the value of an expression.

    Args:
        nodes: the expression, each node before its children.
        columns: Spark's ids of columns -> their values.
        in_spark: returns the node in the JVM at a place of ``nodes``.
        whose: the expression in words.
        zone: time zone of the session.

    Raises:
        Unsure: The values may differ from Spark's.
    """
    return _Translator(nodes, columns, in_spark, whose, zone).value()


class _Translator:
    """Translates an expression."""

    def __init__(
        self,
        nodes: Sequence[Node],
        columns: Mapping[int, Value],
        in_spark: Callable[[int], Any],
        whose: str,
        zone: str,
    ) -> None:
        self._nodes, self._columns, self._zone = nodes, columns, zone
        self._in_spark, self._whose, self._at = in_spark, whose, 0

    def value(self) -> Value:
        """Return the value of the next node; its children follow it."""
        place = self._at
        node = self._nodes[place]
        kind = kind_of(node)
        self._at += 1
        if kind == "AttributeReference":
            return self._column(node)
        if kind == "Literal":
            return self._literal(node, place)
        if kind not in FUNCTIONS and kind not in _WITH_NODE:
            raise self._unsure(f"has {kind}")
        children = [self.value() for _ in range(node["num-children"])]
        translated = self._translated(kind, node, place, children)
        if translated is None:
            types = " and ".join(dict.fromkeys(str(child.type) for child in children))
            is_whole = all(child.bounds is not None for child in children)
            large = ", and the result may be too large" if is_whole else ""
            raise self._unsure(f"has {kind} of {types}{large}")
        return replace(
            translated,
            columns=translated.columns.union(*(child.columns for child in children)),
            risks=translated.risks.union(*(child.risks for child in children)),
        )

    def _translated(self, kind: str, node: Node, place: int, children: list[Value]) -> Value | None:
        match kind:
            case "Cast":
                want = self._wanted(node["dataType"])
                return None if want is None else cast(children[0], want)
            case "Like":
                value, pattern = children
                return contains_like(value, pattern, str(self._in_spark(place).escapeChar()))
            case "InSet":
                return self._in_set(place, children)
            case "GetStructField":
                return _field(int(node["ordinal"]), children[0])
            case _:
                return FUNCTIONS[kind](kind, children)

    def _unsure(self, text: str) -> Unsure:
        return Unsure(f"{self._whose} {text}", _IN_MAP)

    def _column(self, node: Node) -> Value:
        id_ = int(node["exprId"]["id"])
        if id_ not in self._columns:
            raise self._unsure(f"has {node['name']!r} of type {node['dataType']}")
        return self._columns[id_]

    def _wanted(self, type_: Any) -> pa.DataType | None:
        """Return a type that Arrow compares as Spark does; None for others, such as texts with a collation."""
        want = _type_in_arrow(type_, self._zone)
        is_collated = str(type_).startswith("string ")
        return None if want is None or is_collated or not is_comparable(want) else want

    def _literal(self, node: Node, place: int) -> Value:
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        type_, text = self._wanted(node["dataType"]), node["value"]
        if type_ is None:
            raise self._unsure(f"has a literal of type {node['dataType']}")
        if text is None:
            return constant(pa.scalar(None, type_))
        if node["dataType"] in _TIMES:
            return constant(self._time(int(self._in_spark(place).value()), type_))
        return constant(self._parsed(str(text), type_))

    def _time(self, number: int, type_: pa.DataType) -> pa.Scalar:
        value = number_of_time(number, type_)
        try:
            value.as_py()
        except (ValueError, OverflowError):  # for some of these Spark's reader of Parquet fails
            raise self._unsure("has a time outside of the years 1 to 9999") from None
        if is_moved_by_java(value):
            raise self._unsure("has a time that Spark's reader may take for another")
        return value

    def _parsed(self, text: str, type_: pa.DataType) -> pa.Scalar:
        value = None if _REPLACED in text else parsed(text, type_)
        if value is None:
            raise self._unsure(f"has the literal {text!r}")
        return value

    def _in_set(self, place: int, children: list[Value]) -> Value | None:
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        (child,) = children
        if not are_comparable(children):
            return None
        items = self._in_spark(place).hset()
        # Spark makes one text of all values in one call; a call for each value takes long.
        between = uuid.uuid4().hex
        texts = str(items.mkString(between)).split(between)
        values = []
        if items.contains(None):
            texts.remove("null")
            values.append(pa.scalar(None, child.type))
        if len(texts) + len(values) != int(items.size()):
            raise self._unsure("has a list that cannot be read")
        is_time = pa.types.is_temporal(child.type)
        values += [
            self._time(int(text), child.type) if is_time else self._parsed(text, child.type)
            for text in texts
        ]
        return contained(child, values)


def _type_in_arrow(type_: Any, zone: str) -> pa.DataType | None:
    """Return the Arrow type of a type of Spark in JSON; None if there is none."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - pyspark only where Spark is

    field = {"name": "it", "type": type_, "nullable": True, "metadata": {}}
    try:
        return arrow_type(StructType.fromJson({"fields": [field]}).fields[0].dataType, zone)
    except (ValueError, KeyError, TypeError):  # pyspark does not know the type
        return None


def _field(number: int, child: Value) -> Value | None:
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    if not pa.types.is_struct(child.type):
        return None
    type_ = child.type.field(number).type
    field = pc.struct_field(child.expression, [number])
    column = next(iter(child.columns)) if is_float(type_) else ""
    return Value(
        field, type_, is_bytewise=child.is_bytewise, bounds=limits(type_), float_column=column
    )


#: Expressions that need more than their children.
_WITH_NODE: Final = {"Cast", "Like", "InSet", "GetStructField"}
