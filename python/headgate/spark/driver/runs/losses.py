"""Causes for lost tasks, by how the loss was noticed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from headgate import errors
from headgate.control.cause import Cause
from headgate.spark.driver.runs.members import Member, Producer

#: Prefix of the tags of producer jobs, which Spark quotes for a task that was cancelled by its tag.
OURS: Final = "headgate-"
#: An error of a worker's own connections, as Spark quotes it.
_QUOTED: Final = re.compile(r"\[(HG-3\d{3})\] ([^\n]+)")
_SILENT: Final = (
    "look at that host and process: stopped, frozen, cut off · a larger heartbeat_timeout"
)


def is_gone(text: str) -> bool:
    """Return True if Spark's text for a failed task means that its process was lost."""
    return not text or "exited unexpectedly" in text or "ExecutorLost" in text


def is_cancel(text: str) -> bool:
    """Return True if Spark's text for a killed task means that the user cancelled its job."""
    return not text or ("cancelled" in text.lower() and OURS not in text)


def lost(member: Member, text: str) -> Cause:
    """Return the cause for a connection that closed without a DONE, STOPPED or FAILED message.

    Args:
        member: the task at its other end.
        text: Spark's error text for the task.
    """
    if isinstance(member, Producer) and member.readers is not None:
        return member.readers.loss(member, text)
    role = "producer" if isinstance(member, Producer) else "consumer"
    where = f"{role} of partition {member.partition}, stage {member.stage}, task {member.attempt}"
    known = _QUOTED.search(text)
    if member.broken is not None:
        summary = f"{member.broken.summary}: {where}"
        return Cause(member.broken.code, summary, text=text, where=where)
    if known is not None:
        return Cause(known[1], f"{known[2].strip()}: {where}", text=text, where=where)
    if is_gone(text):
        summary = f"a {role} is gone without a goodbye: {where}"
        return Cause(errors.PeerLostError.code, summary, text=text, where=where)
    summary = f"a {role} failed in Spark, outside of Headgate: {where}"
    if isinstance(member, Producer):
        return Cause(errors.ProducerFailedError.code, summary, text=text, where=where)
    remedy = "mend the cause below · run the action again"
    return Cause(errors.PeerLostError.code, summary, remedy=remedy, text=text, where=where)


def silent(member: Member, host: str, seconds: float) -> Cause:
    """Return the cause for a task without heartbeats.

    Args:
        member: the task.
        host: its address.
        seconds: without a heartbeat.
    """
    cause = lost(member, "")
    summary = f"no heartbeat for {seconds:.0f} s from {host}: {cause.summary}"
    return replace(cause, summary=summary, remedy=_SILENT)


def unproven(taken: set[int], partitions: set[int]) -> Cause:
    """Return the cause for producers that ended well although consumers did not take all their rows.

    Args:
        taken: partitions with all rows taken.
        partitions: partitions whose tasks ended well.
    """
    wrong = ", ".join(map(str, sorted(taken ^ partitions)[:8]))
    return Cause(
        errors.IntegrityError.code,
        f"producers {wrong} ended without a proof that their rows were taken",
        have=f"{len(taken)} of {len(partitions)} producers",
    )


def foreign(exchange_id: bytes, stage: int) -> Cause:
    """Return the cause for a consumer that named a stage which does not read its exchange."""
    return Cause(
        errors.ProtocolError.code,
        f"a worker named stage {stage}, which does not read its exchange",
        asked=f"a consumer of exchange {exchange_id.hex()[:4]}",
        remedy="see SECURITY.md: a worker may name tasks of its own exchange only",
    )


def bug(doing: str, error: Exception) -> Cause:
    """Return the cause for an error in the coordinator's own code.

    Args:
        doing: its work, as words.
        error: the exception.
    """
    known = Cause.of(error)
    words = f"the coordinator failed at {doing}: {known.summary}"
    remedy = errors.InternalError.default_remedy
    return Cause(errors.InternalError.code, words, remedy=remedy, text=known.text)
