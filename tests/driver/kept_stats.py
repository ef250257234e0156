"""Statistics of a run that a test makes up, and a run that has them."""

from dataclasses import replace

from headgate.spark.progress.stats import ExchangeStats
from headgate.spark.progress.task_stats import TaskStats, stages
from headgate.spark.progress.verdict import kept_verdict

#: A producer and two consumers, one of which has most of the rows.
SKEWED = (
    TaskStats("map", 0, "done", rows=1500, bytes=15_000, input_ms=500, function_ms=2000),
    TaskStats("reduce", 0, "done", rows=1200, bytes=1200, input_ms=300, function_ms=9700),
    TaskStats("reduce", 1, "done", rows=100, bytes=100, input_ms=9700, function_ms=300),
)


def stats_of(*tasks, **about):
    """Return statistics with zeros but for what is given."""
    return ExchangeStats(
        **{
            "exchange_id": "78" * 16,
            "run": 1,
            "state": "running",
            "error": "",
            "seconds": 1.0,
            "producers": 0,
            "consumers": 0,
            "rows": 0,
            "bytes": 0,
            "pages": 0,
            "rows_received": 0,
            "peak_bytes": 0,
            "tasks": tasks,
            **about,
        }
    )


def skewed(**about):
    """Return the statistics of a run whose first reduce has most of the work."""
    about = {"seconds": 10.0, "rows": 1500, "bytes": 15_000, "rows_received": 1300, **about}
    counts = {"producers": 1, "consumers": 2, "consumers_total": 2}
    verdict = kept_verdict(SKEWED, about["seconds"])
    return stats_of(*SKEWED, **counts, stages=stages(SKEWED), verdict=verdict, **about)


class MadeUp:
    """A run to draw: its statistics are what the test sets, and as long as it has lasted."""

    def __init__(self, progress="auto", **about):
        self.made, self.progress, self.started = skewed(**about), progress, 100.0

    @property
    def key(self):
        return self.made.exchange_id, self.made.run

    def stats(self, now):
        return replace(self.made, seconds=now - self.started)
