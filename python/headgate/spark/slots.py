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


def count(context: SparkContext) -> Slots:
    """Return the slots of a running application.

    With dynamic allocation, those of as many executors as it may ask for.
    """
    conf = context.getConf()
    cpus = int(conf.get("spark.task.cpus", "1") or 1)
    fixed = from_master(context.master or "", cpus)
    if fixed is not None:
        return fixed
    cores = int(conf.get("spark.executor.cores", "0") or 0)
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        executors = int(conf.get("spark.dynamicAllocation.maxExecutors", "0") or 0)
        if executors and cores:
            words = f"at most {executors} executors x {cores} cores, spark.task.cpus={cpus}"
            return Slots(executors * (cores // cpus), words)
    scala = context._jsc.sc()  # noqa: SLF001 - PySpark has no other way to its own numbers
    now = int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    asked = int(conf.get("spark.executor.instances", "0") or 0) * (cores // cpus)
    if asked > now:
        return Slots(asked, f"{asked} asked for, {now} there yet, spark.task.cpus={cpus}")
    return Slots(now, f"{now} there now, spark.task.cpus={cpus}")
