"""Figures of the last checkpoints, for people."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

#: Checkpoints whose figures are kept.
KEPT: Final = 100


@dataclass(slots=True)
class CheckpointStats:
    """Figures of one checkpoint.

    Attributes:
        checkpoint: its id.
        triggered: wall-clock time in ms since 1970.
        savepoint: folder of a savepoint.
        status: ``"pending"``, ``"complete"`` or ``"failed"``.
        duration: ms from the trigger until all is written; None while it is pending.
        bytes: size of the files that it wrote.
        barrier: ms from the trigger until the last task had its barriers.
        alignment: longest alignment of a task in ms.
        sync: longest time in ms for which a task stood still.
        in_flight: bytes of data in flight.
        reason: of a failure.
    """

    checkpoint: int
    triggered: int
    savepoint: str | None = None
    status: str = "pending"
    duration: int | None = None
    bytes: int = 0
    barrier: int = 0
    alignment: int = 0
    sync: int = 0
    in_flight: int = 0
    reason: str = ""


class CheckpointHistory:
    """The last checkpoints."""

    def __init__(self) -> None:
        self._all: deque[CheckpointStats] = deque(maxlen=KEPT)

    def begin(self, checkpoint: int, triggered: int, savepoint: str | None) -> None:
        """Add a checkpoint."""
        self._all.append(CheckpointStats(checkpoint, triggered, savepoint))

    def find(self, checkpoint: int) -> CheckpointStats | None:
        """Return a checkpoint's figures."""
        return next((one for one in self._all if one.checkpoint == checkpoint), None)

    def all(self) -> list[CheckpointStats]:
        """Return the checkpoints, the oldest first."""
        return list(self._all)
