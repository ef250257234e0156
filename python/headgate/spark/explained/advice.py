"""Says what would make an exchange faster, where that is sure. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.spark.explained.copies import enters_python
from headgate.spark.explained.fields import Advice
from headgate.spark.plan.read_auto.decide import why_spark_reads
from headgate.spark.plan.rules import choose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.spark.explained.tables import Table
    from headgate.spark.plan.facts import InputFacts
    from headgate.spark.plan.rules import Plan

_READ: Final = 'read="auto"'
_WHY_READ: Final = (
    "the DataFrame is only a scan of Parquet files, which the workers can read themselves: then no row "
    "is converted from the JVM"
)
_FEW: Final = "no {2} runs in {0} of {1} slots"


def advice_of(plan: Plan, tables: Sequence[Table | None]) -> Iterator[Advice]:
    """Yield what would make the exchange faster.

    Args:
        plan: of the exchange.
        tables: for each input what Spark knows of it; None for a source, and where nobody has it.
    """
    each = zip(plan.call.inputs, tables, strict=True)
    if any(may_workers_read(plan, facts) and table and table.is_scan for facts, table in each):
        yield Advice("read-in-workers", _READ, _WHY_READ)
    yield from _other_mode(plan)
    if plan.session.on_connect:
        return  # slots are not known
    slots = plan.session.slots.number
    if 0 < plan.partitions < slots:
        do = f"num_partitions={slots}"
        why = _FEW.format(slots - plan.partitions, slots, "consumer")
        yield Advice("more-partitions", do, why)
    for facts in plan.call.inputs:
        if facts.producers is None or facts.splits is None:
            continue
        fit = min(facts.splits, slots)
        if facts.producers < fit:
            why = _FEW.format(slots - facts.producers, slots, "producer")
            yield Advice("more-producers", f"parallelism={fit}, or leave it out", why)


def may_workers_read(plan: Plan, facts: InputFacts) -> bool:
    """Return True if the workers would read a DataFrame that is a scan of files, with ``read="auto"``."""
    if facts.source or facts.follows is not None or plan.call.options["read"] == "auto":
        return False
    is_python = plan.mode != "repartition" or plan.call.has_reduce or enters_python(facts)
    return is_python and not why_spark_reads(plan.call, facts, on_connect=plan.session.on_connect)


def _other_mode(plan: Plan) -> Iterator[Advice]:
    """Yield what ``mode="auto"`` would do better than the mode of the caller."""
    if plan.call.mode == "auto" or plan.call.is_listed:
        return
    other = choose(replace(plan.call, mode="auto"), plan.session)
    if other.mode != plan.mode and not other.impossible:
        way = "Spark's own repartition" if other.mode == "repartition" else "kept"
        yield Advice("mode-auto", 'mode="auto"', f"{way}, as {other.why}")
