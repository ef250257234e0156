"""The coordinator's part of watermark alignment: it computes the limit of the readers."""

from __future__ import annotations

from collections.abc import Hashable, KeysView
from typing import Generic, TypeVar

from headgate.source.watermark.generator import MAX_WATERMARK, MIN_WATERMARK

K = TypeVar("K", bound=Hashable)


class WatermarkAggregator(Generic[K]):
    """The minimum of the latest watermarks, by reporter."""

    def __init__(self) -> None:
        self._watermarks: dict[K, int] = {}

    def report(self, key: K, watermark: int) -> None:
        """Take a watermark in ms; ignore ``MIN_WATERMARK``."""
        if watermark > MIN_WATERMARK:
            self._watermarks[key] = min(watermark, MAX_WATERMARK)

    def forget(self, key: K) -> None:
        """Remove a reporter, which must not hold the others back."""
        self._watermarks.pop(key, None)

    @property
    def keys(self) -> KeysView[K]:
        """The reporters."""
        return self._watermarks.keys()

    @property
    def minimum(self) -> int | None:
        """The minimum in ms; None before the first report."""
        return min(self._watermarks.values(), default=None)


class AlignmentGroups:
    """The alignment groups of a job: sources that name the same group wait for each other.

    Each source reports the minimum watermark of its readers.
    """

    def __init__(self) -> None:
        self._groups: dict[str, WatermarkAggregator[int]] = {}

    def report(self, group: str, source: object, watermark: int) -> None:
        """Take the watermark of a whole source, in ms."""
        self._groups.setdefault(group, WatermarkAggregator()).report(id(source), watermark)

    def forget(self, group: str, source: object) -> None:
        """Remove a source that has no readers any more."""
        if group in self._groups:
            self._groups[group].forget(id(source))

    def max_allowed(self, group: str, max_drift: int) -> int | None:
        """Return the highest watermark allowed in a group, in ms; None before the first report."""
        watermarks = self._groups.get(group)
        least = watermarks.minimum if watermarks else None
        return None if least is None else min(least + max_drift, MAX_WATERMARK)
