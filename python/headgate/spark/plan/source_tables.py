"""The tasks that take the input of a request: rows of a DataFrame or of a source, or those of the exchange before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate._option_table import STREAM
from headgate.errors import NotBuiltError
from headgate.source.planning import plan_splits
from headgate.spark.plan.chain import after
from headgate.spark.plan.facts import placement
from headgate.spark.portable import portable
from headgate.spark.tasks.planned_source import PlannedSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headgate.spark.plan.request import Request

#: Tasks per slot if ``parallelism`` is not given. Spark starts the next one in the slot that is free
#: first, so slots get about as much work each.
_TASKS_PER_SLOT: Final = 4
#: Bytes of files for which a task more than one per slot is worth its start.
_TASK_BYTES: Final = 8 << 20
#: Placements that look at each row by itself, without a function of Python.
_BY_ROW: Final = {"hash", "key groups"}
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
    tasks = most or _tasks(max(1, slots), source.bytes)
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


def _tasks(slots: int, size: int | None) -> int:
    """Return the number of tasks that read a source of so many bytes."""
    tasks = _TASKS_PER_SLOT * slots
    return tasks if size is None else min(tasks, max(slots, -(-size // _TASK_BYTES)))


def input_table(request: Request) -> DataFrame:
    """Return what the first tasks of a request read: the rows of its DataFrame, or each the number of its share of a source."""
    if request.planned is None:
        assert request.df is not None  # noqa: S101 - the splits of a source are listed when the plan is made
        return request.df
    tasks = len(request.planned.shares)
    return request.session.range(0, tasks, 1, tasks)


def mapped(
    request: Request, task: Any, body: str, name: str, schema: StructType | str
) -> DataFrame:
    """Return what a task makes of the input of a request.

    Args:
        request: the request.
        task: the task, whose input are rows or, for a source, numbers of shares.
        body: the module whose ``run(task, batches)`` does its work.
        name: of the step in Spark's plan.
        schema: Spark's schema of what the task returns.
    """
    if request.chain is None:
        return input_table(request).mapInArrow(portable(task, body, name), schema)
    has_map = request.map is not None
    is_by_row = not has_map and placement(request.by).kind in _BY_ROW
    # combine gets copies of the batches in any case.
    return after(request.chain, task, body, name, schema, is_by_row=is_by_row, may_keep=has_map)
