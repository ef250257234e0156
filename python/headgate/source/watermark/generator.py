"""Generators, which make watermarks from the timestamps of records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from headgate.errors import OptionError, UnsupportedTypeError

#: The watermark before the first one; no record is earlier.
MIN_WATERMARK: Final = -(1 << 63)

#: The watermark after the last record; no record is later.
MAX_WATERMARK: Final = (1 << 63) - 1


class WatermarkOutput(ABC):
    """Takes the watermarks of a generator."""

    @abstractmethod
    def emit_watermark(self, timestamp: int) -> None:
        """Promise that no record at or before ``timestamp`` (ms) follows; ignores a lower one."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Exclude this output from the combined watermark until its next record."""

    @abstractmethod
    def mark_active(self) -> None:
        """Include this output in the combined watermark again."""


class WatermarkGenerator(ABC):
    """Makes the watermarks of one split; called by one thread."""

    @abstractmethod
    def on_event(self, record: Any, timestamp: int | None, output: WatermarkOutput) -> None:
        """Process a record, after it was emitted.

        Args:
            record: the batch, or other record of the source.
            timestamp: its latest timestamp in ms; None if it has none.
            output: takes a watermark at once.
        """

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit the current watermark.

        Called each ``watermark_interval`` of the job while there are records, and each 200 ms without.
        """


class BoundedOutOfOrderness(WatermarkGenerator):
    """Emits the latest timestamp minus a bound and 1 ms, periodically.

    Source: Flink's BoundedOutOfOrdernessWatermarks.

    Args:
        bound_ms: largest expected lag of a record behind the latest timestamp.
    """

    __slots__ = ("_bound", "_latest")

    def __init__(self, bound_ms: int) -> None:
        self._bound = bound_ms
        self._latest: int | None = None

    def on_event(self, record: Any, timestamp: int | None, output: WatermarkOutput) -> None:  # noqa: ARG002 - for others
        """Update the latest timestamp."""
        if timestamp is not None and (self._latest is None or timestamp > self._latest):
            self._latest = timestamp

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit the latest timestamp minus the bound and 1 ms."""
        if self._latest is not None:
            output.emit_watermark(max(self._latest - self._bound - 1, MIN_WATERMARK))


class Punctuated(WatermarkGenerator):
    """Emits watermarks that a function finds in the records, at once.

    Args:
        find: gets a record and its latest timestamp in ms (or None); returns a watermark in ms
            or None.
    """

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[Any, int | None], int | None]) -> None:
        self._find = find

    def on_event(self, record: Any, timestamp: int | None, output: WatermarkOutput) -> None:
        """Emit the function's result.

        Raises:
            UnsupportedTypeError: the result is neither a whole number nor None.
        """
        watermark = self._find(record, timestamp)
        if watermark is None:
            return
        if isinstance(watermark, bool) or not isinstance(watermark, int):
            raise UnsupportedTypeError(
                f"the function of for_punctuated() returned {type(watermark).__name__}",
                asked=f"{watermark!r}",
                have="a watermark is a whole number of ms since 1970, or None",
                remedy="return int(...) or None",
            )
        output.emit_watermark(watermark)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit nothing: each watermark was emitted with its record."""


class TimestampsRequired(WatermarkGenerator):
    """Raises an error if a generator that needs timestamps gets a record without one.

    Args:
        inner: the generator.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: WatermarkGenerator) -> None:
        self._inner = inner

    def on_event(self, record: Any, timestamp: int | None, output: WatermarkOutput) -> None:
        """Process a record that has a timestamp.

        Raises:
            OptionError: the record has no timestamp, and there is no assigner.
        """
        if timestamp is None:
            raise OptionError(
                "the records of this source have no timestamps of their own",
                asked="watermarks without a timestamp assigner",
                have=f"a record of type {type(record).__name__}",
                remedy='watermarks.with_timestamp_assigner("column")',
            )
        self._inner.on_event(record, timestamp, output)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit the generator's current watermark."""
        self._inner.on_periodic_emit(output)
