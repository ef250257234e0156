"""Plain facts of the newest exchanges that were planned, for ``explain()``, and how a plan names them.

A plan in the JVM has the name of its exchange as a tag of a node, which Spark copies with the node into
each plan made of it. Facts hold no DataFrame and no function, so they keep no exchange alive.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.selectors import (
    BroadcastSelector,
    ForwardSelector,
    GlobalSelector,
    HashSelector,
    KeyGroupSelector,
    RebalanceSelector,
    RescaleSelector,
    RoundRobinSelector,
    ShuffleSelector,
)
from headgate.spark.confs import is_connect
from headgate.spark.plan.kept_tasks import task_options
from headgate.spark.plan.keys import words

if TYPE_CHECKING:
    from weakref import WeakKeyDictionary

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

    from headgate._options import Options
    from headgate.spark.plan.decide import Decision
    from headgate.spark.plan.request import Request
    from headgate.spark.plan.rules import Asked, Choice, There
    from headgate.spark.tasks.planned_source import PlannedSource

_LOG: Final = logging.getLogger("headgate.spark")
#: Exchanges that are remembered.
MOST: Final = 256
_LOCK: Final = threading.Lock()
_newest: OrderedDict[str, ExchangeFacts] = OrderedDict()
#: The tag of each application, an object of its JVM.
_tags: WeakKeyDictionary[SparkContext, Any] = weakref.WeakKeyDictionary()
#: Plans of clients of Spark Connect -> the name of their exchange.
_named: WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_TAG: Final = "headgate.exchange"


@dataclass(frozen=True, slots=True)
class Placement:
    """How the rows of an input are placed.

    Attributes:
        kind: ``"hash"``, ``"key groups"``, ``"turn"``, ``"random"``, ``"all"``, ``"one"``, ``"function"``
            or ``"selector"``.
        columns: the keys, as the caller names them.
        name: of the function or selector.
        by_rows: True if single rows are placed, False if whole batches are.
    """

    kind: str
    columns: tuple[str, ...] = ()
    name: str = ""
    by_rows: bool = True


@dataclass(frozen=True, slots=True)
class InputFacts:
    """The facts of an input.

    Attributes:
        source: name of the source; empty for a DataFrame that Spark reads.
        placement: of its rows.
        sort_within: the columns by which the rows of a partition are sorted.
        spark_reads: why Spark reads it although ``read="auto"``; empty if that is not so.
        has_map: True if Python makes the rows that are sent.
        has_computed_keys: True if only Spark can compute a key.
        given: schema of the rows that ``map`` gets.
        read: schema of the batches as the source says; None for a DataFrame.
        sent: schema of the rows that are sent.
        producers: number of tasks that read a source; None if it is not known when the plan is made.
        splits: of a source, as far as they are listed ahead.
    """

    source: str
    placement: Placement
    sort_within: tuple[str, ...]
    spark_reads: str
    has_map: bool
    has_computed_keys: bool
    given: pa.Schema
    read: pa.Schema | None
    sent: pa.Schema
    producers: int | None
    splits: int | None


@dataclass(frozen=True, slots=True)
class ExchangeFacts:
    """The facts of an exchange.

    Attributes:
        name: of the exchange in hex, as its statistics have it.
        asked: what the call asks for.
        there: what the session has.
        choice: the way.
        partitions: of the result.
        slots: with which it was planned.
        slots_words: their origin.
        each: slots of an executor; 0 if unknown.
        inputs: in the order of the call.
        has_reduce: True if Python makes the result.
        result: schema of the result.
        options: of the call.
        segment_size: of the tasks, in bytes.
    """

    name: str
    asked: Asked
    there: There
    choice: Choice
    partitions: int
    slots: int
    slots_words: str
    each: int
    inputs: tuple[InputFacts, ...]
    has_reduce: bool
    result: pa.Schema
    options: Options
    segment_size: int


def remember(df: DataFrame, decision: Decision) -> None:
    """Remember what was decided, and name it in the plan of the DataFrame.

    The data path does not need it: where Spark refuses the tag, only ``explain()`` does not find the
    exchange.
    """
    facts = facts_of(decision)
    with _LOCK:
        _newest[facts.name] = facts
        while len(_newest) > MOST:
            _newest.popitem(last=False)
    if is_connect(df):
        _named[df._plan] = facts.name  # noqa: SLF001 - no public way
        return
    from py4j.protocol import Py4JError  # noqa: PLC0415 - only where Spark is

    try:
        tag = _tag(df.sparkSession.sparkContext)
        df._jdf.logicalPlan().setTagValue(tag, facts.name)  # noqa: SLF001 - no public way
    except Py4JError as error:
        _LOG.debug("explain() will not find exchange %s: %s", facts.name[:4], error)


def known(name: str) -> ExchangeFacts | None:
    """Return the facts of an exchange; None if there were :data:`MOST` newer ones."""
    with _LOCK:
        return _newest.get(name)


def name_of(node: Any, context: SparkContext | None) -> str:
    """Return the name of the exchange whose result a node of a plan is; empty if it is none.

    Args:
        node: of a plan in the JVM, or of one of Spark Connect.
        context: of the JVM; None for Spark Connect.
    """
    if context is None:
        return _named.get(node, "")
    found = node.getTagValue(_tag(context))
    return str(found.get()) if found.isDefined() else ""


def facts_of(decision: Decision) -> ExchangeFacts:
    """Return the plain facts of a decision."""
    first, partitions = decision.requests[0], decision.partitions
    is_kept = decision.choice.mode == "kept"
    each = zip(decision.requests, decision.sources, decision.spark_reads, strict=True)
    options = first.options
    size: Any = task_options(first, partitions)["segment_size"] if is_kept else None
    return ExchangeFacts(
        name=decision.name,
        asked=decision.asked,
        there=decision.there,
        choice=decision.choice,
        partitions=partitions,
        slots=decision.slots.number,
        slots_words=decision.slots.words,
        each=decision.slots.each,
        inputs=tuple(_input(*one) for one in each),
        has_reduce=first.reduce is not None,
        result=first.result_schema,
        options=options,
        segment_size=size or options["segment_size"],
    )


def placement(by: Any) -> Placement:
    """Return how rows are placed by an argument ``by``, as :class:`Request` has it."""
    if by is None:
        return Placement("turn", by_rows=False)
    if isinstance(by, list):
        return Placement("hash", tuple(map(words, by)))
    name = type(by).__name__
    kind = "selector"
    columns: tuple[str, ...] = ()
    match by:
        case HashSelector():
            kind, columns = "hash", tuple(map(words, by.columns))
        case KeyGroupSelector():
            kind, columns = "key groups", (by.column,)
        case RoundRobinSelector() | RebalanceSelector() | RescaleSelector():
            kind = "turn"
        case ShuffleSelector():
            kind = "random"
        case BroadcastSelector():
            kind = "all"
        case ForwardSelector() | GlobalSelector():
            kind = "one"
        case _ if callable(by):
            kind, name = "function", str(getattr(by, "__name__", name))
    return Placement(kind, columns, name, getattr(by, "by_rows", kind not in {"all", "one"}))


def _input(request: Request, source: PlannedSource | None, spark_reads: str) -> InputFacts:
    given = request.source
    return InputFacts(
        source="" if given is None else given.name,
        placement=placement(request.by),
        sort_within=tuple(map(words, request.sort_within)),
        spark_reads=spark_reads,
        has_map=request.map is not None,
        has_computed_keys=request.has_computed_keys,
        given=request.given_schema,
        read=None if given is None else given.given,
        sent=request.wire_schema,
        producers=None if source is None else len(source.shares),
        splits=None if source is None else sum(map(len, source.shares)),
    )


def _tag(context: SparkContext) -> Any:
    found = _tags.get(context)
    if found is None:
        trees = context._jvm.org.apache.spark.sql.catalyst.trees  # type: ignore[union-attr]  # noqa: SLF001
        found = _tags[context] = trees.TreeNodeTag(_TAG)
    return found
