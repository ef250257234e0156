"""The memory and disk that an exchange takes, by estimate. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate._options import describe
from headgate._units import size_text
from headgate.observe.words import size
from headgate.spark.executor_memory import OVERHEAD, PYTHON, beside_heap, python_memory
from headgate.spark.explained.model import Disk, Memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.spark.explained.planned import ExchangeFacts
    from headgate.spark.explained.tables import Table


def memory_of(facts: ExchangeFacts, master: str, conf: Mapping[str, str]) -> Memory:
    """Return the memory of the Python workers, beside that of the user's functions.

    Args:
        facts: of the exchange.
        master: of the application; empty if it is not known.
        conf: of the application; empty if it is not known.
    """
    if facts.choice.mode == "repartition":
        why = "none of Headgate's own: Spark moves the rows"
        return Memory(0, 0, 0, None, 0, None, "", None, why)
    pool: int = facts.options["memory"]
    sort = pool if any(one.sort_within for one in facts.inputs) else 0
    workers = _workers(facts, master)
    total = None if workers is None else workers * (pool + sort)
    limit, limited_by = _limit(master, conf)
    fits = None if limit is None or total is None else total <= limit
    said = f"at most {_pool_words(facts)}"
    if sort:
        said += f", and {describe('memory', sort)} of rows that wait to be sorted"
    said += ", beside what the functions take"
    if total is None:
        said += "; the workers of an executor are not known"
    else:
        where = (
            "on this host" if master.startswith("local[") or master == "local" else "an executor"
        )
        said += f"; with {workers} workers {size_text(total)} {where}"
    if limit is not None:
        said += f", of {size_text(limit)} by {limited_by}"
    return Memory(facts.segment_size, pool, sort, workers, total, limit, limited_by, fits, said)


def disk_of(facts: ExchangeFacts, tables: Sequence[Table | None]) -> Disk:
    """Return the bytes that producers write."""
    if facts.choice.mode == "repartition":
        return Disk(0, "Spark writes the rows to its own shuffle files")
    sorts = any(one.sort_within for one in facts.inputs)
    most = describe("memory", facts.options["memory"])
    sorting = (
        f"; a consumer with more than {most} of rows to sort writes them to files" if sorts else ""
    )
    if facts.there.through == "Spark's shuffle":
        return Disk(0, "the pages travel through Spark's shuffle files" + sorting)
    until = "in spark.local.dir, as long as Spark's shuffle files" + sorting
    if any(one.has_map for one in facts.inputs):
        return Disk(None, f"unknown, as nobody knows yet what map returns; {until}")
    sizes = [None if table is None else table.bytes for table in tables]
    known = [one for one in sizes if one is not None]
    if len(known) < len(sizes):
        return Disk(None, f"unknown, as the size of the input is; {until}")
    return Disk(sum(known), f"about {size(sum(known))}, Spark's estimate of the input; {until}")


def _pool_words(facts: ExchangeFacts) -> str:
    pool: int = facts.options["memory"]
    segments = pool // facts.segment_size
    each = describe("segment_size", facts.segment_size)
    origin = facts.options.sources["memory"]
    return (
        f"{describe('memory', pool)} for each worker ({origin}), as {segments} segments of {each}"
    )


def _workers(facts: ExchangeFacts, master: str) -> int | None:
    """Return how many Python workers an executor runs at a time."""
    if facts.each <= 0:
        # With local[n] the driver's process is the only executor.
        return facts.slots if master.startswith("local[") or master == "local" else None
    return facts.each


def _limit(master: str, conf: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the memory of an executor for Python, and its conf."""
    python = python_memory(conf)
    if python is not None:
        return python, PYTHON
    container = beside_heap(master, conf)
    return container, "" if container is None else OVERHEAD
