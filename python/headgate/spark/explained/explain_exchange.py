"""Explains the plan of an exchange. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate._units import size_text
from headgate.spark.explained.advice import advice_of
from headgate.spark.explained.checks import checks_of
from headgate.spark.explained.copies import copies_of, in_place_of
from headgate.spark.explained.fields import Counted, ExchangeExplained, Fallback, InputExplained
from headgate.spark.explained.memory import disk_of, memory_of
from headgate.spark.plan.rules import choose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.spark.explained.tables import Table
    from headgate.spark.plan.facts import InputFacts, Placement
    from headgate.spark.plan.rules import Plan
    from headgate.spark.plan.sizes import AutoPartitions

#: Kind of a placement -> the sentence about it.
_PLACED: Final = {
    "hash": "by {columns}, with Spark's hash: rows with the same key meet in one partition",
    "key groups": "by the key group of {columns}, as Flink places keys",
    "turn": "in turn, {unit} by {unit}, by {name}",
    "random": "at random, {unit} by {unit}, by {name}",
    "all": "in every partition, by {name}",
    "one": "all in partition 0, by {name}",
    "whole": "nowhere: all rows are sent to each call of reduce",
    "stays": "nowhere: the rows stay in their partitions",
    "function": "by the function {name}, which gives each row a partition",
    "selector": "by {name}",
}
_CONNECT: Final = "the session is one of Spark Connect, and its master is not local[n]"
_OLD_SPARK: Final = "the application has executors, and Spark is older than 4.1 or does not compare the rows of retries"
_RETURNED: Final = (
    "types of the columns that {} returns: a column of another type than the declared one is cast"
)
_SERVER: Final = "slots, memory and Python of the server: this is a client of Spark Connect"
_BY_SPARK: Final = "num_partitions=auto: Spark's adaptive execution joins partitions of its own shuffle, by spark.sql.adaptive.*"
_SIZE: Final = "size of the input: Spark has no estimate of it"


def explain_exchange(
    plan: Plan,
    tables: Sequence[Table | None],
    fed_by: Sequence[Sequence[str]],
    *,
    is_returned: bool = True,
) -> ExchangeExplained:
    """Return how an exchange will run.

    Args:
        plan: of the exchange.
        tables: for each input what Spark knows of it; None for a source, and where nobody has it.
        fed_by: for each input the exchanges from which Spark brings rows to it.
        is_returned: False if only tasks of further exchanges take its rows, in the same processes.
    """
    memory = memory_of(plan)
    each = zip(plan.call.inputs, tables, fed_by, strict=True)
    return ExchangeExplained(
        name=plan.name,
        mode=plan.mode,
        why=plan.why,
        others=plan.rejected,
        through=plan.session.through if plan.mode == "kept" else "",
        partitions=_partitions(plan),
        inputs=tuple(_input(plan, number, *facts) for number, facts in enumerate(each)),
        copies=copies_of(plan, is_returned=is_returned),
        in_place=in_place_of(plan),
        memory=memory,
        disk=disk_of(plan, tables),
        checks=checks_of(plan, memory),
        falls_back=tuple(_falls_back(plan)),
        faster=tuple(advice_of(plan, tables)),
        unknown=tuple(_unknown(plan, tables)),
    )


def placement_sentence(placement: Placement, *, by_spark: bool) -> str:
    """Return a sentence about how rows are placed.

    Args:
        placement: the placement.
        by_spark: True if Spark's own repartition moves the rows.
    """
    if by_spark and placement.kind in {"turn", "random"}:
        return "in turn, row by row, by Spark"
    if placement.kind == "turn" and not placement.name:
        return "in turn, batch by batch"
    unit = "row" if placement.by_rows else "batch"
    columns = ", ".join(placement.columns)
    return _PLACED[placement.kind].format(columns=columns, unit=unit, name=placement.name)


def _partitions(plan: Plan) -> Counted:
    source = plan.call.options.sources["num_partitions"]
    if plan.mode == "broadcast":
        return Counted(None, source, "those of the input whose rows stay")
    if plan.call.auto is not None:
        return _auto_partitions(plan, plan.call.auto, source)
    if source != "default":
        return Counted(plan.partitions, source, f"num_partitions ({source})")
    return Counted(plan.partitions, source, f"one for each slot ({plan.session.slots.origin})")


def _auto_partitions(plan: Plan, auto: AutoPartitions, source: str) -> Counted:
    if plan.mode == "repartition":
        return Counted(None, source, _BY_SPARK)
    each = plan.subpartitions_each
    joined = (
        f"joined by what is read of them until a call of reduce has {size_text(auto.advisory_bytes)} ({auto.origin})"
        if auto.advisory_bytes
        else f"each a call of reduce of its own ({auto.origin})"
    )
    why = f"num_partitions=auto ({source}): one for each slot ({plan.session.slots.origin}), each of {each} subpartitions, "
    return Counted(plan.partitions, source, why + joined)


def _input(
    plan: Plan, number: int, facts: InputFacts, table: Table | None, fed_by: Sequence[str]
) -> InputExplained:
    by_spark, follows = plan.mode == "repartition", facts.follows
    placed = placement_sentence(facts.placement, by_spark=by_spark)
    return InputExplained(
        number=number,
        source=facts.source,
        producers=_producers(plan, facts, table),
        placement=facts.placement,
        placed=placed if facts.measured is None else f"{placed}, {facts.measured.reason}",
        sort_within=facts.sort_within,
        bytes=None if table is None else table.bytes,
        spark_reads=facts.spark_reads,
        follows="" if follows is None else follows.exchange,
        steps=() if follows is None else follows.steps,
        why_apart=facts.why_apart if fed_by else "",
    )


def _producers(plan: Plan, facts: InputFacts, table: Table | None) -> Counted:
    if facts.follows is not None:
        why = f"the consumers of exchange {facts.follows.exchange[:4]}, in the same tasks"
        return Counted(facts.follows.tasks, "plan", why)
    if not facts.source:
        if table is None:
            return Counted(None, "unknown", "those of the DataFrame, which is not seen here")
        return Counted(table.partitions, "plan", table.why)
    source = plan.call.options.sources["parallelism"]
    if source != "default":
        return Counted(plan.call.options["parallelism"], source, f"parallelism ({source})")
    why = "four for each slot, and at most one for each split"
    return Counted(facts.producers, source, f"{why}; there are {facts.splits} splits")


def _falls_back(plan: Plan) -> Iterator[Fallback]:
    """Yield the circumstances in which the same rules choose another way for the same call."""
    elsewhere = {
        _CONNECT: replace(plan.session, on_connect=True, shares_files=False),
        _OLD_SPARK: replace(plan.session, is_one_process=False, compares_rows=False),
    }
    # A client of Spark Connect does not see that an exchange follows another one.
    alone = replace(
        plan.call, inputs=tuple(replace(facts, follows=None) for facts in plan.call.inputs)
    )
    for when, session in elsewhere.items():
        other = choose(alone if session.on_connect else plan.call, session)
        if other.mode != plan.mode and not other.impossible:
            yield Fallback(when, other.mode, other.why)


def _unknown(plan: Plan, tables: Sequence[Table | None]) -> Iterator[str]:
    if plan.session.on_connect:
        yield _SERVER
    is_unseen = any(
        not facts.source and (table is None or table.bytes is None)
        for facts, table in zip(plan.call.inputs, tables, strict=True)
    )
    if is_unseen:
        yield _SIZE
    called = ["map"] if any(facts.has_map for facts in plan.call.inputs) else []
    called += ["combine"] if any(facts.has_combine for facts in plan.call.inputs) else []
    called += ["reduce"] if plan.call.has_reduce else []
    if called:
        yield _RETURNED.format(" and ".join(called))
