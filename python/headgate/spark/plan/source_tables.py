"""A source as an ordinary DataFrame with splits that are planned ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate._option_table import STREAM
from headgate.errors import NotBuiltError
from headgate.source.planning import plan_splits
from headgate.spark.tasks.planned_source import PlannedSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.spark.plan.request import Request

#: Tasks per slot if ``parallelism`` is not given. Spark starts the next one in the slot that is free
#: first, so slots get about as much work each.
_TASKS_PER_SLOT: Final = 4
#: Seconds in which the enumerator must list all splits.
_LISTING: Final = 600.0


def planned(request: Request, slots: int) -> PlannedSource:
    """List the splits of a request's source now, and divide them among tasks in turn.

    So all actions read the same splits, as they do with a DataFrame that Spark's reader has listed.

    Args:
        request: the request with the source.
        slots: slots of the application.

    Raises:
        SourceError: The enumerator failed or did not answer.
        NotBuiltError: The enumerator and its readers send each other events.
    """
    source, most = request.source, request.options["parallelism"]
    assert source is not None  # noqa: S101 - callers have checked that there is a source
    tasks = most or _TASKS_PER_SLOT * max(1, slots)
    listing = plan_splits(source.source, None, parallelism=tasks, timeout=_LISTING)
    if listing.takes_events:
        raise NotBuiltError(
            f"the enumerator of {source.name} takes events of its readers, and an exchange lists its splits before they run",
            asked=f"exchange() of {source.name!r}",
            remedy=f"{STREAM} · headgate.source.read(source)",
        )
    if not most:
        tasks = max(1, min(tasks, len(listing.splits)))
    shares = tuple(listing.splits[number::tasks] for number in range(tasks))
    return PlannedSource(source.source, source.name, listing.version, shares, slots)


def input_table(request: Request) -> DataFrame:
    """Return what the first tasks of a request read: the rows of its DataFrame, or each the number of its share of a source."""
    if request.planned is None:
        assert request.df is not None  # noqa: S101 - the splits of a source are listed when the plan is made
        return request.df
    tasks = len(request.planned.shares)
    return request.session.range(0, tasks, 1, tasks)
