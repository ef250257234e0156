"""The reader's part of watermark alignment: it waits for slower members of its group."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.source.watermark.generator import MAX_WATERMARK


class SplitAlignment:
    """Decides which splits of a reader have to wait, or if the whole reader has to.

    Source: the alignment of Flink's SourceOperator (FLIP-182, FLIP-217).

    Attributes:
        max_allowed: highest allowed watermark in ms; no limit before the first report.
        paused: the paused splits.
    """

    def __init__(self) -> None:
        self.max_allowed = MAX_WATERMARK
        self.paused: set[str] = set()

    def must_wait(self, watermark: int) -> bool:
        """True if a reader with this watermark is too far ahead."""
        return self.max_allowed < watermark

    def differences(self, watermarks: Mapping[str, int]) -> tuple[list[str], list[str]]:
        """Return the splits to pause and those to resume; :attr:`paused` does not change.

        A reader's only split waits with its reader, so it is never paused, and resumed if it was.

        Args:
            watermarks: the watermarks of all splits, in ms.
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
