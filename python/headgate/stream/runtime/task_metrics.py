"""Counts of a task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TaskMetrics:
    """Counts of a task, read by other threads.

    Attributes:
        rows_in: rows of the input.
        batches_in: batches of the input.
        watermark: in ms.
        busy_ns: time in operators and outputs, waits for room included.
        full_ns: time in which no input was read, since an operator was full.
        alignment_ms: duration of the last alignment.
    """

    rows_in: int = 0
    batches_in: int = 0
    watermark: int | None = None
    busy_ns: int = 0
    full_ns: int = 0
    alignment_ms: int = 0
