"""The newest run of this process, whose statistics ``last_stats()`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.spark.progress.stats import ExchangeStats

_latest: Callable[[], ExchangeStats] | None = None


def began(stats: Callable[[], ExchangeStats]) -> None:
    """Note that a run has begun, whose statistics this function returns."""
    global _latest  # noqa: PLW0603 - outlives every application
    _latest = stats


def last_stats() -> ExchangeStats | None:
    """Return the statistics of the newest run; None before the first one."""
    return None if _latest is None else _latest()
