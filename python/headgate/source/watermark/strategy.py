"""The watermark strategy of a source: an immutable description that is sent to the readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Self

from headgate._arguments import duration, flag, span, whole_number
from headgate.errors import OptionError
from headgate.source.watermark.assigner import TimestampAssigner, TimestampFunction
from headgate.source.watermark.generator import (
    BoundedOutOfOrderness,
    Punctuated,
    TimestampsRequired,
    WatermarkGenerator,
)


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """A group of sources, or of the readers of one, that wait for each other.

    Attributes:
        group: the group's name.
        max_drift_ms: largest lead of a watermark over the group's slowest member.
        update_interval: seconds between two updates of the limit.
        allow_unaligned_splits: True if a reader that cannot pause single splits goes on, and waits as a whole.
    """

    group: str
    max_drift_ms: int
    update_interval: float = 1.0
    allow_unaligned_splits: bool = False


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """Defines a source's timestamps, its watermarks, and when a split counts as idle.

    Each ``with_`` method returns a new strategy. It can be pickled if its functions can be;
    Spark's own pickler takes lambdas too. Source: Flink's WatermarkStrategy.

    Attributes:
        generator: makes the generator of one split; None to use the source's own watermarks.
        assigner: finds the timestamps; None to use the source's own.
        idle_timeout: seconds without a record after which a split counts as idle; None for never.
        alignment: the alignment group of the readers.
        needs_timestamps: True if ``generator`` fails on records without a timestamp.
    """

    generator: Callable[[], WatermarkGenerator] | None = None
    assigner: TimestampAssigner | None = None
    idle_timeout: float | None = None
    alignment: WatermarkAlignment | None = None
    needs_timestamps: bool = False

    @classmethod
    def for_bounded_out_of_orderness(cls, bound_ms: int) -> Self:
        """Return a strategy for records that arrive at most ``bound_ms`` late.

        Raises:
            OptionError: the bound is not a whole number, or is negative.
        """
        return cls(partial(BoundedOutOfOrderness, _ms("bound_ms", bound_ms)), needs_timestamps=True)

    @classmethod
    def for_monotonous_timestamps(cls) -> Self:
        """Return a strategy for splits whose timestamps only grow."""
        return cls(partial(BoundedOutOfOrderness, 0), needs_timestamps=True)

    @classmethod
    def for_punctuated(cls, find: Callable[[Any, int | None], int | None]) -> Self:
        """Return a strategy for records that contain watermarks.

        Args:
            find: gets a record (a batch) and its latest timestamp in ms (or None); returns the
                watermark in ms or None.
        """
        return cls(partial(Punctuated, find))

    @classmethod
    def for_generator(cls, make: Callable[[], WatermarkGenerator]) -> Self:
        """Return a strategy with a generator of your own; ``make`` is called once per split."""
        return cls(make)

    @classmethod
    def no_watermarks(cls) -> Self:
        """Return a strategy that makes no watermarks; those that a source emits still count."""
        return cls()

    def with_timestamp_assigner(self, column: str | TimestampFunction, unit: str = "ms") -> Self:
        """Return this strategy with timestamps from a column, or from a function of a batch.

        Args:
            column: the name of a column of timestamps or int64, or a function from a batch to an
                Arrow array of either.
            unit: the unit of int64 values: "s", "ms", "us" or "ns".

        Raises:
            OptionError: ``column`` is neither a name nor a function, or the unit is unknown.
        """
        return replace(self, assigner=TimestampAssigner(column, unit))

    def with_idleness(self, timeout: float | str) -> Self:
        """Return this strategy with splits that count as idle after a time without records.

        Time in which the reader was back-pressured or paused, or read another split first, does not
        count. A reader that has no split for the timeout counts as idle, too.

        Args:
            timeout: seconds, or a duration such as ``"30s"``.

        Raises:
            OptionError: the timeout is not a duration above 0.
        """
        return replace(self, idle_timeout=duration("timeout", timeout, 0.001))

    def with_watermark_alignment(
        self,
        group: str,
        max_drift_ms: int,
        update_interval: float | str = 1.0,
        *,
        allow_unaligned_splits: bool = False,
    ) -> Self:
        """Return this strategy with readers and splits that wait for the slowest one of a group.

        Args:
            group: the group's name.
            max_drift_ms: largest lead of a watermark over the group's slowest member.
            update_interval: seconds between two updates, or a duration such as ``"1s"``.
            allow_unaligned_splits: True to go on with readers that cannot pause single splits: they wait as a whole.

        Raises:
            OptionError: a value is of the wrong kind or out of range.
        """
        if not (group and isinstance(group, str)):
            raise OptionError(
                f"group={group!r} is not a name",
                asked="with_watermark_alignment()",
                have="any string but the empty one",
            )
        drift = _ms("max_drift_ms", max_drift_ms)
        interval = duration("update_interval", update_interval, 0.001)
        unaligned = flag("allow_unaligned_splits", allow_unaligned_splits)
        return replace(self, alignment=WatermarkAlignment(group, drift, interval, unaligned))

    def create_generator(self) -> WatermarkGenerator | None:
        """Return the generator of one split."""
        if self.generator is None:
            return None
        generator = self.generator()
        return (
            TimestampsRequired(generator)
            if self.needs_timestamps and self.assigner is None
            else generator
        )


def _ms(name: str, value: Any) -> int:
    """Return a length of event time in ms: a number of ms, text or a ``timedelta``."""
    if isinstance(value, int):
        return whole_number(name, value, 0, (1 << 62) - 1)
    millis: int = span(name, value) // timedelta(milliseconds=1)
    return millis
