"""The watermark of an input with several channels."""

from __future__ import annotations

from headgate.source.watermark.generator import MAX_WATERMARK, MIN_WATERMARK


class StatusWatermarkValve:
    """Combines the watermarks of channels: the smallest of those that are neither idle nor behind. It never decreases.

    A channel that has ended has sent ``MAX_WATERMARK``. It holds nobody up, but idle channels may still have rows, so the
    combined watermark is the last one only when all have ended. Source: Flink's StatusWatermarkValve, with the rule of
    FLINK-38477 for channels that have ended.

    Args:
        channels: number of channels.

    Attributes:
        watermark: the combined one, in ms.
        is_idle: True while all channels that have not ended are idle.
    """

    def __init__(self, channels: int) -> None:
        self._watermarks = [MIN_WATERMARK] * channels
        self._idle = [False] * channels
        self.watermark = MIN_WATERMARK
        self.is_idle = False

    def advance(self, channel: int, watermark: int) -> bool:
        """Take the watermark of a channel, which is active from now on; return True if the combined one grew."""
        self._watermarks[channel] = max(self._watermarks[channel], watermark)
        self._idle[channel] = False
        return self._combine()

    def set_idle(self, channel: int) -> bool:
        """Ignore a channel until its next watermark; return True if the combined watermark grew."""
        self._idle[channel] = True
        return self._combine()

    def _combine(self) -> bool:
        both = zip(self._watermarks, self._idle, strict=True)
        open_ones = [(mark, is_idle) for mark, is_idle in both if mark < MAX_WATERMARK]
        self.is_idle = bool(open_ones) and all(is_idle for _, is_idle in open_ones)
        # A channel that was idle and is behind holds nobody up: its rows are late in any case.
        active = [mark for mark, is_idle in open_ones if not is_idle and mark >= self.watermark]
        if not open_ones:
            least = MAX_WATERMARK
        elif active:
            least = min(active)
        elif self.is_idle:
            # The furthest of all counts, since nobody holds it up any more.
            least = max(mark for mark, _ in open_ones)
        else:
            return False
        if least <= self.watermark:
            return False
        self.watermark = least
        return True
