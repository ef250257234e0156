"""The watermark of an input with several channels."""

from __future__ import annotations

from headgate.source.watermark.generator import MIN_WATERMARK


class StatusWatermarkValve:
    """Combines the watermarks of channels: the smallest of those that are neither idle nor behind. It never decreases.

    Source: Flink's StatusWatermarkValve.

    Args:
        channels: number of channels.

    Attributes:
        watermark: the combined one, in ms.
        is_idle: True while all channels are idle.
    """

    def __init__(self, channels: int) -> None:
        self._watermarks = [MIN_WATERMARK] * channels
        self._idle = [False] * channels
        self.watermark = MIN_WATERMARK
        self.is_idle = False

    def advance(self, channel: int, watermark: int) -> bool:
        """Take the watermark of a channel, which is active from now on; return True if the combined one grew."""
        self._watermarks[channel] = max(self._watermarks[channel], watermark)
        self._idle[channel] = self.is_idle = False
        return self._combine()

    def set_idle(self, channel: int) -> bool:
        """Ignore a channel until its next watermark; return True if the combined watermark grew."""
        self._idle[channel] = True
        self.is_idle = all(self._idle)
        return self._combine()

    def _combine(self) -> bool:
        # A channel that was idle and is behind holds nobody up: its rows are late in any case.
        active = [
            mark
            for mark, is_idle in zip(self._watermarks, self._idle, strict=True)
            if not is_idle and mark >= self.watermark
        ]
        if active:
            least = min(active)
        elif self.is_idle:
            # The furthest of all counts, since nobody holds it up any more.
            least = max(self._watermarks)
        else:
            return False
        if least <= self.watermark:
            return False
        self.watermark = least
        return True
