"""How many tasks of an application can run at the same time."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOCAL = re.compile(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of an application: their number, and in words where it comes from."""

    number: int
    words: str


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
    words = f"{executors} executors x {cores} cores, spark.task.cpus={task_cpus}"
    return Slots(executors * (cores // task_cpus), words)


class SlotCounter:
    """Counts the slots of a running application; reads its configuration once.

    With dynamic allocation, the slots of as many executors as it may ask for.
    """

    def __init__(self, context: SparkContext) -> None:
        conf = dict(context.getConf().getAll())
        self._context = context
        self._cpus = int(conf.get("spark.task.cpus") or 1)
        self._cores = int(conf.get("spark.executor.cores") or 0)
        self._fixed = from_master(context.master or "", self._cpus)
        name, words = "spark.executor.instances", "asked for"
        if conf.get("spark.dynamicAllocation.enabled") == "true":
            name, words = "spark.dynamicAllocation.maxExecutors", "at most"
        self._executors = int(conf.get(name) or 0)
        self._words = f"{self._executors} executors x {self._cores} cores {words}"

    def count(self) -> Slots:
        """Return the slots of now, or those that are to come."""
        if self._fixed is not None:
            return self._fixed
        scala = self._context._jsc.sc()  # noqa: SLF001 - PySpark has no other way to these numbers
        profile = scala.resourceProfileManager().defaultResourceProfile()
        now = int(scala.maxNumConcurrentTasks(profile))
        to_come = self._executors * (self._cores // self._cpus)
        words = f"{now} there now" if now >= to_come else f"{self._words}, {now} there yet"
        return Slots(max(now, to_come), f"{words}, spark.task.cpus={self._cpus}")
