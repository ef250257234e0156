"""The slowest stage of exchanges that feed each other: the cause may be in another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headgate.spark.progress.verdict import Verdict, verdict

if TYPE_CHECKING:
    from headgate.spark.progress.task_stats import TaskStats


@dataclass(frozen=True, slots=True)
class Link:
    """A run, and those with a consumer stage that has producers of it, or the other way round.

    Attributes:
        exchange: id of its exchange, in hex.
        tasks: its tasks.
        seconds: since its start.
        reads_splits: True if its producers read a source themselves.
        waits_for_slots: True while consumers hold all slots and no producer of it can start.
        feeds: runs whose producers are in the stage of its consumers, without what feeds these.
        fed_by: runs whose consumers are in the stage of its producers, without what these feed.
    """

    exchange: str
    tasks: tuple[TaskStats, ...]
    seconds: float
    reads_splits: bool = False
    waits_for_slots: bool = False
    feeds: tuple[Link, ...] = ()
    fed_by: tuple[Link, ...] = ()

    def verdict(self, *, is_awaited: bool = False) -> Verdict | None:
        """Return what its own tasks say, as :func:`verdict` does."""
        return verdict(
            self.tasks,
            self.seconds,
            reads_splits=self.reads_splits,
            waits_for_slots=self.waits_for_slots,
            is_awaited=is_awaited,
        )


def chain_verdict(run: Link) -> Verdict | None:
    """Return the slowest stage of a run and of those that wait for it or that it waits for.

    A consumer that waits for the code after it waits for the next exchange, if there is one. A producer
    that waits for the JVM waits for the exchange before. If that one is not clear, neither is this one.
    """
    found = _cause(run, run.verdict())
    if found is None or found.exchange in {"", run.exchange}:
        return found and replace(found, exchange="")
    return replace(found, text=f"exchange {found.exchange[:4]}: {found.text}")


def _cause(run: Link, own: Verdict | None) -> Verdict | None:
    if own is None:
        return None
    own = replace(own, exchange=run.exchange)
    if own.kind == "sink" and run.feeds:
        return _only([_downstream(later, own) for later in run.feeds])
    if own.kind == "jvm-feed" and run.fed_by:
        return _only([_upstream(earlier) for earlier in run.fed_by])
    return own


def _downstream(run: Link, own: Verdict) -> Verdict | None:
    """Return the cause at or behind a run that the one before waits for, whose verdict is ``own``."""
    found = run.verdict()
    # If both wait for the JVM between them, that is the cause.
    return own if found is not None and found.kind == "jvm-feed" else _cause(run, found)


def _upstream(run: Link) -> Verdict | None:
    """Return the cause at or before a run whose rows the one behind waits for."""
    found = run.verdict(is_awaited=True)
    if found is not None and found.kind == "sink":
        return replace(found, exchange=run.exchange)
    return _cause(run, found)


def _only(causes: list[Verdict | None]) -> Verdict | None:
    """Return the one cause; None if there is none or more than one."""
    found = {cause for cause in causes if cause is not None}
    return found.pop() if len(found) == 1 else None
