"""The plan of an iteration: a stage for each round, whose shuffle carries locations of state and messages.

Each round reads three inputs side by side: the rows of the round before, those of the links, and in the
first two rounds those of the first state. They are placed by the same hash, so Spark reads a union of
their shuffles partition by partition, without another shuffle, and the shuffle of the links in each
round again.

Decision: ADR 0028.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headgate.selectors import GlobalSelector
from headgate.spark.plan.kept import produced
from headgate.spark.plan.kept_tasks import kept_tasks
from headgate.spark.portable import portable
from headgate.spark.tasks.iterate_round import CHANGED, LINKS, MESSAGES, STATE, IterateRoundTask
from headgate.spark.tasks.kept_producer import ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headgate.batches import BatchFunction
    from headgate.spark.plan.kept_tasks import KeptTasks
    from headgate.spark.plan.request import Request
    from headgate.spark.plan.rules import Plan
    from headgate.spark.tasks.kept_reader import KeptInput

_LOG: Final = logging.getLogger("headgate.spark")
_BODY: Final = "headgate.spark.tasks.iterate_round"
_PLANNED: Final = "iteration %s by %s -> %d partitions, %d rounds: kept, %s"
#: The column that says which rows changed.
FLAG: Final = "headgate changed"
_NAMES: Final = {STATE: "state", LINKS: "links", CHANGED: "changed"}
_CONF: Final = "spark.sql.unionOutputPartitioning"


@dataclass(frozen=True, slots=True, eq=False)
class Iteration:
    """A checked call of iterate().

    Attributes:
        state: the first state.
        messages: of the session and with the options of ``state``; without an input.
        send: makes messages.
        update: makes the new state.
        rounds: number of rounds.
        key: the key column if ``update`` returns only the rows that changed; None if all.
        links: what is placed once; None if there is nothing.
        changed: the rows that the first ``send`` gets, if a part of the rounds has run already; else None.
        has_flag: True if the result says in the column :data:`FLAG` which rows the last round changed.
        iteration: name of the iteration if this is a part of its rounds.
    """

    state: Request
    messages: Request
    send: BatchFunction
    update: BatchFunction
    rounds: int
    key: str | None
    links: Request | None = None
    changed: Request | None = None
    has_flag: bool = False
    iteration: str = ""

    @property
    def kept_state(self) -> Request:
        """The state as a round keeps it: each task its own."""
        schema = self.state.wire_schema
        return replace(
            self.state,
            by=GlobalSelector(),
            map=None,
            input_schema=schema,
            planned=None,
            chain=None,
        )

    @property
    def inputs(self) -> dict[int, Request]:
        """The requests that have rows, by the numbers of their inputs."""
        every = {STATE: self.state, LINKS: self.links, CHANGED: self.changed}
        return {number: request for number, request in every.items() if request is not None}


def why_not_side_by_side(session: SparkSession, partitions: int) -> str:
    """Return why Spark cannot read several shuffles side by side; empty if it can."""
    major, minor = session.version.split(".")[:2]
    if partitions == 1:
        return ""
    if (int(major), int(minor)) < (4, 1):
        return f"Spark {session.version} cannot; it takes Spark 4.1"
    return "" if session.conf.get(_CONF, "true") == "true" else f"{_CONF} is false"


def plan_rounds(call: Iteration, plan: Plan) -> DataFrame:
    """Return the DataFrame of an iteration.

    Args:
        call: the call, for whose session :func:`why_not_side_by_side` returns nothing.
        plan: of the exchanges of its rounds.
    """
    # Spark reads shuffles side by side if it knows their hash, not if a row has the partition's number.
    # A line of progress would know the stages of the inputs alone.
    tasks = kept_tasks(
        plan, call.state.session, by_hash=True, has_progress=False, iteration=call.iteration
    )
    by, partitions = plan.call.inputs[0].placement.label, plan.partitions
    _LOG.info(_PLANNED, plan.name[:4], by, partitions, call.rounds, tasks.why)
    step = (
        f"headgate {plan.name[:4]} iterated by {by} -> {partitions} through {plan.session.through}"
    )
    partitioned = {
        number: tasks.partitioned(produced(tasks, number, request, f"{step}: {_NAMES[number]}"))
        for number, request in call.inputs.items()
    }
    first, links = partitioned[STATE], [partitioned[LINKS]] if LINKS in partitioned else []
    changed = [partitioned[CHANGED]] if CHANGED in partitioned else []
    of_links = None if call.links is None else tasks.input(LINKS, call.links)
    state = tasks.input(STATE, call.state)
    messages: KeptInput | None = None
    before: list[DataFrame] = []
    for number in range(1, call.rounds + 1):
        task = _round(call, tasks, number, state, of_links, messages)
        # The first round keeps no state of its own: the second one reads the first state too.
        read = [
            *before,
            *([first] if number <= 2 else []),
            *(changed if number == 1 else []),
            *links,
        ]
        rows = _side_by_side(read, partitions).mapInArrow(
            portable(task, _BODY, f"{step}: round {number}"), ROWS
        )
        before = [tasks.partitioned(rows)]
        if task.state_output is not None:
            state = tasks.input(_state_number(number), call.state)
        messages = tasks.input(_messages_number(number), call.messages)
    end = _round(call, tasks, call.rounds + 1, state, None, messages)
    read = [*before, *([first] if call.rounds == 1 else [])]
    function = portable(end, _BODY, f"{step}: end")
    result = call.state.result
    if call.has_flag:
        from pyspark.sql.types import BooleanType, StructField, StructType  # noqa: PLC0415

        result = StructType([*result.fields, StructField(FLAG, BooleanType(), nullable=False)])
    end_state = _side_by_side(read, partitions).mapInArrow(function, result)
    tasks.live_with(end_state)
    return end_state


def _round(
    call: Iteration,
    tasks: KeptTasks,
    number: int,
    state: KeptInput,
    links: KeptInput | None,
    messages: KeptInput | None,
) -> IterateRoundTask:
    """Return the task of a round; of the end if there is no such round."""
    is_end = number > call.rounds
    new_state = new_messages = None
    if not is_end:
        new_messages = tasks.producer(_messages_number(number), call.messages, input=MESSAGES)
        if messages is not None:
            new_state = tasks.producer(_state_number(number), call.kept_state, input=STATE)
    of_changed, result = None, call.state.result_schema
    if call.changed is not None and messages is None:
        of_changed = tasks.input(CHANGED, call.changed)
    if is_end and call.has_flag:
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        result = result.append(pa.field(FLAG, pa.bool_(), nullable=False))
    return IterateRoundTask(
        state=state,
        links=links,
        messages=messages,
        update=call.update,
        send=call.send,
        key=call.key,
        changed=of_changed,
        has_flag=is_end and call.has_flag,
        state_output=new_state,
        message_output=new_messages,
        result=result,
        partitions=tasks.plan.partitions,
        reading=tasks.reading(3),
        reports=tasks.reports,
    )


def _state_number(number: int) -> int:
    """Return the number under which a round keeps its state; the first round keeps none.

    The numbers of the inputs are below that of the first state that is kept, 4.
    """
    return 2 * number


def _messages_number(number: int) -> int:
    """Return the number under which a round keeps its messages."""
    return 2 * number + 1


def _side_by_side(partitioned: Sequence[DataFrame], partitions: int) -> DataFrame:
    """Return a DataFrame whose partitions have the rows that the same partitions of the others have."""
    rows = partitioned[0]
    for other in partitioned[1:]:
        rows = rows.union(other)
    return rows.coalesce(1) if partitions == 1 and len(partitioned) > 1 else rows
