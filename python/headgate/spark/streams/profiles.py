"""Resource profiles of workers that run one stage of a streaming job, by Spark's stage-level scheduling. Decision: ADR 0062."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate._matches import close_matches
from headgate.errors import NotEnoughSlots, OptionError
from headgate.spark.slots import is_dynamic, local_attempts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.resource import ResourceProfile

    from headgate.spark.slots import Slots
    from headgate.stream.graph.stages import JobGraph, Stage

_EXECUTOR: Final = "spark.executor.resource."
_CPUS: Final = "cpus"
#: The place that has no resources, as a clause.
_LOCAL: Final = "in Spark's local mode"


@dataclass(frozen=True, slots=True)
class ExecutorResources:
    """Resources of the executors of an application, for the workers of stages.

    Args:
        master: of the application.
        conf: of the application.
        slots: of the application.
    """

    master: str
    conf: Mapping[str, str]
    slots: Slots

    @property
    def without_resources(self) -> str:
        """The place that enforces no resources, as a clause; empty if Spark gives them."""
        return "" if local_attempts(self.master) is None else _LOCAL

    @property
    def _of_each(self) -> dict[str, int]:
        """Amounts of one executor, without those that are not known."""
        names = {
            key.removeprefix(_EXECUTOR).partition(".")[0]
            for key in self.conf
            if key.startswith(_EXECUTOR)
        }
        amounts = {name: int(self.conf.get(f"{_EXECUTOR}{name}.amount") or 0) for name in names}
        cores = self.slots.each * self._task_cpus
        return {**amounts, _CPUS: cores} if cores else amounts

    @property
    def _task_cpus(self) -> int:
        return int(self.conf.get("spark.task.cpus") or 1)

    def slots_for(self, stage: Stage) -> int:
        """Return how many slots the workers of a stage take."""
        resources = {} if self.without_resources else _resources(stage)
        return stage.own_workers * math.ceil(resources.get(_CPUS, 1) / self._task_cpus)

    def check(self, graph: JobGraph) -> None:
        """Refuse resources that the executors lack.

        With dynamic allocation Spark starts executors that have them, so nothing is known before.

        Raises:
            OptionError: they have no resource of a name.
            NotEnoughSlots: they have less of it.
        """
        if self.without_resources or is_dynamic(self.conf):
            return
        there, needed = self._of_each, dict.fromkeys(self._of_each, 0.0)
        executors = self.slots.number // self.slots.each if self.slots.each else None
        for stage in graph.stages:
            for name, amount in _resources(stage).items():
                if name == _CPUS and name not in there:
                    continue  # the size of the executors is not known
                self._check_one(stage, name, amount, there)
                needed[name] += amount * stage.own_workers
                if executors is not None and needed[name] > there[name] * executors:
                    raise _too_few(stage, name, needed[name], there[name], executors)

    @staticmethod
    def _check_one(stage: Stage, name: str, amount: float, there: Mapping[str, int]) -> None:
        if name not in there:
            near = [f'resources={{"{like}": {amount:g}}}' for like in close_matches(name, there)]
            raise OptionError(
                f"resources= of {stage.head.uid} asks for {name!r}, which the executors do not have",
                asked=f"resources={dict(_resources(stage))!r}",
                have=f"an executor has {_shown(there)}",
                remedy=" · ".join(
                    [*near, f"the conf {_EXECUTOR}{name}.amount, before the application starts"]
                ),
            )
        if amount > there[name]:
            raise NotEnoughSlots(
                f"a worker of {stage.head.uid} needs {name}={amount:g}, and no executor has so much",
                asked=f"resources={dict(_resources(stage))!r}",
                have=f"an executor has {_shown(there)}",
                remedy=f'resources={{"{name}": {there[name]}}} · larger executors',
            )

    def profile(self, stage: Stage, worker_cpus: float | None) -> ResourceProfile | None:
        """Return the resource profile of the workers of a stage; None if it asks for nothing, or Spark would refuse one.

        Args:
            stage: with workers of its own.
            worker_cpus: cores that Spark counts for a worker without resources; None for those of any task.
        """
        resources = _resources(stage)
        if not resources or self.without_resources:
            return None
        # PySpark's types say int for cores, its JVM takes fractions.
        from pyspark.resource import (  # noqa: PLC0415 - pyspark only where Spark is
            ExecutorResourceRequests,
            ResourceProfileBuilder,
            TaskResourceRequests,
        )

        tasks: Any = TaskResourceRequests()
        cpus = resources.get(_CPUS, worker_cpus)
        tasks.cpus(self._task_cpus if cpus is None else cpus)
        others = {name: amount for name, amount in resources.items() if name != _CPUS}
        for name, amount in others.items():
            tasks.resource(name, amount)
        builder = ResourceProfileBuilder().require(tasks)
        if is_dynamic(self.conf):
            # A profile without executors would be one of tasks alone, for which Spark starts none that have the resources.
            executors = ExecutorResourceRequests()
            for name, amount in others.items():
                conf = f"{_EXECUTOR}{name}"
                most = max(math.ceil(amount), int(self.conf.get(f"{conf}.amount") or 0))
                script, vendor = (
                    self.conf.get(f"{conf}.{key}") or "" for key in ("discoveryScript", "vendor")
                )
                executors.resource(name, most, script, vendor)
            if others:
                builder = builder.require(executors)
        return builder.build


def _resources(stage: Stage) -> Mapping[str, float]:
    workers = stage.head.workers
    return {} if workers is None else workers.resources


def _shown(amounts: Mapping[str, float]) -> str:
    return ", ".join(_each(amounts)) or "no resources"


def _each(amounts: Mapping[str, float]) -> Iterator[str]:
    for name, amount in sorted(amounts.items()):
        yield f"{name}={amount:g}"


def _too_few(stage: Stage, name: str, needed: float, each: int, executors: int) -> NotEnoughSlots:
    fitting = int(each * executors / _resources(stage)[name])
    return NotEnoughSlots(
        f"the stages of the job need {name}={needed:g} at a time, and the cluster has {each * executors}",
        asked=f"workers={stage.own_workers} of {stage.head.uid}, each with {stage.head.workers}",
        have=f"{executors} executors with {name}={each} each",
        remedy=f"at most workers={fitting} · more executors",
    )
