"""Reads Spark's configuration in few calls of the JVM, each of which costs as much as an option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from headgate.spark.py4j_logs import keep_secrets_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Separates confs in text: a character that no value has.
_SEPARATOR: Final = "\x1e"
#: Conf with the most rows in a batch that Spark gives to Python; 0 or less for no limit.
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_of_context: Final[WeakKeyDictionary[SparkContext, dict[str, str]]] = WeakKeyDictionary()


def is_connect(thing: Any) -> bool:
    """Return True for a session or DataFrame of Spark Connect, whose driver is elsewhere."""
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(thing).__mro__)


def context_confs(context: SparkContext) -> dict[str, str]:
    """Return the configuration of an application, which does not change after its start."""
    confs = _of_context.get(context)
    if confs is None:
        keep_secrets_out()
        # `SparkConf.getAll` of PySpark has py4j log each value on its own, also those that are keys of a store.
        pairs = context._jsc.getConf().getAll()  # noqa: SLF001 - no public way
        jvm: Any = context._jvm  # noqa: SLF001 - no public way
        text = jvm.scala.Predef.genericWrapArray(pairs).mkString(_SEPARATOR)
        entries = (entry[1:-1].partition(",") for entry in str(text).split(_SEPARATOR))
        confs = _of_context[context] = {name: value for name, _, value in entries}
    return confs


def is_true(confs: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Return True if a conf has the value true, as Spark reads it.

    Args:
        confs: of the application.
        name: of the conf.
        default: the value of a conf that is not there.
    """
    return (confs.get(name, default) or "").strip().lower() == "true"


def is_gone(context: SparkContext) -> bool:
    """Return True once the application has been stopped."""
    return context._jsc is None  # noqa: SLF001 - as PySpark checks it


def session_confs(session: SparkSession, prefix: str) -> dict[str, str]:
    """Return the session's confs with this prefix, those of the application included."""
    if is_connect(session):
        return {n: v for n, v in session.conf.getAll.items() if n.startswith(prefix)}
    keep_secrets_out()
    # `session.conf.getAll` calls the JVM for each conf.
    text = session._jsparkSession.conf().getAll().mkString(_SEPARATOR)  # noqa: SLF001
    pairs = (entry.partition(" -> ") for entry in str(text).split(_SEPARATOR))
    both = {**context_confs(session.sparkContext), **{name: value for name, _, value in pairs}}
    return {name: value for name, value in both.items() if name.startswith(prefix)}


def batch_rows(session: SparkSession) -> int | None:
    """Return the most rows in a batch that Spark gives to Python; None without a limit."""
    most = int(str(session.conf.get(_BATCH_ROWS, "10000")))
    return most if most > 0 else None
