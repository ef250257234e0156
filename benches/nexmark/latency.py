"""Latency of q5 and q11: from the time of an event to the result that it brings, at a rate, in two processes.

The event of a result is the one that closes its window: the first bid whose time is four seconds behind the end of the window, because
rows may be four seconds late. Its time is the one at which it is due by the schedule, ``start + n / rate`` for the event ``n``: a
source that lags behind counts. The result's time is that of the call of the sink's function. Both are read from the wall clock of
this machine. Event time runs faster than the wall clock: a second of it has 10,000 events. So the windows of q5 end every 33 ms at
600,000 events/s.

Watermarks come in the default interval, checkpoints every ten seconds. Results of the first quarter of the events do not
count, nor those that only the end of the events closes.
"""

from __future__ import annotations

import statistics
import tempfile
from argparse import Namespace
from pathlib import Path

import numpy as np
import pyarrow as pa
from benches import environments, harness
from benches.nexmark import oracle
from benches.nexmark.engines import CHECKED, FEW, net_seconds, patterns
from benches.nexmark.events import written
from benches.nexmark.ours import Headgate
from benches.nexmark.scheduled import Schedule, arrivals

QUERIES = ("q5", "q11")
#: Events/s of the goal, and the p99 that it allows, in seconds.
RATE, ALLOWED = 600_000, 0.1
#: Seconds from the start of a job to its first event.
START = 5


def run(options: Namespace) -> None:
    """Measure at the rate of the options, or at that of the goal and at half of the highest one; the first has the ratio."""
    events = options.events or (CHECKED if options.quick else 12_000_000)
    folder = written(environments.cache(), events)
    p99: dict[str, dict[str, list[float]]] = {}
    ratios = {}
    for query in options.queries or QUERIES:
        if options.latency or options.quick:
            rates = [options.latency or events / 2]
        else:
            rates = [RATE, highest(query, folder, events) / 2]
        for rate in rates:
            schedule = Schedule(folder, events, rate)
            turns = [latencies(query, schedule, options) for _ in range(options.turns)]
            low, high = ([float(np.percentile(t, q)) for t in turns] for q in (50, 99))
            p99.setdefault(query, {})[f"{rate:.0f}"] = high
            print(
                f"  {query} at {rate:,.0f} events/s: p50 {statistics.median(low) * 1000:.1f} ms, "
                f"p99 {statistics.median(high) * 1000:.1f} ms ({min(high) * 1000:.1f}-{max(high) * 1000:.1f}), "
                f"{len(turns[0]):,} results a turn",
                flush=True,
            )
        ratios[f"nexmark_p99_{query}"] = ALLOWED / statistics.median(p99[query][f"{rates[0]:.0f}"])
    goals = dict.fromkeys(ratios, 1.0)
    harness.report("nexmark_latency", ratios, goals, quick=options.quick, events=events, p99=p99)


def highest(query: str, folder: Path, events: int) -> float:
    """Return the events/s of a job that reads the same events as fast as it can."""
    return events / net_seconds(Headgate(2), query, folder, written(environments.cache(), FEW))


def latencies(query: str, schedule: Schedule, options: Namespace) -> np.ndarray:
    """Run a job; return the seconds of each result."""
    with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as name:
        folder = Path(name)
        schedule = schedule.from_now(START)
        job = schedule.job(query, folder)
        job.run(parallelism=2, workers=2, checkpoint=f"{folder}/checkpoints", interval="10s")
        rows = arrivals(folder)
    if not options.unchecked:
        oracle.check(query, rows, patterns(schedule.folder))
    return counted(rows, schedule)


def counted(rows: pa.Table, schedule: Schedule) -> np.ndarray:
    """Return the seconds of the results that count."""
    events = schedule.closing(rows["window_end"].combine_chunks())
    seconds = rows["arrived"].to_numpy() / 1e6 - schedule.due(events)
    return seconds[(events >= schedule.events // 4) & (events < schedule.events)]
