"""The slots of an application: each is room for one task."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.confs import context_confs, is_true

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import SparkContext

_LOCAL = re.compile(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*(\d+)\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
#: Slots of an application without a limit of executors.
_UNLIMITED: Final = 1 << 30
#: Longest wait, in seconds, for the first executor of an application that has just started.
_FIRST_EXECUTOR_WAIT: Final = 1.5


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of an application: their number, and its origin as text.

    Attributes:
        number: slots to plan with: those of now, or those that are to come.
        origin: their origin, for error texts.
        most: most slots that there may be; above ``number`` if nothing limits the executors.
        each: slots of one executor; 0 if unknown.
    """

    number: int
    origin: str
    most: int = 0
    each: int = 0


@dataclass(frozen=True, slots=True)
class Executors:
    """The executors that an application may have.

    Attributes:
        most: most executors; None without a limit, 0 if unknown.
        each: slots of one executor; 0 if unknown.
        origin: the origin of the limit, for error texts.
    """

    most: int | None
    each: int
    origin: str


def from_master(master: str, task_cpus: int = 1) -> Slots | None:
    """Return the slots that a master string fixes; None when the cluster decides."""
    local = _LOCAL.fullmatch(master)
    if local is not None:
        cores = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
        return Slots(max(1, cores // task_cpus), f"master {master}")
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    if cluster is None:
        return None
    executors, cores = int(cluster[1]), int(cluster[2])
    origin = f"{executors} executors x {cores} cores, spark.task.cpus={task_cpus}"
    return Slots(executors * (cores // task_cpus), origin)


def local_attempts(master: str) -> int | None:
    """Return how often Spark tries a task under ``local[n]``, or ``local[n,m]``; None elsewhere."""
    local = _LOCAL.fullmatch(master)
    return None if local is None else int(local[2] or 1)


def executors_of(master: str, conf: Mapping[str, str]) -> Executors:
    """Return how many executors a configuration allows, and how many slots each has."""
    cpus = int(conf.get("spark.task.cpus") or 1)
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    cores = int(conf.get("spark.executor.cores") or (cluster[2] if cluster else 0))
    limits = []
    if cluster is not None:
        limits.append((int(cluster[1]) * (int(cluster[2]) // max(1, cores)), "of the master"))
    if is_dynamic(conf):
        maximum = conf.get("spark.dynamicAllocation.maxExecutors")
        if maximum:
            limits.append((int(maximum), "at most, as allocation is dynamic"))
    elif cluster is None:
        limits.append((int(conf.get("spark.executor.instances") or 0), "asked for"))
    total = int(conf.get("spark.cores.max") or 0)
    if total and cores:
        limits.append((total // cores, f"of spark.cores.max={total}"))
    most, origin = min(limits, key=lambda limit: limit[0]) if limits else (None, "at most")
    number = "any number of" if most is None else str(most)
    return Executors(most, cores // cpus, f"{number} executors x {cores} cores {origin}")


class SlotCounter:
    """Counts the slots of a running application; reads its configuration once.

    With dynamic allocation, the slots of as many executors as it may ask for.
    """

    def __init__(self, context: SparkContext) -> None:
        conf = context_confs(context)
        master = context.master or ""
        self._context = context
        self._cpus = int(conf.get("spark.task.cpus") or 1)
        local = _LOCAL.fullmatch(master)
        self._local = None if local is None else from_master(master, self._cpus)
        self._executors = executors_of(master, conf)

    def count(self) -> Slots:
        """Return the slots of now, or those that are to come."""
        if self._local is not None:
            return Slots(self._local.number, self._local.origin, self._local.number)
        now = self._there()
        limit = self._executors
        to_come = self._to_come(now)
        number = now + to_come if limit.most is not None else max(now, 2 * self._each(now))
        most = _UNLIMITED if limit.most is None else number
        origin = f"{limit.origin}, {now} slots there yet" if to_come else f"{now} there now"
        return Slots(number, f"{origin}, spark.task.cpus={self._cpus}", most, self._each(now))

    @property
    def _scala(self) -> Any:
        return self._context._jsc.sc()  # noqa: SLF001 - PySpark has no other way to these numbers

    def _there(self) -> int:
        scala = self._scala
        profile = scala.resourceProfileManager().defaultResourceProfile()
        return int(scala.maxNumConcurrentTasks(profile))

    def _to_come(self, there: int) -> int:
        each = self._each(there)
        if self._executors.most is None:
            return max(1, each)
        return max(0, self._executors.most * each - there)

    def _each(self, there: int) -> int:
        if self._executors.each or not there:
            return self._executors.each
        executors = int(self._scala.schedulerBackend().getExecutorIds().size())
        return there // max(1, executors)


def slots_of(context: SparkContext) -> Slots:
    """Return the slots of the application. Its first executor may come a second after its start."""
    counter = SlotCounter(context)
    slots, deadline = counter.count(), time.monotonic() + _FIRST_EXECUTOR_WAIT
    while slots.number == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
        slots = counter.count()
    return slots


def is_dynamic(conf: Mapping[str, str]) -> bool:
    """Return True if Spark adds and removes executors by itself."""
    return is_true(conf, "spark.dynamicAllocation.enabled")
