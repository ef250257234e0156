"""The runs of exchanges, as progress draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.spark.progress import latest
from headgate.spark.progress.stats import kept_snapshot

if TYPE_CHECKING:
    from headgate.spark.driver.kept.runs import KeptRun, KeptRuns
    from headgate.spark.progress.stats import ExchangeStats
    from headgate.spark.progress.surfaces import RunKey


@dataclass(frozen=True, slots=True)
class KeptDrawn:
    """A run of a kept exchange.

    Attributes:
        runs: those of its application.
        run: the run.
        progress: value of the option of this name.
        lists_tasks: True if tasks are drawn one by one.
    """

    runs: KeptRuns
    run: KeptRun
    progress: str
    lists_tasks: bool

    @property
    def key(self) -> RunKey:
        """The run, among all of this process."""
        return self.run.exchange, self.run.number

    @property
    def started(self) -> float:
        """When its first known task began, in seconds of the monotonic clock."""
        return self.run.started

    def stats(self, now: float) -> ExchangeStats:
        """Return its statistics at this time of the monotonic clock. Asks Spark."""
        stats = kept_snapshot(self.runs, self.run, now, lists_tasks=self.lists_tasks)
        return latest.seen(self.key, stats)
