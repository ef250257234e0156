"""The newest run of this process, whose statistics ``last_stats()`` returns; and its place in the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.observe.runs import RUNS
from headgate.spark.progress.plain import plain, shares

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.observe.runs import RunKey
    from headgate.spark.progress.stats import ExchangeStats

_latest: Callable[[], ExchangeStats] | None = None


def began(key: RunKey, stats: Callable[[], ExchangeStats]) -> None:
    """Note that a run has begun.

    Args:
        key: the run.
        stats: returns its statistics so far.
    """
    global _latest  # noqa: PLW0603 - outlives every application
    _latest = stats
    RUNS.began(key, lambda: plain(stats()))


def seen(key: RunKey, stats: ExchangeStats) -> ExchangeStats:
    """Add these statistics of a run to its history, and return them."""
    RUNS.saw(key, shares(stats))
    return stats


def ended(key: RunKey) -> None:
    """Have the record keep the final statistics of a run, and nothing else of it."""
    RUNS.look(key)


def last_stats() -> ExchangeStats | None:
    """Return the statistics of the newest run; None before the first one."""
    return None if _latest is None else _latest()
