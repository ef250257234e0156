"""What the loss of a task is called, by how it was noticed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from headgate import errors
from headgate.spark.driver.members import Member, Producer
from headgate.spark.driver.readers import is_gone
from headgate.spark.wire.cause import Cause

#: What the tags of our own jobs begin with, in the words for a task that was cancelled with its epoch.
OURS: Final = "headgate-"
#: An error of a worker's own connections, as Spark quotes it.
_QUOTED: Final = re.compile(r"\[(HG-3\d{3})\] ([^\n]+)")
_SILENT: Final = (
    "look at that host and process: stopped, frozen, cut off · a larger heartbeat_timeout"
)


def is_cancel(text: str) -> bool:
    """Whether Spark's words for a killed task mean that its job was cancelled, and not by us."""
    return not text or ("cancelled" in text.lower() and OURS not in text)


def lost(member: Member, text: str) -> Cause:
    """Return the cause that a connection is which ended without a goodbye.

    Args:
        member: the task at its other end.
        text: what Spark says of the task.
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
    """Return the cause that a silent task is.

    Args:
        member: the task.
        host: address that it came from.
        seconds: for which there was no heartbeat.
    """
    cause = lost(member, "")
    summary = f"no heartbeat for {seconds:.0f} s from {host}: {cause.summary}"
    return replace(cause, summary=summary, remedy=_SILENT)


def unproven(taken: set[int], partitions: set[int]) -> Cause:
    """Return the cause that producers are whose job ended well, but whose rows nobody confirmed.

    Args:
        taken: partitions whose rows were taken.
        partitions: those whose tasks have ended well.
    """
    wrong = ", ".join(map(str, sorted(taken ^ partitions)[:8]))
    return Cause(
        errors.IntegrityError.code,
        f"producers {wrong} ended without a proof that their rows were taken",
        have=f"{len(taken)} of {len(partitions)} producers",
    )
