"""Makes an explanation of the facts of an exchange. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.spark.explained.advice import advice_of
from headgate.spark.explained.checks import checks_of
from headgate.spark.explained.copies import copies_of, in_place_of
from headgate.spark.explained.memory import disk_of, memory_of
from headgate.spark.explained.model import Counted, ExchangeExplained, Fallback, InputExplained
from headgate.spark.plan.rules import choose

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.spark.explained.planned import ExchangeFacts, InputFacts, Placement
    from headgate.spark.explained.tables import Table

#: Kind of a placement -> the sentence about it.
_PLACED: Final = {
    "hash": "by {columns}, with Spark's hash: rows with the same key meet in one partition",
    "key groups": "by the key group of {columns}, as Flink places keys",
    "turn": "in turn, {unit} by {unit}, by {name}",
    "random": "at random, {unit} by {unit}, by {name}",
    "all": "in every partition, by {name}",
    "one": "all in partition 0, by {name}",
    "function": "by the function {name}, which gives each row a partition",
    "selector": "by {name}",
}
_CONNECT: Final = "the session is one of Spark Connect, and its master is not local[n]"
_OLD_SPARK: Final = "the application has executors, and Spark is older than 4.1 or does not compare the rows of retries"
_RETURNED: Final = (
    "types of the columns that {} returns: a column of another type than the declared one is cast"
)
_SERVER: Final = "slots, memory and Python of the server: this is a client of Spark Connect"
_SIZE: Final = "size of the input: Spark has no estimate of it"


def explained(
    facts: ExchangeFacts,
    tables: Sequence[Table | None],
    master: str,
    conf: Mapping[str, str],
) -> ExchangeExplained:
    """Return how an exchange will run.

    Args:
        facts: of the exchange.
        tables: for each input what Spark knows of it; None for a source, and where nobody has it.
        master: of the application; empty if it is not known.
        conf: of the application; empty if it is not known.
    """
    choice = facts.choice
    memory = memory_of(facts, master, conf)
    disk = disk_of(facts, tables)
    is_kept = choice.mode == "kept"
    each = zip(facts.inputs, tables, strict=True)
    return ExchangeExplained(
        name=facts.name,
        mode=choice.mode,
        why=choice.why,
        others=choice.others,
        through=facts.there.through if is_kept else "",
        partitions=_partitions(facts),
        inputs=tuple(_input(facts, number, *one) for number, one in enumerate(each)),
        copies=copies_of(facts),
        in_place=in_place_of(facts),
        memory=memory,
        disk=disk,
        checks=checks_of(facts, memory, master, conf),
        falls_back=tuple(_falls_back(facts)),
        faster=tuple(advice_of(facts, tables)),
        unknown=tuple(_unknown(facts, tables)),
    )


def placed(one: Placement, *, by_spark: bool) -> str:
    """Return a sentence about how rows are placed.

    Args:
        one: the placement.
        by_spark: True if Spark's own repartition moves the rows.
    """
    if by_spark and one.kind in {"turn", "random"}:
        return "in turn, row by row, by Spark"
    if one.kind == "turn" and not one.name:
        return "in turn, batch by batch"
    unit = "row" if one.by_rows else "batch"
    return _PLACED[one.kind].format(columns=", ".join(one.columns), unit=unit, name=one.name)


def _partitions(facts: ExchangeFacts) -> Counted:
    source = facts.options.sources["num_partitions"]
    if source != "default":
        return Counted(facts.partitions, source, f"num_partitions ({source})")
    return Counted(facts.partitions, source, f"one for each slot ({facts.slots_words})")


def _input(
    facts: ExchangeFacts, number: int, one: InputFacts, table: Table | None
) -> InputExplained:
    by_spark = facts.choice.mode == "repartition"
    return InputExplained(
        number=number,
        source=one.source,
        producers=_producers(facts, one, table),
        placement=one.placement,
        placed=placed(one.placement, by_spark=by_spark),
        sort_within=one.sort_within,
        bytes=None if table is None else table.bytes,
        spark_reads=one.spark_reads,
    )


def _producers(facts: ExchangeFacts, one: InputFacts, table: Table | None) -> Counted:
    if not one.source:
        if table is None:
            return Counted(None, "unknown", "those of the DataFrame, which is not seen here")
        return Counted(table.partitions, "plan", table.why)
    source = facts.options.sources["parallelism"]
    if source != "default":
        return Counted(facts.options["parallelism"], source, f"parallelism ({source})")
    why = "four for each slot, and at most one for each split"
    if one.splits is None:
        return Counted(None, source, f"{why}; the splits are listed in the call, and not kept here")
    return Counted(one.producers, source, f"{why}; there are {one.splits} splits")


def _falls_back(facts: ExchangeFacts) -> Iterator[Fallback]:
    """Yield the circumstances in which the same rules choose another way for the same call."""
    asked, there, chosen = facts.asked, facts.there, facts.choice.mode
    changed = [
        (_CONNECT, asked, replace(there, on_connect=True, shares_files=False)),
        (_OLD_SPARK, asked, replace(there, is_one_process=False, compares_rows=False)),
    ]
    for when, other, elsewhere in changed:
        found = choose(other, elsewhere)
        if found.mode != chosen and not found.impossible:
            yield Fallback(when, found.mode, found.why)


def _unknown(facts: ExchangeFacts, tables: Sequence[Table | None]) -> Iterator[str]:
    if facts.there.on_connect:
        yield _SERVER
    is_unseen = any(
        not one.source and (table is None or table.bytes is None)
        for one, table in zip(facts.inputs, tables, strict=True)
    )
    if is_unseen:
        yield _SIZE
    called = ["map"] if any(one.has_map for one in facts.inputs) else []
    called += ["reduce"] if facts.has_reduce else []
    if called:
        yield _RETURNED.format(" and ".join(called))
