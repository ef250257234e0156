"""Figures of the last checkpoints, for people."""

from __future__ import annotations

from collections import deque
from typing import Final

from headgate.observe.record import CheckpointStats

#: Most checkpoints whose figures are held.
KEPT: Final = 100


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
