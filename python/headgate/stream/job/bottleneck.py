"""Says which stage of a job the others wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.stream.graph.stages import JobGraph, TaskId

#: Part of the time that senders must have waited for a stage before it is called a bottleneck.
_WAITED: Final = 0.1
#: Part of the time that a stage must have worked.
_WORKED: Final = 0.3


@dataclass(frozen=True, slots=True)
class Shares:
    """What a task did in the last seconds, as parts of the time.

    Attributes:
        busy: in operators, without waits.
        blocked: waiting for the next stage to take rows.
    """

    busy: float
    blocked: float

    @property
    def idle(self) -> float:
        """Waiting for input."""
        return max(0.0, 1.0 - self.busy - self.blocked)


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The stage that limits a job.

    Attributes:
        stage: its operators.
        busy: part of the time in which its busiest task worked.
        waiting: names of the stages that wait for it.
        waited: part of the time in which the stage that waits most has waited.
    """

    stage: str
    busy: float
    waiting: tuple[str, ...]
    waited: float

    def __str__(self) -> str:
        """Return a sentence."""
        waiting = " and ".join(self.waiting)
        return (
            f"{waiting} waits {self.waited:.0%} of the time for {self.stage}, whose busiest task works "
            f"{self.busy:.0%} of the time"
        )


def shares(before: Mapping[str, int], now: Mapping[str, int]) -> Shares | None:
    """Return what a task did between two reports; None if no time has passed.

    Args:
        before: an earlier report, with ``elapsed_ms``, ``busy_ms`` (waits included) and ``blocked_ms``.
        now: a later one.
    """
    elapsed = now["elapsed_ms"] - before["elapsed_ms"]
    if elapsed <= 0:
        return None
    blocked = min(1.0, max(0, now["blocked_ms"] - before["blocked_ms"]) / elapsed)
    working = min(1.0, max(0, now["busy_ms"] - before["busy_ms"]) / elapsed)
    return Shares(max(0.0, working - blocked), blocked)


def find_bottleneck(graph: JobGraph, tasks: Mapping[TaskId, Shares]) -> Bottleneck | None:
    """Return the stage that others wait for and that waits for no other; None if nobody waits.

    A stage that is blocked passes on the waits of a later one, so the last one in a chain of waits is named.

    Args:
        graph: the job.
        tasks: what each task did.
    """
    found: list[Bottleneck] = []
    for stage in graph.stages:
        own = [s for (number, _), s in tasks.items() if number == stage.number]
        if not own:
            continue
        senders = {sender.number: sender for sender, _ in graph.inputs_of(stage.number)}
        waits = {
            sender.name: waited
            for sender in senders.values()
            if (waited := _most_blocked(sender.number, tasks)) >= _WAITED
        }
        busiest = max(own, key=lambda one: one.busy)
        if waits and busiest.busy >= _WORKED and busiest.busy >= busiest.blocked:
            names: Sequence[str] = sorted(waits)
            found.append(Bottleneck(stage.name, busiest.busy, tuple(names), max(waits.values())))
    return max(found, key=lambda one: one.busy, default=None)


def _most_blocked(stage: int, tasks: Mapping[TaskId, Shares]) -> float:
    return max((s.blocked for (number, _), s in tasks.items() if number == stage), default=0.0)
