"""Streaming jobs on Spark: the time from the kill of a worker or an executor to the next row in the sink.

A job with an exchange, two Python stages and a sink that is a Python function has 10,000 rows/s and two checkpoints a second, on
``local-cluster[2,2,1024]``. In each turn a worker process is killed, then the executor of one, then a worker is stopped,
with ``heartbeat_timeout`` of 3 s in place of 10 s. Each next loss waits for both executors and a complete checkpoint.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from benches import harness, stream_jobs
from benches.recovery import parent, wait_for_executors
from benches.spark import session
from benches.stream import against, complete
from benches.stream_jobs import COUNTED, Count, ScheduledSource, SlowSink, enrich
from pyspark import cloudpickle

from headgate.sink import FunctionSink
from headgate.stream import JobState, StreamingQuery, stream

MASTER = "local-cluster[2,2,1024]"
#: The time that the goal allows, in seconds.
ALLOWED = 5.0
#: Seconds within which rows must come again.
READY = 120


class Present:
    """A stage that leaves a file named by its process and its daemon, and passes batches on."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        Path(self.folder, f"{os.getpid()}-{os.getppid()}").touch()
        return batch


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    for module in (stream_jobs, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    spark = session(MASTER)
    times: dict[str, list[float]] = {"worker": [], "executor": [], "stopped": []}
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
            folder = Path(name)
            (folder / "present").mkdir()
            rows = stream(ScheduledSource(10_000, 10**9)).map(enrich, name="enrich").key_by("key")
            counted = rows.process(Count, schema=COUNTED, name="count")
            seen = counted.map(Present(str(folder / "present")), name="present")
            job = seen.sink(FunctionSink(SlowSink(0.0, str(folder / "last"))), name="out")
            with job.start(
                spark=spark,
                parallelism=2,
                checkpoint=str(folder / "checkpoints"),
                interval=0.5,
                heartbeat_timeout=3,
            ) as query:
                for _ in range(1 if options.quick else options.turns):
                    for kind, found in times.items():
                        wait_for_executors(spark)
                        found.append(lose(kind, query, folder))
    finally:
        spark.stop()
    print("\nstream losses on Spark: from the kill to the next row in the sink")
    for kind, found in times.items():
        print(f"  {kind:<10}{statistics.median(found):.2f} s   {min(found):.2f}-{max(found):.2f}")
        against(f"stream_losses_{kind}", f"{kind} lost", found, ALLOWED, quick=options.quick)


def lose(kind: str, query: StreamingQuery, folder: Path) -> float:
    """Return the seconds until a row has come after a loss."""
    end = time.monotonic() + READY
    last = folder / "last"
    before = len(complete(query))
    while len(complete(query)) <= before or query.state is not JobState.RUNNING:
        wait(query, end)
    newest = max((folder / "present").iterdir(), key=lambda path: path.stat().st_mtime)
    worker, daemon = map(int, newest.name.split("-"))
    attempt, lost = query.status.number, time.time()
    if kind == "executor":
        os.kill(parent(daemon), signal.SIGKILL)
    else:
        os.kill(worker, signal.SIGKILL if kind == "worker" else signal.SIGSTOP)
    # Rows that come before the new attempt are those of other workers.
    while query.status.number == attempt or query.state is not JobState.RUNNING:
        wait(query, end)
    started = time.time()
    while last.stat().st_mtime <= started:
        wait(query, end)
    return last.stat().st_mtime - lost


def wait(query: StreamingQuery, end: float) -> None:
    query.await_termination(0.01)
    if time.monotonic() > end:
        raise TimeoutError(f"no row for {READY} s; the job is {query.state.value}")
