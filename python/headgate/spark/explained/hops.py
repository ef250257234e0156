"""The ways of rows between the exchanges of a plan, and where they cross between the JVM and Python. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.spark.explained.copies import enters_python
from headgate.spark.explained.fields import Hop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.spark.explained.plan_search import PlannedExchange
    from headgate.spark.plan.facts import InputFacts
    from headgate.spark.plan.rules import Plan

#: Ends of a chain that are no exchange.
TABLE: Final = "DataFrame"
RESULT: Final = "result"
#: True if the rows are in Python before, and after -> where they cross.
_CROSSINGS: Final = {
    (False, False): "",
    (False, True): "into Python",
    (True, False): "into the JVM",
    (True, True): "into the JVM and back",
}
_STAYS: Final = "no function of Python gets the rows"
_ACTION: Final = "Spark's next operator, or the action, takes the rows"


def hops_of(exchanges: Sequence[PlannedExchange], returned: Sequence[str]) -> tuple[Hop, ...]:
    """Return the ways of the rows, in their order.

    Args:
        exchanges: those of the plan, in the order in which rows pass them.
        returned: names of those whose rows the plan returns, or gives to operators of Spark.
    """
    plans = {exchange.plan.name: exchange.plan for exchange in exchanges}
    hops = [hop for exchange in exchanges for hop in _to(exchange, plans)]
    ends = [name for name in returned if name in plans]
    after = (_crossing(name, RESULT, plans[name], to_python=False) for name in ends)
    return (*hops, *(replace(hop, why=hop.why or _ACTION) for hop in after))


def _to(exchange: PlannedExchange, plans: dict[str, Plan]) -> Iterator[Hop]:
    """Yield the ways to an exchange, for each of its inputs."""
    plan = exchange.plan
    for facts, before in zip(plan.call.inputs, exchange.fed_by, strict=True):
        if facts.follows is not None:
            steps = f", with {' and '.join(facts.follows.steps)}" if facts.follows.steps else ""
            yield Hop(facts.follows.exchange, plan.name, "", f"in one task{steps}")
        elif facts.source:
            yield Hop(facts.source, plan.name, "", "read by the workers")
        elif not before:
            crosses = _CROSSINGS[False, _takes_python(plan, facts)]
            yield Hop(TABLE, plan.name, crosses, facts.spark_reads if crosses else _STAYS)
        for name in before:
            to_python = _takes_python(plan, facts)
            hop = _crossing(name, plan.name, plans.get(name), to_python=to_python)
            yield replace(hop, why=facts.why_apart)


def _crossing(origin: str, to: str, before: Plan | None, *, to_python: bool) -> Hop:
    """Return the way of rows that an exchange returns to Spark."""
    was_python = before is None or before.mode == "kept" or before.call.has_reduce
    crosses = _CROSSINGS[was_python, to_python]
    return Hop(origin, to, crosses, "" if crosses else _STAYS)


def _takes_python(plan: Plan, facts: InputFacts) -> bool:
    return plan.mode == "kept" or plan.call.has_reduce or enters_python(facts)
