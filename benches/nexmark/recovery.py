"""Recovery of q5: from the kill of one of two worker processes by SIGKILL to the next new result.

Bids come at 100,000 events/s for 30 s, checkpoints each second. A result is new if the event that closes its window is due after the
kill (see ``latency.py``): results that come again, and those of windows that were over, do not count. So the time has the detection, the new
process, the restore, and the rows since the last checkpoint. In the end DuckDB has the same rows, apart from those that came twice.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from argparse import Namespace
from pathlib import Path

from benches import environments, harness
from benches.nexmark import oracle
from benches.nexmark.engines import CHECKED, patterns
from benches.nexmark.events import written
from benches.nexmark.latency import START
from benches.nexmark.scheduled import Schedule, arrivals
from benches.stream import complete

QUERY = "q5"
EVENTS, SECONDS = 3_000_000, 30
#: The goal, in seconds.
ALLOWED = 5.0


def run(options: Namespace) -> None:
    """Kill a worker in each turn; print and store the seconds."""
    events = options.events or (CHECKED if options.quick else EVENTS)
    seconds_of_events = SECONDS / 3 if options.quick else SECONDS
    folder = written(environments.cache(), events)
    schedule = Schedule(folder, events, rate=events / seconds_of_events)
    seconds = [recovery(schedule, options) for _ in range(options.turns)]
    print(
        f"  {QUERY}: {statistics.median(seconds):.2f} s from the kill to the next new result "
        f"({min(seconds):.2f}-{max(seconds):.2f})",
        flush=True,
    )
    ratios = {"nexmark_recovery": ALLOWED / statistics.median(seconds)}
    goals = dict.fromkeys(ratios, 1.0)
    harness.report("nexmark_recovery", ratios, goals, quick=options.quick, seconds=seconds)


def recovery(schedule: Schedule, options: Namespace) -> float:
    """Run a job whose worker is killed in the middle; return the seconds."""
    with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as name:
        folder = Path(name)
        schedule = schedule.from_now(START)
        job = schedule.job(QUERY, folder)
        with job.start(
            parallelism=2, workers=2, checkpoint=f"{folder}/checkpoints", interval="1s"
        ) as query:
            query.await_termination(START + schedule.events / schedule.rate / 3)
            while not complete(query):
                query.await_termination(0.05)
            worker = query.status.workers[1]
            killed = time.time()
            os.kill(worker.pid, signal.SIGKILL)
            query.await_termination()
            assert query.status.restarts == 1, query.status
        rows = arrivals(folder)
    arrived = rows["arrived"].to_numpy() / 1e6
    is_new = schedule.due(schedule.closing(rows["window_end"].combine_chunks())) > killed
    if not options.unchecked:
        distinct = rows.drop_columns("arrived")
        oracle.check(
            QUERY, distinct.group_by(distinct.column_names).aggregate([]), patterns(schedule.folder)
        )
    return float((arrived[is_new & (arrived > killed)] - killed).min())
