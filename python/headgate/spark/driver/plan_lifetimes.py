"""When a plan of Spark has become garbage, so that nobody can run its exchange any more.

A DataFrame of Python is only a handle: others that were made of it keep the plan in the JVM, and so do
caches, views and jobs that run. Each of them has the same object of the plan, which is watched there.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext
    from pyspark.sql import DataFrame

#: Seconds between two looks: garbage is collected seldom.
_PERIOD: Final = 2.0


class PlanLifetimes:
    """The plans of one application that are watched.

    Args:
        context: the application.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        #: A queue of the JVM, in which it puts a reference once its object is garbage; made when needed.
        self._queue: Any = None
        #: References of the JVM, and what to call when their object is garbage.
        self._watched: list[tuple[Any, Callable[[], None]]] = []
        self._due = 0.0

    def __len__(self) -> int:
        """Return the number of plans that are watched."""
        return len(self._watched)

    def add(self, part: Any, ended: Callable[[], None]) -> None:
        """Call a function once an object of the JVM is garbage; in the thread that calls :meth:`look`.

        Args:
            part: a part of a plan that Spark copies into each plan made of it, such as an RDD. The
                caller must not keep it.
            ended: the function, which must not raise.
        """
        references = self._context._jvm.java.lang.ref  # type: ignore[union-attr]  # noqa: SLF001 - py4j's only door
        with self._lock:
            if self._queue is None:
                self._queue = references.ReferenceQueue()
            self._watched.append((references.WeakReference(part, self._queue), ended))

    def look(self) -> None:
        """Call the functions of plans that have become garbage; asks the JVM every few seconds at most."""
        now = time.monotonic()
        if not self._watched or now < self._due:
            return
        self._due = now + _PERIOD
        if self._queue.poll() is None:
            return
        while self._queue.poll() is not None:
            pass
        with self._lock:
            watched = list(self._watched)
        # By identity: the JVM would be asked if two of its references are equal.
        gone = {id(watch): watch for watch in watched if watch[0].refersTo(None)}
        with self._lock:
            self._watched = [watch for watch in self._watched if id(watch) not in gone]
        for _, ended in gone.values():
            ended()


def function_of(df: DataFrame) -> Any:
    """Return the function in the JVM of a DataFrame that ``mapInArrow`` has just returned."""
    return df._jdf.logicalPlan().functionExpr().func()  # noqa: SLF001 - PySpark has no way to it
