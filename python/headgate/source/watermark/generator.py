"""What turns the timestamps of records into watermarks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from headgate.errors import OptionError, UnsupportedTypeError

#: No record is earlier: the watermark before there is one.
MIN_WATERMARK: Final = -(1 << 63)

#: No record is later: the watermark after the last record.
MAX_WATERMARK: Final = (1 << 63) - 1


class WatermarkOutput(ABC):
    """Where a generator puts its watermarks."""

    @abstractmethod
    def emit_watermark(self, timestamp: int) -> None:
        """Say that no record at or before ``timestamp`` (ms) follows; never goes back."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Leave this output out of the combined watermark until its next record."""

    @abstractmethod
    def mark_active(self) -> None:
        """Count this output in again."""


class WatermarkGenerator(ABC):
    """Makes the watermarks of one split; called by one thread."""

    @abstractmethod
    def on_event(self, record: Any, timestamp: int | None, output: WatermarkOutput) -> None:
        """Look at a record, after it was emitted.

        Args:
            record: a batch, or what else the source emits.
            timestamp: its latest time in ms; None where it has none.
            output: takes a watermark at once.
        """

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit what is known now; called every 200 ms."""


class BoundedOutOfOrderness(WatermarkGenerator):
    """The latest time so far, less a bound and one ms more; emitted periodically.

    Source: Flink's BoundedOutOfOrdernessWatermarks.

    Args:
        bound_ms: how much later than a record an earlier one may still come.
    """

    __slots__ = ("_bound", "_latest")

    def __init__(self, bound_ms: int) -> None:
        self._bound = bound_ms
        self._latest: int | None = None

    def on_event(self, record: Any, timestamp: int | None, output: WatermarkOutput) -> None:  # noqa: ARG002 - what others look at
        """Remember the latest time."""
        if timestamp is not None and (self._latest is None or timestamp > self._latest):
            self._latest = timestamp

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit the latest time less the bound."""
        if self._latest is not None:
            output.emit_watermark(max(self._latest - self._bound - 1, MIN_WATERMARK))


class Punctuated(WatermarkGenerator):
    """Watermarks that the records themselves tell; emitted at once.

    Args:
        find: gets a record and its latest time in ms (or None); returns a watermark in ms or None.
    """

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[Any, int | None], int | None]) -> None:
        self._find = find

    def on_event(self, record: Any, timestamp: int | None, output: WatermarkOutput) -> None:
        """Emit what the function finds.

        Raises:
            UnsupportedTypeError: it returned something else than a whole number or None.
        """
        found = self._find(record, timestamp)
        if found is None:
            return
        if isinstance(found, bool) or not isinstance(found, int):
            raise UnsupportedTypeError(
                f"the function of for_punctuated() returned {type(found).__name__}",
                asked=f"{found!r}",
                have="a watermark is a whole number of ms since 1970, or None",
                remedy="return int(...) or None",
            )
        output.emit_watermark(found)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit nothing: everything was emitted with its record."""


class TimestampsRequired(WatermarkGenerator):
    """Guards a generator that needs timestamps against records that have none at all.

    Args:
        inner: the generator.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: WatermarkGenerator) -> None:
        self._inner = inner

    def on_event(self, record: Any, timestamp: int | None, output: WatermarkOutput) -> None:
        """Refuse a record without a time.

        Raises:
            OptionError: the source gives no timestamps, and no assigner was named.
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
        """Emit what the generator knows."""
        self._inner.on_periodic_emit(output)
