"""Which columns an exchange copies or converts on their way, and where it does not. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate._options import describe
from headgate.schema_cast import same_on_the_wire, same_type
from headgate.spark.explained.fields import Copied
from headgate.spark.plan.rules import joined_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headgate.spark.plan.facts import InputFacts
    from headgate.spark.plan.rules import Plan

_TO_ARROW: Final = "Spark converts its rows to Arrow for {}"
_TO_ROWS: Final = "Spark converts them from Arrow to its rows where {}"
_PAGES: Final = "each row is copied once, into the page of its partition"
_NEVER: Final = "the rows stay in Spark's own format: no Python function gets them"
#: How consumers get the pages of a kept exchange -> a sentence about it.
_READ: Final = {
    "files": "consumers map the pages of producers and read their columns in place",
    "hosts": (
        "consumers map the pages of producers on their own host, receive others into segments, and read "
        "their columns in place"
    ),
    "Spark's shuffle": "consumers read columns in place, in the binary values of Spark's shuffle",
    "the plan": "tasks read the columns of inputs that are sent whole in place, in binary values that come with the plan",
}


def copies_of(plan: Plan, *, is_returned: bool = True) -> tuple[Copied, ...]:
    """Return the columns that are copied, in the order of the steps.

    Args:
        plan: of the exchange.
        is_returned: False if only tasks of further exchanges take its rows, in the same processes.
    """
    return tuple(_copies(plan, is_returned=is_returned))


def in_place_of(plan: Plan) -> tuple[str, ...]:
    """Return sentences about the steps at which nothing is copied."""
    if plan.mode == "repartition":
        is_python = plan.call.has_reduce or any(map(enters_python, plan.call.inputs))
        return () if is_python else (_NEVER,)
    read = _READ["the plan" if plan.mode == "broadcast" else plan.session.through]
    size = describe("batch_bytes", joined_bytes(plan.call.options))
    return (f"{read}; pages of at most half of {size} are copied together into larger batches",)


def enters_python(facts: InputFacts) -> bool:
    """Return True if Python handles the rows of an input before Spark's own repartition."""
    is_python = facts.has_function or bool(facts.source)
    return is_python or not facts.placement.is_by_spark


def _copies(plan: Plan, *, is_returned: bool) -> Iterator[Copied]:
    is_repartition = plan.mode == "repartition"
    for facts in plan.call.inputs:
        sent = tuple(facts.sent.names)
        if (
            not facts.source
            and facts.follows is None
            and (enters_python(facts) or not is_repartition)
        ):
            what = "map" if facts.has_map else "the producers"
            yield Copied("input", tuple(facts.map_input.names), _TO_ARROW.format(what))
        if facts.read is not None and not facts.has_map:
            yield from _of_source(facts.read, facts.sent, by_spark=is_repartition)
        if is_repartition and enters_python(facts):
            yield Copied("shuffle", sent, _TO_ROWS.format("its shuffle needs them"))
        if not is_repartition and facts.placement.kind != "stays":
            yield Copied("pages", sent, _PAGES)
        if not is_repartition and facts.sort_within:
            why = f"a worker sorts the rows of a partition by {', '.join(facts.sort_within)}"
            yield Copied("sort", sent, why)
    if is_repartition and plan.call.has_reduce:
        names = tuple(plan.call.inputs[0].sent.names)
        yield Copied("reduce", names, _TO_ARROW.format("reduce"))
    if is_returned and (not is_repartition or plan.call.has_reduce):
        why = _TO_ROWS.format("its next operator needs them")
        yield Copied("result", tuple(plan.call.result.names), why)


def _of_source(read: pa.Schema, sent: pa.Schema, *, by_spark: bool) -> Iterator[Copied]:
    """Yield columns that a source gives in another type than the declared one, a step for each change."""
    cast: dict[str, list[str]] = {}
    for field, want in zip(read, sent, strict=True):
        if same_type(field.type, want.type):
            continue
        if same_on_the_wire(field.type, want.type) and not by_spark:
            why = f"{field.type} becomes {want.type} where the row is copied into its page"
        else:
            why = f"{field.type} is cast to {want.type}, which Spark has"
        cast.setdefault(why, []).append(field.name)
    for why, names in cast.items():
        yield Copied("source", tuple(names), why)
