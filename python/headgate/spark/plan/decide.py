"""Decides how a checked call is planned, once: exchange() carries the plan out, and explain() shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.errors import NotBuiltError
from headgate.spark.plan.facts import (
    CallFacts,
    InputFacts,
    Placement,
    placement,
    session_facts,
)
from headgate.spark.plan.keys import key_text
from headgate.spark.plan.read_auto.decide import read_by_workers
from headgate.spark.plan.rules import choose
from headgate.spark.plan.sizes import auto_partitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.spark.plan.facts import SessionFacts
    from headgate.spark.plan.request import Request
    from headgate.spark.plan.rules import Plan


def decide(
    requests: Sequence[Request], *, is_listed: bool, session: SessionFacts | None = None
) -> tuple[Plan, tuple[Request, ...]]:
    """Decide how an exchange is planned; list the splits of its sources.

    Args:
        requests: a checked request for each input.
        is_listed: True if the inputs are given as a list, or are those of an iteration.
        session: the facts of the session, if they are known.

    Returns:
        The plan, and the requests with those who read their rows by it.

    Raises:
        NotBuiltError: The exchange is not possible here.
        SourceError: A source could not list its splits.
    """
    first = requests[0]
    facts = _facts(requests)
    placed_by = {each.placement.kind: each.placement.label for each in facts}
    call = CallFacts(
        inputs=facts,
        has_reduce=first.reduce is not None,
        result=first.result_schema,
        options=first.options,
        is_listed=is_listed,
        mode=first.options["mode"],
        auto=auto_partitions(first.session, first.options, placed_by),
    )
    if session is None:
        session = session_facts(first.session, by_order=call.is_by_order)
    if call.options["read"] == "auto":
        read = [
            read_by_workers(request, facts, call, on_connect=session.on_connect)
            for request, facts in zip(requests, call.inputs, strict=True)
        ]
        requests = tuple(request for request, _ in read)
        whys = (why for _, why in read)
        inputs = tuple(
            replace(each, spark_reads=why) for each, why in zip(_facts(requests), whys, strict=True)
        )
        call = replace(call, inputs=inputs)
    plan = choose(call, session)
    if plan.impossible:
        raise _not_built(plan)
    listed = [
        _with_splits(request, facts, session)
        for request, facts in zip(requests, call.inputs, strict=True)
    ]
    requests, inputs = zip(*listed, strict=True)
    return replace(plan, call=replace(call, inputs=inputs)), requests


def _facts(requests: Sequence[Request]) -> tuple[InputFacts, ...]:
    has_broadcast = any(request.is_broadcast for request in requests)
    return tuple(_input_facts(request, stays=has_broadcast) for request in requests)


def _input_facts(request: Request, *, stays: bool) -> InputFacts:
    """Return the facts of an input.

    Args:
        request: of the input.
        stays: True if the rows of an input that is not broadcast stay in their partitions.
    """
    source = request.source
    placed = placement(request.by)
    if stays:
        placed = Placement("whole" if request.is_broadcast else "stays")
    return InputFacts(
        source="" if source is None else source.name,
        placement=placed,
        sort_within=tuple(map(key_text, request.sort_within)),
        has_map=request.map is not None,
        has_combine=request.combine is not None,
        has_computed_keys=request.has_computed_keys,
        map_input=request.input_schema,
        read=None if source is None else source.arrow_schema,
        sent=request.wire_schema,
    )


def _not_built(plan: Plan) -> NotBuiltError:
    if not plan.call.is_listed:
        text = "this exchange cannot be sure of its rows here"
        return NotBuiltError(text, asked=plan.impossible, remedy=plan.remedy)
    by_order = (n for n, facts in enumerate(plan.call.inputs) if facts.placement.is_by_order)
    return NotBuiltError(f"input {next(by_order)} cannot be one of several", asked=plan.impossible)


def _with_splits(
    request: Request, facts: InputFacts, session: SessionFacts
) -> tuple[Request, InputFacts]:
    if request.source is None:
        return request, facts
    from headgate.spark.plan.source_tables import planned  # noqa: PLC0415 - only sources need it

    source = planned(request, session.slots.number)
    shares = source.shares
    facts = replace(facts, producers=len(shares), splits=sum(map(len, shares)))
    return replace(request, planned=source), facts
