"""The cause of a lost worker of a streaming job: what is known of its end, and nothing that is only likely.

Decision: ADR 0052.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate._process import memory_group_now
from headgate.control.cause import Cause
from headgate.errors import PeerLostError
from headgate.observe.numbers import size

if TYPE_CHECKING:
    from headgate._process import MemoryGroup

_MORE_MEMORY: Final = "a larger limit of the container's memory · fewer workers= in it · a smaller memory= in options="
_OUTPUT: Final = "look at the end of that worker's output"


def how_it_ended(code: int) -> str:
    """Return a clause about an exit status, which is the negative number of a signal that killed the process."""
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = ""
    with suppress(ValueError):
        name = f" ({signal.Signals(-code).name})"
    return f"its process was killed by signal {-code}{name}"


def lost_worker(
    number: int,
    end: str = "",
    *,
    group: MemoryGroup | None = None,
    peak: int = 0,
    connection: str = "",
) -> Cause:
    """Return the cause of an attempt that ended with a worker.

    Args:
        number: of the worker.
        end: how its process ended, as a clause; empty if that is not known.
        group: its control group when it began.
        peak: its peak resident memory as it said last; 0 if it did not.
        connection: how its connection ended.
    """
    now = None if group is None else memory_group_now(group)
    kills = 0 if group is None or now is None else now.kills - group.kills
    clauses = [end] if end else []
    if kills:
        clauses.append(f"its cgroup counts {kills} more oom_kill since it began")
    elif now is not None:
        clauses.append("its cgroup counts no oom_kill since it began")
    if now is not None and now.limit is not None:
        clauses.append(f"the cgroup's limit of memory is {size(now.limit)}")
    if peak:
        clauses.append(f"its peak resident memory was {size(peak)} when it reported last")
    reason = ", ".join(clauses if end or kills else ["no reason is known", *clauses])
    lost = PeerLostError(
        f"worker {number} of the streaming job is lost: {reason}",
        have=connection,
        remedy=_MORE_MEMORY if kills else _OUTPUT if end else "",
    )
    return Cause.of(lost)
