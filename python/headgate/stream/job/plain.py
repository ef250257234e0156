"""The status of a job as values that JSON has: the record of this process has them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.stream.job.status import JobStatus


def plain(name: str, started_at: float, status: JobStatus) -> dict[str, Any]:
    """Return the status of a job.

    Args:
        name: of the job.
        started_at: in seconds since 1970.
        status: its status. Folders of savepoints are left out, as a URI may have a password.
    """
    checkpoints = [asdict(one) for one in status.checkpoints]
    for one in checkpoints:
        one["savepoint"] = one["savepoint"] is not None
    failure = status.failure
    bottleneck = None if status.state.is_over else status.bottleneck
    return {
        "name": name,
        "started_at": started_at,
        "state": status.state.value,
        "attempt": status.attempt,
        "restarts": status.restarts,
        "tasks": [asdict(task) for task in status.tasks],
        "checkpoints": checkpoints,
        "failure": None if failure is None else f"[{failure.code}] {failure.summary}",
        "bottleneck": None if bottleneck is None else str(bottleneck),
        "ended_attempts": [asdict(one) for one in status.ended_attempts],
        "dropped": {operator: dict(counters) for operator, counters in status.dropped.items()},
        "notices": list(status.notices),
        "workers": [asdict(worker) for worker in status.workers],
    }
