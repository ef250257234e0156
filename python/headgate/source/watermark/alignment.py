"""Waiting for slower members of an alignment group, on the reader's side."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.source.watermark.generator import MAX_WATERMARK


class SplitAlignment:
    """Which splits of a reader have to wait, and whether all of it has to.

    Source: the alignment of Flink's SourceOperator (FLIP-182, FLIP-217).

    Attributes:
        max_allowed: how far watermarks may run, in ms; no limit before the first is told.
        paused: the splits that wait.
    """

    def __init__(self) -> None:
        self.max_allowed = MAX_WATERMARK
        self.paused: set[str] = set()

    def must_wait(self, watermark: int) -> bool:
        """Whether a reader of this watermark has run too far ahead."""
        return self.max_allowed < watermark

    def differences(self, watermarks: Mapping[str, int]) -> tuple[list[str], list[str]]:
        """Return the splits to pause and those to resume; :attr:`paused` stays as it was.

        A single split waits with its reader, so it is never paused, and goes on if it was.

        Args:
            watermarks: of all splits that are there, in ms.
        """
        self.paused &= watermarks.keys()
        if not self.paused and self.max_allowed == MAX_WATERMARK:
            return [], []
        ahead = {name for name, watermark in watermarks.items() if watermark > self.max_allowed}
        wanted = ahead if len(watermarks) > 1 else set()
        return (
            [name for name in watermarks if name in wanted - self.paused],
            [name for name in watermarks if name in self.paused - wanted],
        )
