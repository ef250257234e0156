"""The rules by which the way of an exchange is chosen, from plain facts. No Spark here.

``exchange()`` carries out what :func:`choose` returns, and ``explain()`` shows it. So there is one copy of the rules.

Decision: ADR 0044.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from headgate._option_table import TASK_OPTIONS
from headgate.spark.shuffle_files import why_no_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.options import EnvironmentOptions
    from headgate.spark.plan.facts import CallFacts, SessionFacts

#: How rows travel: by Spark's own repartition, in files, or those of small inputs alone, with the plan.
Mode: TypeAlias = Literal["repartition", "kept", "broadcast"]

#: The least that the option takes.
_LEAST_SEGMENT: Final = 4 << 10
_NO_MAP: Final = "no map makes the rows, and Spark can place them"
_LISTED: Final = "an exchange whose inputs are given as a list is always kept"
_BROADCAST: Final = "an input is broadcast, so the rows of the other one stay in their partitions"
_ONLY_WORK: Final = (
    "rows that come from the JVM and return to it would only be converted twice more"
)
_INLINE: Final = (
    "executors may be on several hosts, and a Spark Connect session cannot tell which, so all pages "
    "would travel through Spark's shuffle"
)
#: The reason against each other way in the wheel without the native module.
NO_NATIVE: Final = "the installed wheel of Headgate, py3-none-any, has no native module"
_BY_ORDER: Final = (
    "by may place rows by their order, which may differ if an executor is lost, and Spark "
    "would not notice: that takes Spark 4.1, its spark.sql.shuffle.orderIndependentChecksum, and its "
    "own spark.shuffle.manager"
)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A way that was not chosen."""

    mode: Mode
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How an exchange runs: the way of its rows, and the facts by which it was chosen.

    Attributes:
        call: facts of the call.
        session: facts of the session.
        mode: the way.
        why: the reason.
        rejected: the other ways, each with the reason against it.
        impossible: why the call cannot be carried out; empty if it can.
        remedy: what to do then.
        name: of the exchange, 30 digits in hex, as its statistics have it.
    """

    call: CallFacts
    session: SessionFacts
    mode: Mode
    why: str
    rejected: tuple[Rejected, ...] = ()
    impossible: str = ""
    remedy: str = ""
    name: str = field(default_factory=lambda: os.urandom(15).hex())

    @property
    def partitions(self) -> int:
        """Number of partitions of the result."""
        number: int | str | None = self.call.options["num_partitions"]
        return number if isinstance(number, int) else max(1, self.session.slots.number)

    @property
    def subpartitions_each(self) -> int:
        """Number of subpartitions into which producers divide the rows of each partition."""
        return 1 if self.call.auto is None else self.call.auto.each(self.partitions)

    @property
    def task_options(self) -> EnvironmentOptions:
        """The options of the environments of kept tasks; segments are so small that each subpartition has two."""
        options: EnvironmentOptions = {name: self.call.options[name] for name in TASK_OPTIONS}  # type: ignore[assignment]
        subpartitions = self.partitions * self.subpartitions_each
        each: int = self.call.options["memory"] // (2 * (subpartitions + 4))
        fitting = max(_LEAST_SEGMENT, 1 << each.bit_length() >> 1)
        options["segment_size"] = min(self.call.options["segment_size"], fitting)
        return options


def why_not_in_files(session: SessionFacts) -> str:
    """Return why no rows can be kept in files; empty if they can, or if pages travel through Spark's shuffle."""
    unknown = session.unknown_shuffle
    return "" if unknown is None or session.is_inline else why_no_files(unknown)


def why_not_by_order(session: SessionFacts, *, is_by_order: bool) -> str:
    """Return why Python cannot place rows, which it may do by their order; empty if it can."""
    if is_by_order and not session.is_one_process and not session.compares_rows:
        return _BY_ORDER
    return ""


def joined_bytes(options: Mapping[str, Any]) -> int:
    """Return the size of the batches into which a consumer of a kept exchange puts small pages together."""
    # Each batch costs Spark about 0.1 ms, and a thousand producers make pages of a few rows.
    size: int = options["batch_bytes"] or options["segment_size"]
    return size


def choose(call: CallFacts, session: SessionFacts) -> Plan:
    """Return the plan of an exchange."""
    not_by_order = why_not_by_order(session, is_by_order=call.is_by_order)
    no_files = why_not_in_files(session)
    mode: Mode = "kept"
    why, against, impossible = _why_not_spark(call), "", no_files or not_by_order
    if any(facts.placement.kind == "whole" for facts in call.inputs):
        mode, why, impossible = "broadcast", _BROADCAST, ""
    elif call.is_listed:
        why = against = _LISTED
    elif call.mode != "auto":
        why = f'mode="{call.mode}" ({call.options.sources["mode"]})'
        if call.mode == "spark":
            # Spark's repartition of rows that Python places trusts in their order as well.
            mode, impossible = "repartition", "" if call.is_by_spark else not_by_order
    elif call.is_shortest:
        mode, why, against, impossible = "repartition", _NO_MAP, _ONLY_WORK, ""
    elif (
        not session.has_native
        or session.is_inline
        or no_files
        or (not_by_order and call.is_by_spark)
    ):
        mode, why = "repartition", _INLINE if session.is_inline else impossible
        why = why if session.has_native else NO_NATIVE
        against, impossible = why, "" if call.is_by_spark else not_by_order
    else:
        against = why
    other: Mode = "repartition" if mode == "kept" else "kept"
    return Plan(
        call,
        session,
        mode,
        why,
        rejected=(Rejected(other, against),) if against else (),
        impossible=impossible,
        remedy=_remedy(call, session, impossible) if impossible else "",
    )


def _remedy(call: CallFacts, session: SessionFacts, impossible: str) -> str:
    """Return what to do about a call that cannot be carried out."""
    if session.unknown_shuffle is not None and impossible != _BY_ORDER:
        left_to_spark = [] if call.is_listed else ['mode="auto"']
        return " · ".join([*left_to_spark, session.unknown_shuffle.remedy])
    left_to_spark = ['mode="spark"'] if call.is_by_spark else []
    return " · ".join(["by=columns", *left_to_spark, "Spark 4.1 or newer"])


def _why_not_spark(call: CallFacts) -> str:
    """Return why Spark's own repartition is not the shortest way."""
    if any(facts.has_map for facts in call.inputs):
        return "map makes the rows in Python, from where Spark's shuffle would take them through the JVM"
    if any(facts.has_combine for facts in call.inputs):
        return "combine merges the rows in Python, from where Spark's shuffle would take them through the JVM"
    if any(facts.follows for facts in call.inputs):
        return "the tasks of the exchange before have the rows in Python, from where Spark's shuffle would take them through the JVM"
    if any(facts.source for facts in call.inputs):
        return "the workers read the rows, and Spark's shuffle would take them through the JVM"
    return f"by is {call.by}, by which only Python can place rows"
