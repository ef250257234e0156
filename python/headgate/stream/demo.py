"""Sessions of clicks by a streaming job whose worker is killed, and which is cancelled and started again.

The clicks are computed from their numbers, so the demo can compute the same sessions at the end from all clicks at once,
and compare them row by row with those that the job has committed.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from headgate.sink import FileSink
from headgate.source import RateSource, WatermarkStrategy
from headgate.stream.api.datastream import stream
from headgate.stream.windows.aggregates import Aggregate
from headgate.stream.windows.kinds import SessionWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.observe.record import CheckpointStats
    from headgate.stream.api.job import StreamingJob
    from headgate.stream.job.query import StreamingQuery

#: Event time of the first click, in ms since 1970.
START: Final = 1_700_000_000_000
#: Milliseconds without a click after which a session is over.
GAP: Final = 100
#: Milliseconds by which clicks are out of order.
JITTER: Final = 50
CLICKS: Final = pa.schema(
    [("user", pa.int64()), ("at", pa.timestamp("ms", "UTC")), ("cents", pa.int64())]
)
#: Clicks that a group of users makes before the next group does.
_ROUND: Final = 2000
_SECONDS: Final = 120
_STEPS: Final = 8


# --- the computation -----------------------------------------------------------------------------


def clicks_of(ids: Any, times: Any) -> pa.RecordBatch:
    """Return the clicks of numbers: fifty users at a time make them, a little out of order.

    Args:
        ids: numpy array of numbers.
        times: numpy array of the times at which they came, in ms.
    """
    user = (ids // _ROUND * 37 + ids % 50) % 1000
    at = pa.array(times - ids * 7919 % JITTER).cast(CLICKS.field("at").type)
    return pa.record_batch([user, at, ids % 997], schema=CLICKS)


def clicks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the clicks of a batch of numbers and their times."""
    return clicks_of(batch["id"].to_numpy(), batch["time"].cast(pa.int64()).to_numpy())


def job(folder: str, rows: int, rate: int) -> StreamingJob:
    """Return the job that writes sessions below a folder.

    Args:
        folder: of the output.
        rows: number of clicks.
        rate: clicks per second.
    """
    source = RateSource(rate, rows=rows, start_time=START, splits=8)
    times = WatermarkStrategy.for_bounded_out_of_orderness(JITTER).with_timestamp_assigner("time")
    sessions = (
        stream(source, watermarks=times, name="numbers")
        .map(clicks, schema=CLICKS, name="clicks")
        .key_by("user")
        .window(
            SessionWindow(timedelta(milliseconds=GAP)),
            time="at",
            aggregates=[Aggregate("count", name="clicks"), Aggregate("sum", "cents", "cents")],
            name="sessions",
        )
    )
    return sessions.sink(FileSink(folder, mode="append"), name="files")


