"""The coordinator's part of watermark alignment: how far ahead a reader may be."""

from __future__ import annotations

from collections.abc import Hashable, KeysView
from typing import Generic, TypeVar

from headgate.source.watermark.generator import MAX_WATERMARK, MIN_WATERMARK

K = TypeVar("K", bound=Hashable)


class WatermarkAggregator(Generic[K]):
    """The least of the watermarks last reported, by whoever reports them."""

    def __init__(self) -> None:
        self._watermarks: dict[K, int] = {}

    def report(self, key: K, watermark: int) -> None:
        """Take a watermark in ms; the least one says nothing and is left out."""
        if watermark > MIN_WATERMARK:
            self._watermarks[key] = min(watermark, MAX_WATERMARK)

    def forget(self, key: K) -> None:
        """Leave out one that is gone: it must hold nobody back."""
        self._watermarks.pop(key, None)

    @property
    def keys(self) -> KeysView[K]:
        """Who has reported."""
        return self._watermarks.keys()

    @property
    def minimum(self) -> int | None:
        """The least watermark in ms; None before any report."""
        return min(self._watermarks.values(), default=None)


class AlignmentGroups:
    """The alignment groups of a job: sources that name the same group wait for one another.

    Each source reports the least watermark of its readers.
    """

    def __init__(self) -> None:
        self._groups: dict[str, WatermarkAggregator[int]] = {}

    def report(self, group: str, source: object, watermark: int) -> None:
        """Take the watermark of a whole source, in ms."""
        self._groups.setdefault(group, WatermarkAggregator()).report(id(source), watermark)

    def forget(self, group: str, source: object) -> None:
        """Leave out a source whose readers are all gone."""
        if group in self._groups:
            self._groups[group].forget(id(source))

    def max_allowed(self, group: str, max_drift: int) -> int | None:
        """Return the watermark in ms that no reader of a group may pass; None if nobody knows."""
        known = self._groups.get(group)
        least = known.minimum if known else None
        return None if least is None else min(least + max_drift, MAX_WATERMARK)
