"""Says what would make an exchange faster, where that is sure. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.spark.explained.copies import enters_python
from headgate.spark.explained.model import Advice
from headgate.spark.plan.rules import choose, why_spark_reads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.spark.explained.planned import ExchangeFacts, InputFacts
    from headgate.spark.explained.tables import Table

_READ: Final = 'read="auto", or exchange(source, spark=spark, ...) with a source of the same files'
_WHY_READ: Final = (
    "the DataFrame is only a scan of Parquet files, which the workers can read themselves: then no row "
    "is converted from the JVM"
)
_FEW: Final = "no {2} runs in {0} of {1} slots"


def advice_of(facts: ExchangeFacts, tables: Sequence[Table | None]) -> Iterator[Advice]:
    """Yield what would make the exchange faster.

    Args:
        facts: of the exchange.
        tables: for each input what Spark knows of it; None for a source, and where nobody has it.
    """
    each = zip(facts.inputs, tables, strict=True)
    if any(may_workers_read(facts, one) and table and table.is_scan for one, table in each):
        yield Advice("read-in-workers", _READ, _WHY_READ)
    yield from _other_mode(facts)
    if facts.there.on_connect:
        return  # slots are not known
    if 0 < facts.partitions < facts.slots:
        do = f"num_partitions={facts.slots}"
        why = _FEW.format(facts.slots - facts.partitions, facts.slots, "consumer")
        yield Advice("more-partitions", do, why)
    for one in facts.inputs:
        if one.producers is None or one.splits is None:
            continue
        fit = min(one.splits, facts.slots)
        if one.producers < fit:
            why = _FEW.format(facts.slots - one.producers, facts.slots, "producer")
            yield Advice("more-producers", f"parallelism={fit}, or leave it out", why)


def may_workers_read(facts: ExchangeFacts, one: InputFacts) -> bool:
    """Return True if the workers would read a DataFrame that is a scan of files, with ``read="auto"``."""
    if one.source or facts.options["read"] == "auto":
        return False
    is_python = facts.choice.mode != "repartition" or facts.has_reduce or enters_python(one)
    return is_python and not why_spark_reads(
        facts.asked,
        facts.there,
        has_reduce=facts.has_reduce,
        has_computed_keys=one.has_computed_keys,
    )


def _other_mode(facts: ExchangeFacts) -> Iterator[Advice]:
    """Yield what ``mode="auto"`` would do better than the mode of the caller."""
    if facts.asked.mode == "auto" or facts.asked.is_listed:
        return
    other = choose(replace(facts.asked, mode="auto"), facts.there)
    if other.mode != facts.choice.mode and not other.impossible:
        way = "Spark's own repartition" if other.mode == "repartition" else "kept"
        yield Advice("mode-auto", 'mode="auto"', f"{way}, as {other.why}")