def batch_sessions(rows: int, rate: int) -> pa.Table:
    """Return the sessions of all clicks, computed at once; sorted by user and start.

    Args:
        rows: number of clicks, at least 1.
        rate: clicks per second.
    """
    ids = np.arange(rows)
    table = pa.Table.from_batches([clicks_of(ids, START + ids * 1000 // rate)])
    user, cents = table["user"].to_numpy(), table["cents"].to_numpy()
    at = table["at"].cast(pa.int64()).to_numpy()
    order = np.lexsort((at, user))
    user, at, cents = user[order], at[order], cents[order]
    # A click just a gap after the one before it still belongs to the session.
    first = np.flatnonzero(np.r_[True, (np.diff(user) != 0) | (np.diff(at) > GAP)])
    last = np.r_[first[1:], len(user)] - 1
    return pa.table(
        {
            "user": user[first],
            "window_start": at[first],
            "window_end": at[last] + GAP,
            "clicks": last - first + 1,
            "cents": np.add.reduceat(cents, first),
        }
    )


def committed(folder: str) -> pa.Table:
    """Return the sessions that are committed, with times in ms; sorted by user and start."""
    rows = ds.dataset(folder, format="parquet").to_table()
    for name in ("window_start", "window_end"):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, rows[name].cast(pa.int64()))
    return rows.sort_by([("user", "ascending"), ("window_start", "ascending")]).combine_chunks()


# --- the command ---------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if each session is committed once, and 1 if not."""
    parser = argparse.ArgumentParser(
        prog="python -m headgate demo stream",
        description="Run a streaming job, kill one of its workers, cancel it, start it again, and compare.",
    )
    parser.add_argument("--clicks", type=int, default=200_000, help="by default 200,000")
    parser.add_argument("--rate", type=int, default=20_000, help="per second, by default 20,000")
    options = parser.parse_args(arguments)
    if min(options.clicks, options.rate) < 1:
        parser.error("--clicks and --rate take numbers above 0")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("   log       %(message)s"))
    logger = logging.getLogger("headgate.stream")
    logger.addHandler(handler)
    was_propagated, logger.propagate = logger.propagate, False
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-demo-") as folder:
            show = _Show(str(Path(folder, "sessions")), options.clicks, options.rate)
            checkpoints = str(Path(folder, "checkpoints"))
            show.until_cancelled(checkpoints)
            show.until_end(checkpoints)
            return report(batch_sessions(options.clicks, options.rate), committed(show.folder))
    finally:
        logger.removeHandler(handler)
        logger.propagate = was_propagated


@dataclass(slots=True)
class _Show:
    """Runs the job and says what happens.

    Attributes:
        folder: of the output.
        rows: number of clicks.
        rate: clicks per second.
        started: when the demo began.
    """

    folder: str
    rows: int
    rate: int
    started: float = 0.0

    def until_cancelled(self, checkpoints: str) -> None:
        """Run the job with two workers, kill one of them, and cancel the job later."""
        self.started = time.monotonic()
        about = f"{self.rows:,} clicks of 1,000 users, {self.rate:,} a second, up to {JITTER} ms out of order"
        step(1, "source", about)
        with job(self.folder, self.rows, self.rate).start(
            name="clicks", parallelism=2, workers=2, checkpoint=checkpoints, interval="500ms"
        ) as query:
            done = _next_checkpoint(query, 2)
            pids = ", ".join(str(worker.pid) for worker in query.status.workers)
            self.say(2, "run", f"sessions by user in 2 worker processes ({pids}); {_of(done)}")
            victim = query.status.workers[-1]
            os.kill(victim.pid, signal.SIGKILL)
            self.say(3, "kill", f"SIGKILL to worker {victim.number}, process {victim.pid}")
            done = _next_checkpoint(query, 2, restarts=1)
            now = {worker.number: worker.pid for worker in query.status.workers}
            what = f"worker {victim.number} is process {now.get(victim.number)} now; all tasks started anew; {_of(done)}"
            self.say(4, "go on", what)
            query.cancel()
        self.say(5, "cancel", "the job is cancelled, all its processes have ended")

    def until_end(self, checkpoints: str) -> None:
        """Start the job again with another parallelism, and wait for its end."""
        with job(self.folder, self.rows, self.rate).start(
            name="clicks", parallelism=3, workers=2, checkpoint=checkpoints, interval="500ms"
        ) as query:
            done = _next_checkpoint(query, 1)
            what = f"the same folder of checkpoints, 3 tasks for each operator; {_of(done)}"
            self.say(6, "again", what)
            query.await_termination(_SECONDS)
            self.say(7, "end", f"the clicks have ended; the job is {query.state.value}")

    def say(self, number: int, name: str, what: str) -> None:
        """Print one line with the number of sessions that a reader sees at that moment."""
        rows = ds.dataset(self.folder, format="parquet").count_rows()
        step(number, name, what, time.monotonic() - self.started, f"{rows:,} sessions committed")


def _next_checkpoint(query: StreamingQuery, count: int, restarts: int = 0) -> CheckpointStats:
    """Wait until the job has restarted, and taken some checkpoints since; return the last one."""
    deadline = time.monotonic() + _SECONDS
    begun: int | None = None
    while time.monotonic() < deadline:
        status = query.status
        complete = [stats for stats in status.checkpoints if stats.status == "complete"]
        if status.restarts >= restarts:
            begun = begun if begun is not None else max((c.checkpoint for c in complete), default=0)
            later = [stats for stats in complete if stats.checkpoint > begun]
            if len(later) >= count or (complete and status.is_over):
                return complete[-1]
        query.await_termination(0.02)
    raise TimeoutError(f"the job took no checkpoint for {_SECONDS} s")


def _of(stats: CheckpointStats) -> str:
    return f"checkpoint {stats.checkpoint} took {stats.duration} ms"


# --- the output ----------------------------------------------------------------------------------


def step(number: int, name: str, what: str, seconds: float | None = None, note: str = "") -> None:
    """Print one numbered line."""
    took = "" if seconds is None else f"{seconds:6.1f} s"
    print(f" {number} {name:<9} {what:<92}{took:>8}   {note}".rstrip(), flush=True)


def report(expected: pa.Table, actual: pa.Table) -> int:
    """Compare the sessions, print the verdict, and return the exit code.

    Args:
        expected: by the batch computation.
        actual: committed by the job.
    """
    actual = actual.select(expected.column_names)
    if not actual.equals(expected):
        step(
            _STEPS,
            "check",
            f"NOT THE SAME: {len(actual):,} rows by the job, {len(expected):,} at once",
        )
        names = expected.column_names
        for name, table, other in (("job", actual, expected), ("batch", expected, actual)):
            only = table.join(other, names, join_type="left anti")
            for row in only.slice(0, 5).to_pylist():
                print(f"            only in {name}: " + "  ".join(f"{n}={row[n]}" for n in names))
        return 1
    what = f"{len(actual):,} rows, each once: those of a batch computation over all clicks"
    step(_STEPS, "check", what)
    print("""
 about     Rows after a checkpoint came again after the kill and after the cancel, and had no effect twice: state,
           positions of the source and committed files are all of the same checkpoint.
 next      python -m headgate docs streams""")
    return 0
