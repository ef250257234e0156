"""How operators of windows close those that are over, a part at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate._times import milli_of
from headgate.stream.windows.kinds import WindowOutput

if TYPE_CHECKING:
    from headgate.stream.state.timers import Timers

#: Most windows that are closed at once.
MOST_WINDOWS: Final = 1 << 14


class ClosesWindows(ABC):
    """An operator whose windows have timers.

    Attributes:
        watermark: the greatest so far, in ms.
    """

    watermark: int
    _timers: Timers

    def advance_watermark(self, watermark: int) -> WindowOutput:
        """Close the windows that end up to the watermark.

        Args:
            watermark: no row with this time or an earlier one follows; milliseconds since 1970. A smaller one than the
                last changes nothing.

        Returns:
            The results of the windows in order of their ends. :meth:`close_until` has them in parts.
        """
        first, *rest = self.close_until(watermark)
        if not rest:
            return first
        results = pa.concat_batches([first.results, *(output.results for output in rest)])
        return WindowOutput(results, first.late)

    def close_until(self, watermark: int) -> Iterator[WindowOutput]:
        """Close windows as :meth:`advance_watermark`, and yield the results in parts that fit in memory, at least one.

        Exhaust it before anything else is done with the operator.
        """
        self.watermark = max(self.watermark, milli_of(watermark))
        for fired in self._timers.advance_in_parts(self.watermark, MOST_WINDOWS):
            yield from self._close(fired)

    @abstractmethod
    def _close(self, fired: pa.RecordBatch) -> Iterator[WindowOutput]:
        """Emit and remove the windows of timers that have fired; yield at least one output."""
