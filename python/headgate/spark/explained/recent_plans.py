"""The plans of the newest exchanges, for ``explain()``, and their names in Spark's plans.

A plan in the JVM has the name of its exchange as a tag of a node, which Spark copies with the node into
each plan made of it. A plan of an exchange holds no DataFrame and no function, so it keeps no exchange alive.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.confs import is_connect

if TYPE_CHECKING:
    from weakref import WeakKeyDictionary

    from pyspark import SparkContext
    from pyspark.sql import DataFrame

    from headgate.spark.plan.rules import Plan

_LOG: Final = logging.getLogger("headgate.spark")
#: Exchanges that are remembered.
MOST: Final = 256
_LOCK: Final = threading.Lock()
_newest: OrderedDict[str, Plan] = OrderedDict()
#: The tag of each application, an object of its JVM.
_tags: WeakKeyDictionary[SparkContext, Any] = weakref.WeakKeyDictionary()
#: Plans of clients of Spark Connect -> the name of their exchange.
_named: WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_TAG: Final = "headgate.exchange"


def remember(df: DataFrame, plan: Plan) -> None:
    """Remember the plan of an exchange, and name it in Spark's plan of the DataFrame.

    The data path does not need it: where Spark refuses the tag, only ``explain()`` does not find the
    exchange.
    """
    with _LOCK:
        _newest[plan.name] = plan
        while len(_newest) > MOST:
            _newest.popitem(last=False)
    if is_connect(df):
        _named[df._plan] = plan.name  # noqa: SLF001 - no public way
        return
    from py4j.protocol import Py4JError  # noqa: PLC0415 - only where Spark is

    try:
        tag = _tag(df.sparkSession.sparkContext)
        df._jdf.logicalPlan().setTagValue(tag, plan.name)  # noqa: SLF001 - no public way
    except Py4JError as error:
        _LOG.debug("explain() will not find exchange %s: %s", plan.name[:4], error)


def remembered(name: str) -> Plan | None:
    """Return the plan of an exchange; None if there were :data:`MOST` newer ones."""
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
    value = node.getTagValue(_tag(context))
    return str(value.get()) if value.isDefined() else ""


def _tag(context: SparkContext) -> Any:
    tag = _tags.get(context)
    if tag is None:
        trees = context._jvm.org.apache.spark.sql.catalyst.trees  # type: ignore[union-attr]  # noqa: SLF001
        tag = _tags[context] = trees.TreeNodeTag(_TAG)
    return tag
