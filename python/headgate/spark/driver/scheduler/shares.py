"""Shares of a core for resident consumers, which wait most of the time: Flink's slot sharing on Spark.

A task with a resource profile of its own takes the ``cpus`` of that profile. A consumer of a pipelined
exchange asks for a thousandth of a core, so that it leaves its executor's slots to producers.

Decision: ADR 0029.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.spark.confs import context_confs
from headgate.spark.driver.scheduler.slots import is_dynamic, local_attempts

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.resource import ResourceProfile
    from pyspark.sql import DataFrame

    from headgate.spark.driver.scheduler.slots import Slots

#: Cores that Spark counts for a consumer.
_CONSUMER: Final = 0.001
#: Part of ``spark.task.cpus`` that Spark counts for a producer, so that consumers beside it cost no slot.
_PRODUCER: Final = 0.99
#: Most consumers for each slot: with so many the producers still have all slots.
MOST_PER_SLOT: Final = 10
#: The first Spark that takes less than a core for a task.
_SINCE: Final = (4, 3)


@dataclass(frozen=True, slots=True)
class Shares:
    """The resource profiles of a pipelined exchange.

    Attributes:
        consumer: of its consumers.
        producer: of its producers, where their stage has none yet.
    """

    consumer: ResourceProfile
    producer: ResourceProfile

    def for_producers_of(self, df: DataFrame) -> ResourceProfile | None:
        """Return the profile of producers with this input; None if their stage may have one already.

        Spark refuses a stage with two profiles, as of an exchange whose input is another one.
        """
        plan = str(df._jdf.queryExecution().analyzed())  # noqa: SLF001 - PySpark does not tell it
        return None if "Profile: id" in plan else self.producer


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


def profiles(context: SparkContext) -> Shares:
    """Return new profiles. An application needs one pair: Spark takes others for conflicting ones."""
    cpus = int(context_confs(context).get("spark.task.cpus") or 1)
    return Shares(_profile(_CONSUMER), _profile(_PRODUCER * cpus))


def _profile(cpus: float) -> ResourceProfile:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests  # noqa: PLC0415 - only here

    # PySpark's types say int, its JVM takes fractions.
    request = TaskResourceRequests().cpus(cpus)  # type: ignore[arg-type, unused-ignore]
    return ResourceProfileBuilder().require(request).build
