"""Decides how a checked call is planned, once: exchange() carries the plan out, and explain() shows it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate._missing import native_module_not_found
from headgate.errors import NotBuiltError
from headgate.spark.plan.chain import chain_of
from headgate.spark.plan.facts import (
    CallFacts,
    InputFacts,
    Placement,
    placement,
    session_facts,
)
from headgate.spark.plan.keys import key_text
from headgate.spark.plan.read_auto.decide import read_by_workers, why_spark_reads
from headgate.spark.plan.read_auto.scan import Unsure
from headgate.spark.plan.rules import choose, why_not_in_files
from headgate.spark.plan.sizes import auto_partitions, check_broadcast_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.spark.plan.facts import SessionFacts
    from headgate.spark.plan.request import Request
    from headgate.spark.plan.rules import Plan

_LOG: Final = logging.getLogger("headgate.spark")
_FOLLOWS: Final = "exchange by %s: the tasks that return the rows of exchange %s also send them"
_BY_SPARK: Final = "Spark's own repartition takes the rows before a function does"
_BROADCAST: Final = "an input is broadcast, and Spark puts its rows beside those of the other one"
_ALWAYS_KEPT: Final = "a list of inputs, whose rows are always kept"
_ONE_BY_ONE: Final = "Spark spreads its rows one by one, as by is left out"


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
        NativeModuleNotFound: The wheel has no native module, and Spark's own shuffle cannot move the rows.
        SourceError: A source could not list its splits.
    """
    first = requests[0]
    check_broadcast_bytes(first.options, (request.measured for request in requests))
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
    followed = [
        _followed(request, each, call, on_connect=session.on_connect)
        for request, each in zip(requests, facts, strict=True)
    ]
    requests = tuple(request for request, _ in followed)
    inputs = tuple(
        replace(each, why_apart=why)
        for each, (_, why) in zip(_facts(requests), followed, strict=True)
    )
    call = replace(call, inputs=inputs)
    if call.options["read"] == "auto":
        read = [
            (request, "")
            if request.chain is not None
            else read_by_workers(request, each, call, on_connect=session.on_connect)
            for request, each in zip(requests, call.inputs, strict=True)
        ]
        requests = tuple(request for request, _ in read)
        inputs = tuple(
            replace(each, spark_reads=why, why_apart=before.why_apart)
            for each, (_, why), before in zip(_facts(requests), read, call.inputs, strict=True)
        )
        call = replace(call, inputs=inputs)
    plan = choose(call, session)
    if plan.mode == "repartition" and call.inputs[0].follows and not call.inputs[0].has_function:
        # No function gets the rows before Spark's shuffle does.
        requests = tuple(replace(request, chain=None) for request in requests)
        call = replace(call, inputs=(replace(call.inputs[0], follows=None, why_apart=plan.why),))
    if not session.has_native and not _is_without_native(plan):
        is_by_keys = plan.mode == "repartition"
        raise native_module_not_found("this exchange", f"by={call.by}" if is_by_keys else plan.why)
    if plan.impossible:
        raise _not_built(plan)
    listed = [
        _with_splits(request, facts, session)
        for request, facts in zip(requests, call.inputs, strict=True)
    ]
    requests, inputs = zip(*listed, strict=True)
    return replace(plan, call=replace(call, inputs=inputs)), requests


def _followed(
    request: Request, facts: InputFacts, call: CallFacts, *, on_connect: bool
) -> tuple[Request, str]:
    """Have the tasks that return the rows of the exchange before send them too, if they can.

    Returns:
        The request, with a chain if they do; and why not, empty if they do.
    """
    if request.df is None:
        return request, ""
    try:
        if call.options["chaining"] == "off":
            raise Unsure(f"chaining is off ({call.options.sources['chaining']})")
        why = why_spark_reads(call, facts, on_connect=on_connect)
        if call.mode == "spark" and not facts.has_function:
            why = why or _BY_SPARK
        if call.mode == "auto" and call.is_shortest and facts.placement.kind == "turn":
            why = why or _ONE_BY_ONE
        if facts.placement.kind in {"whole", "stays"}:
            why = why or _BROADCAST
        if why:
            raise Unsure(why)
        chain = chain_of(request.df)
    except Unsure as reason:
        return request, reason.sentence
    _LOG.info(_FOLLOWS, facts.placement.label, chain.returning.exchange[:4])
    return replace(request, chain=chain), ""


def _is_without_native(plan: Plan) -> bool:
    """Return True if Spark's own shuffle moves the rows, and nothing native says where to."""
    kinds = {facts.placement.kind for facts in plan.call.inputs}
    return plan.mode == "repartition" and "key groups" not in kinds


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
        follows=None if request.chain is None else request.chain.facts,
        measured=request.measured,
    )


def _not_built(plan: Plan) -> NotBuiltError:
    if plan.impossible == why_not_in_files(plan.session):
        text = "rows cannot be kept with this shuffle"
        reason = _ALWAYS_KEPT if plan.call.is_listed else plan.why
        return NotBuiltError(text, asked=reason, have=plan.impossible, remedy=plan.remedy)
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
