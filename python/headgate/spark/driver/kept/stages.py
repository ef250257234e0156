"""The tasks of a run's stages that run at this moment, as Spark counts them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.spark.tasks.report import Role


@dataclass(frozen=True, slots=True)
class StageCounts:
    """Tasks of one stage.

    Attributes:
        attempt: number of the stage's newest attempt.
        running: tasks that run, of all attempts.
        tasks: of the newest attempt.
        failed: attempts at its tasks that have failed, of the newest attempt.
    """

    attempt: int
    running: int
    tasks: int
    failed: int


@dataclass(slots=True)
class RunStages:
    """The stages of a run that tasks have told of, and what Spark counts in them.

    Threads that read copy first, as another one may add a stage.
    """

    roles: dict[int, Role] = field(default_factory=dict)
    _newest: dict[int, StageCounts] = field(default_factory=dict)
    #: Stage and attempt -> failed attempts at its tasks.
    _failed: dict[tuple[int, int], int] = field(default_factory=dict)
    #: Role -> most tasks of a stage: one that runs again has only those that were lost.
    _most: dict[Role, int] = field(default_factory=dict)

    def take(self, counts: Mapping[int, StageCounts]) -> None:
        """Take the counts of this moment, by stage."""
        for stage, counted in counts.items():
            role = self.roles[stage]
            self._newest[stage] = counted
            self._failed[stage, counted.attempt] = counted.failed
            self._most[role] = max(self._most.get(role, 0), counted.tasks)

    def running(self, role: Role) -> int:
        """Return how many tasks of a role run."""
        newest = list(self._newest.items())
        return sum(counts.running for stage, counts in newest if self.roles[stage] == role)

    def that_run(self) -> list[tuple[int, int, Role]]:
        """Return the stages of which a task runs: number, newest attempt and role."""
        newest = list(self._newest.items())
        return [(stage, c.attempt, self.roles[stage]) for stage, c in newest if c.running]

    def that_failed(self) -> list[tuple[int, int, int]]:
        """Return the stages at whose tasks attempts have failed: number, attempt, and how many failed."""
        failed = list(self._failed.items())
        return [(stage, at, number) for (stage, at), number in failed if number]

    def tasks(self, role: Role) -> int | None:
        """Return how many tasks of a role there are; None if none of their stages was seen."""
        return self._most.get(role)

    @property
    def failed(self) -> int:
        """The attempts at tasks that have failed, as far as they were seen."""
        return sum(list(self._failed.values()))
