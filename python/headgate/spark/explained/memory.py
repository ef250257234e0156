"""The memory and disk that an exchange takes, by estimate. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate._options import describe
from headgate._units import size_text
from headgate.observe.numbers import size
from headgate.spark.executor_memory import OVERHEAD, PYTHON, beside_heap, python_memory
from headgate.spark.explained.fields import Disk, Memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.spark.explained.tables import Table
    from headgate.spark.plan.rules import Plan


def memory_of(plan: Plan) -> Memory:
    """Return the memory of the Python workers, beside that of the user's functions."""
    master = plan.session.master
    if plan.mode == "repartition":
        why = "none of Headgate's own: Spark moves the rows"
        return Memory(0, 0, 0, None, 0, None, "", None, why)
    pool: int = plan.call.options["memory"]
    sort = pool if any(facts.sort_within for facts in plan.call.inputs) else 0
    before = sum(facts.follows.memory for facts in plan.call.inputs if facts.follows is not None)
    workers = _workers(plan)
    total = None if workers is None else workers * (pool + sort + before)
    limit, limited_by = _limit(master, plan.session.conf)
    fits = None if limit is None or total is None else total <= limit
    text = f"at most {_pool_words(plan)}"
    if sort:
        text += f", and {describe('memory', sort)} of rows that wait to be sorted"
    if before:
        text += f", and {size_text(before)} of the exchanges whose rows it sends in the same tasks"
    text += ", beside what the functions take"
    if total is None:
        text += "; the workers of an executor are not known"
    else:
        where = "on this host" if _is_local(master) else "an executor"
        text += f"; with {workers} workers {size_text(total)} {where}"
    if limit is not None:
        text += f", of {size_text(limit)} by {limited_by}"
    segment: Any = plan.task_options["segment_size"]
    return Memory(segment, pool, sort, workers, total, limit, limited_by, fits, text)


def disk_of(plan: Plan, tables: Sequence[Table | None]) -> Disk:
    """Return the bytes that producers write."""
    if plan.mode == "repartition":
        return Disk(0, "Spark writes the rows to its own shuffle files")
    if plan.mode == "broadcast":
        return Disk(
            0,
            "no row goes to another partition through a file; the inputs that are sent whole go through the driver",
        )
    sorts = any(facts.sort_within for facts in plan.call.inputs)
    most = describe("memory", plan.call.options["memory"])
    sorting = (
        f"; a consumer with more than {most} of rows to sort writes them to files" if sorts else ""
    )
    if plan.session.through == "Spark's shuffle":
        return Disk(0, "the pages travel through Spark's shuffle files" + sorting)
    until = "in spark.local.dir, as long as Spark's shuffle files" + sorting
    for name, is_there in (("combine", "has_combine"), ("map", "has_map")):
        if any(getattr(facts, is_there) for facts in plan.call.inputs):
            return Disk(None, f"unknown, as nobody knows yet what {name} returns; {until}")
    sizes = [None if table is None else table.bytes for table in tables]
    estimates = [estimate for estimate in sizes if estimate is not None]
    if len(estimates) < len(sizes):
        return Disk(None, f"unknown, as the size of the input is; {until}")
    total = sum(estimates)
    return Disk(total, f"about {size(total)}, Spark's estimate of the input; {until}")


def _pool_words(plan: Plan) -> str:
    pool: int = plan.call.options["memory"]
    segment: Any = plan.task_options["segment_size"]
    segments, each = pool // segment, describe("segment_size", segment)
    origin = plan.call.options.sources["memory"]
    return (
        f"{describe('memory', pool)} for each worker ({origin}), as {segments} segments of {each}"
    )


def _workers(plan: Plan) -> int | None:
    """Return how many Python workers an executor runs at a time."""
    slots = plan.session.slots
    if slots.each <= 0:
        # With local[n] the driver's process is the only executor.
        return slots.number if _is_local(plan.session.master) else None
    return slots.each


def _is_local(master: str) -> bool:
    return master.startswith("local[") or master == "local"


def _limit(master: str, conf: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the memory of an executor for Python, and its conf."""
    python = python_memory(conf)
    if python is not None:
        return python, PYTHON
    container = beside_heap(master, conf)
    return container, "" if container is None else OVERHEAD
