"""Fills the record of what a process exchanges through a :class:`headgate.ShuffleEnvironment` of its own."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

from headgate._process import peak_resident_bytes
from headgate.observe.record import Run, Task
from headgate.observe.stages import stage_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def record_of(stats: Mapping[str, Any], name: str = "") -> Run:
    """Return the record of an environment so far. Its time begins with its first gate or partition.

    Args:
        stats: of :meth:`headgate.ShuffleEnvironment.stats`.
        name: of the process; by default its id.
    """
    metrics = stats["metrics"]["task"]
    idle, busy, blocked = (
        metrics[f"accumulate{state}TimeMs"] for state in ("Idle", "Busy", "BackPressured")
    )
    rows = sum(part["rows"] for partition in stats["partitions"] for part in partition)
    task = Task(
        "process",
        0,
        rows=rows,
        bytes=metrics["numBytesOut"],
        peak_bytes=stats["peak_bytes"],
        peak_resident_bytes=peak_resident_bytes(),
        input_ms=idle,
        function_ms=busy,
        blocked_ms=blocked,
        host=socket.gethostname(),
        started_ms=0,
    )
    return Run(
        mode="process",
        name=name or str(os.getpid()),
        number=1,
        state="running",
        seconds=task.wall_ms / 1000,
        started_at=round(time.time() - task.wall_ms / 1000, 3),
        rows=rows,
        bytes=task.bytes,
        pages=metrics["numBuffersOut"],
        peak_bytes=task.peak_bytes,
        peak_resident_bytes=task.peak_resident_bytes,
        stages=(stage_of("process", [(0, (idle, busy, blocked))]),),
        tasks=(task,),
    )
