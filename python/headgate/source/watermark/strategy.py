"""How a source's watermarks are made: an immutable description that travels to the readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from headgate._units import parse_duration
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
        group: its name.
        max_drift_ms: how far ahead of the group's slowest member a watermark may run.
        update_interval: seconds between two looks at the members.
    """

    group: str
    max_drift_ms: int
    update_interval: float = 1.0


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """Where times come from, how watermarks follow from them, and when a split counts as idle.

    Each ``with_`` method returns a new strategy. Pickle takes it as long as its functions can be
    pickled; Spark's own pickler takes lambdas too. Source: Flink's WatermarkStrategy.

    Attributes:
        generator: makes the generator of one split; None for no watermarks but the source's own.
        assigner: finds the times; None for the source's own.
        idle_timeout: seconds without a record after which a split counts as idle; None for never.
        alignment: the group that the readers belong to.
        needs_timestamps: whether ``generator`` has no use for records without a time.
    """

    generator: Callable[[], WatermarkGenerator] | None = None
    assigner: TimestampAssigner | None = None
    idle_timeout: float | None = None
    alignment: WatermarkAlignment | None = None
    needs_timestamps: bool = False

    @classmethod
    def for_bounded_out_of_orderness(cls, bound_ms: int) -> Self:
        """Return a strategy for records that come at most ``bound_ms`` too late.

        Raises:
            OptionError: the bound is no whole number, or negative.
        """
        _check_ms("bound_ms", bound_ms)
        return cls(partial(BoundedOutOfOrderness, bound_ms), needs_timestamps=True)

    @classmethod
    def for_monotonous_timestamps(cls) -> Self:
        """Return a strategy for splits whose times only ever grow."""
        return cls(partial(BoundedOutOfOrderness, 0), needs_timestamps=True)

    @classmethod
    def for_punctuated(cls, find: Callable[[Any, int | None], int | None]) -> Self:
        """Return a strategy for records that tell the watermark themselves.

        Args:
            find: gets a record (a batch) and its latest time in ms, or None; returns the watermark
                in ms, or None.
        """
        return cls(partial(Punctuated, find))

    @classmethod
    def for_generator(cls, make: Callable[[], WatermarkGenerator]) -> Self:
        """Return a strategy with generators of your own; ``make`` is called once per split."""
        return cls(make)

    @classmethod
    def no_watermarks(cls) -> Self:
        """Return a strategy that makes none; those that a source emits itself still count."""
        return cls()

    def with_timestamp_assigner(self, column: str | TimestampFunction, unit: str = "ms") -> Self:
        """Return this strategy with times from a column, or from a function of a batch.

        Args:
            column: the name of a column of timestamps or int64, or a function from a batch to an
                Arrow array of either.
            unit: what an int64 counts: "s", "ms", "us" or "ns".

        Raises:
            OptionError: neither a name nor a function, or an unknown unit.
        """
        return replace(self, assigner=TimestampAssigner(column, unit))

    def with_idleness(self, timeout: float | str) -> Self:
        """Return this strategy with splits left out after a time without records.

        Time in which the reader could not have read, because it was back-pressured or paused, does
        not count.

        Args:
            timeout: seconds, or a text as ``"30s"``.

        Raises:
            OptionError: no duration, or not above 0.
        """
        return replace(self, idle_timeout=_seconds("with_idleness", timeout))

    def with_watermark_alignment(
        self, group: str, max_drift_ms: int, update_interval: float | str = 1.0
    ) -> Self:
        """Return this strategy with readers, and splits, that wait for the slowest of a group.

        Args:
            group: its name.
            max_drift_ms: how far ahead of the slowest one may run.
            update_interval: seconds between two looks, or a text as ``"1s"``.

        Raises:
            OptionError: a value that is none of these.
        """
        if not (group and isinstance(group, str)):
            raise OptionError(
                f"group={group!r} is no name", asked="with_watermark_alignment()", have="any text"
            )
        _check_ms("max_drift_ms", max_drift_ms)
        interval = _seconds("update_interval", update_interval)
        return replace(self, alignment=WatermarkAlignment(group, max_drift_ms, interval))

    def create_generator(self) -> WatermarkGenerator | None:
        """Return the generator of one split."""
        if self.generator is None:
            return None
        made = self.generator()
        return TimestampsRequired(made) if self.needs_timestamps and self.assigner is None else made


def _check_ms(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise OptionError(
            f"{name}={value!r} is no number of ms",
            have=f"{name} takes a whole number from 0 to 2**62 - 1",
            remedy=f"{name}=5000",
            details={"option": name, "value": value},
        )


def _seconds(name: str, raw: float | str) -> float:
    try:
        seconds = parse_duration(raw)
        if not 0 < seconds < float("inf"):
            raise ValueError("not above 0")
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"{name}={raw!r} is {error}",
            have=f"{name} takes seconds above 0",
            remedy=f'{name}=30 · {name}="30s"',
            details={"option": name, "value": raw},
        ) from None
    return seconds
