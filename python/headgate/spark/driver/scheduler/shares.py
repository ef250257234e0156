"""Shares of a core for the workers of streaming jobs, so that they leave the slots to other jobs of the application.

A task with a resource profile of its own takes the ``cpus`` of that profile: here a thousandth of a core.

Decision: ADR 0029.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.spark.confs import context_confs
from headgate.spark.slots import is_dynamic, local_attempts

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.resource import ResourceProfile

    from headgate.spark.slots import Slots

#: Cores that Spark counts for a worker.
WORKER_CPUS: Final = 0.001
#: Most workers for each slot.
MOST_PER_SLOT: Final = 10
#: The first Spark that takes less than a core for a task.
_SINCE: Final = (4, 3)


def are_to_be_had(context: SparkContext, version: str, slots: Slots) -> bool:
    """Return True if Spark takes shares of a core here.

    It does from 4.3 on, with executors, and without dynamic allocation, which would start other
    executors for another profile. An executor with one slot would have none left for a whole task.
    """
    major, minor = version.split(".")[:2]
    return (
        (int(major), int(minor)) >= _SINCE
        and local_attempts(context.master or "") is None
        and not is_dynamic(context_confs(context))
        and slots.each > 1
    )


def share_of_a_core() -> ResourceProfile:
    """Return a new profile of tasks that take a thousandth of a core."""
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests  # noqa: PLC0415 - only here

    # PySpark's types say int, its JVM takes fractions.
    request = TaskResourceRequests().cpus(WORKER_CPUS)  # type: ignore[arg-type, unused-ignore]
    return ResourceProfileBuilder().require(request).build
