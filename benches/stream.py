"""Streaming jobs: latency, barriers, checkpoints and restarts, and throughput against PyFlink.

The job is a source, a Python stage, an exchange by key, a second Python stage with a count per key, and a sink that is a
Python function, in two worker processes. Rows have about 100 bytes.

- Latency is the time from the moment at which a row was due to the call of the sink's function, at 10,000, 100,000 and
  200,000 rows/s, without the first quarter of the rows.
- Throughput is that of batches of 4,096 rows, from the first row in the sink to the last one. PyFlink does the same in its
  process mode and in its thread mode, on a cluster of its own; see benches/pyflink.py.
- The time of a barrier is that from the trigger of a checkpoint until the last task has its barriers, 20 times a second: while
  10,000 rows/s come, and while the sink is slower than the source, so that all memory is full. "chained" has one more
  exchange and a third Python stage.
- A restart is the time from the kill of a worker process to the next row in the sink.
- The state is a million keys with a string of 1,000 bytes each, on a disk; "1 %" is the next snapshot after one key in a
  hundred has changed.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
from benches import environments, harness, pyflink
from benches.stream_jobs import (
    COUNTED,
    KEYS,
    Count,
    CountAgain,
    FirstAndLast,
    Latencies,
    ScheduledSource,
    SlowSink,
    enrich,
)

from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import (
    KeyedStateBackend,
    SnapshotFolder,
    StreamingJob,
    StreamingQuery,
    ValueStateDescriptor,
    stream,
)

RATES = (10_000, 100_000, 200_000)
#: The latency that the goal allows, in seconds.
ALLOWED = 0.050
BATCH_ROWS = 4096
#: Numbers of PyFlink's subtasks per operator: it has two cores too.
SUBTASKS = (1, 2)
#: Records of PyFlink per subtask before its clock starts: one bundle of its process mode.
WARM = 100_000
STATE_KEYS = 1_000_000
STATE_BYTES = 1000


def main(arguments: Sequence[str]) -> None:
    parts = {part.__name__: part for part in (latency, barriers, restart, state, throughput)}
    parser = harness.arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts), metavar="PART")
    options = parser.parse_args(arguments)
    for name in options.parts:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
            parts[name](Path(folder), options.turns, quick=options.quick)


def job(
    source: object, sink: Callable[[pa.RecordBatch], object], *, chained: bool = False
) -> StreamingJob:
    """Return the job of all these benches."""
    rows = stream(source).map(enrich, name="enrich").key_by("key")  # type: ignore[arg-type]
    counted = rows.process(Count, schema=COUNTED, name="count")
    if chained:
        counted = counted.key_by("key").process(CountAgain, schema=COUNTED, name="again")
    return counted.sink(FunctionSink(sink), name="out")


def latency(folder: Path, turns: int, *, quick: bool) -> None:
    """Print the latencies at each rate; p99 at 100,000 rows/s has a goal."""
    seconds = 2 if quick else 8
    p99: dict[int, list[float]] = {rate: [] for rate in RATES}
    p50: dict[int, list[float]] = {rate: [] for rate in RATES}
    for _ in range(turns):
        for rate in RATES:
            rows, file = rate * seconds, folder / "latencies.npy"
            source = ScheduledSource(rate, rows)
            job(source, Latencies(str(file), rows, rows // 4)).run(workers=2, parallelism=1)
            found = np.load(file) / 1000
            p50[rate].append(float(np.percentile(found, 50)))
            p99[rate].append(float(np.percentile(found, 99)))
    print("\nstream latency: from when a row is due to the sink, one exchange, two Python stages")
    for rate in RATES:
        low, high = statistics.median(p50[rate]), statistics.median(p99[rate])
        spread = f"{min(p99[rate]) * 1000:.1f}-{max(p99[rate]) * 1000:.1f}"
        print(
            f"  {rate:>7,} rows/s   p50 {low * 1000:.1f} ms   p99 {high * 1000:.1f} ms ({spread})"
        )
    against("stream_latency", "p99 at 100,000 rows/s", p99[100_000], ALLOWED, quick=quick)


def throughput(folder: Path, turns: int, *, quick: bool) -> None:
    """Compare rows/s with PyFlink's: each mode with its fastest settings, and with one or two subtasks, of which the faster
    counts.
    """
    rows = 200_000 if quick else 4_000_000
    theirs = {
        "process": (2 if quick else 3) * WARM,
        "thread": (2 if quick else 5) * WARM,
    }  # for each subtask
    contestants: dict[str, Callable[[], float]] = {"headgate": partial(run_all, folder, rows)}
    try:
        pyflink.environment()
    except environments.PeerError as error:
        print(f"no comparison with PyFlink: {error}")
        theirs = {}
    for (mode, records), subtasks in product(theirs.items(), SUBTASKS):
        measure = partial(pyflink_seconds, mode, records * subtasks, rows, subtasks)
        contestants[named(mode, subtasks)] = measure
    goals = {"process": 5.0, "thread": 1.5}
    harness.compare(
        "stream_throughput",
        f"seconds for {rows:,} rows of 100 bytes in batches of {BATCH_ROWS:,}; PyFlink's for fewer rows, scaled",
        contestants,
        [
            harness.Ratio(
                f"stream_throughput_{mode}",
                tuple(named(mode, subtasks) for subtasks in SUBTASKS),
                "headgate",
                goals[mode],
            )
            for mode in theirs
        ],
        turns=turns,
        size=rows * 100,
        quick=quick,
    )


def named(mode: str, subtasks: int) -> str:
    return f"pyflink {mode}, parallelism {subtasks}"


def pyflink_seconds(mode: str, records: int, rows: int, subtasks: int) -> float:
    """Return the seconds that PyFlink would take for some rows at the rate that it has."""
    found = pyflink.measure(
        mode,
        records,
        parallelism=subtasks,
        keys=KEYS,
        settings="throughput",
        warm_records=WARM * subtasks,
    )
    return rows / float(found["records_per_second"])


def run_all(folder: Path, rows: int) -> float:
    """Return the seconds from the first row in the sink to the last one."""
    file = folder / "seconds.npy"
    source = NumberSequenceSource(0, rows, batch_size=BATCH_ROWS)
    job(source, FirstAndLast(str(file), rows)).run(workers=2, parallelism=1)
    return float(np.load(file)[0])


def barriers(folder: Path, turns: int, *, quick: bool) -> None:
    """Print how long barriers take, idle and under back-pressure, aligned and unaligned."""
    seconds = 2.0 if quick else 8.0
    idle: list[float] = []
    full: dict[str, list[float]] = {"aligned": [], "unaligned": [], "unaligned, chained": []}
    for turn in range(turns):
        calm = job(ScheduledSource(10_000, 10**9), SlowSink(0.0))
        idle.append(barrier_p99(calm, folder / f"idle-{turn}", seconds, "aligned"))
        for name, found in full.items():
            source = NumberSequenceSource(0, 10**10, batch_size=BATCH_ROWS)
            alignment = name.partition(",")[0]
            busy = job(source, SlowSink(0.05), chained="chained" in name)
            found.append(barrier_p99(busy, folder / f"{name}-{turn}", seconds, alignment))
    print("\nstream barriers: p99 from the trigger until the last task has its barriers")
    for name, times in {"idle": idle, **full}.items():
        low, high = min(times) * 1000, max(times) * 1000
        print(f"  {name:<20}{statistics.median(times) * 1000:>9.1f} ms   {low:.1f}-{high:.1f}")
    against("stream_barrier_idle", "p99, 10,000 rows/s", idle, 0.010, quick=quick)
    against("stream_barrier_full", "p99, unaligned", full["unaligned"], 0.100, quick=quick)
    chained = full["unaligned, chained"]
    against("stream_barrier_chained", "p99, unaligned, chained", chained, 0.100, quick=quick)
    ratio = [a / u for a, u in zip(full["aligned"], full["unaligned"], strict=True)]
    name = "TRIED" if quick else "RATIO"
    print(f"{name} stream_barrier_aligned {statistics.median(ratio):.2f} goal -", flush=True)


def barrier_p99(work: StreamingJob, folder: Path, seconds: float, alignment: str) -> float:
    """Return the p99 of the barriers of a job that runs for some seconds."""
    query = work.start(
        workers=2,
        parallelism=1,
        checkpoint=str(folder),
        interval=0.05,
        alignment=alignment,  # type: ignore[arg-type]
    )
    with query:
        started = time.monotonic()
        query.await_termination(seconds)
        while not complete(query):
            if time.monotonic() - started > 60:
                raise TimeoutError(f"no checkpoint is complete after 60 s: {query.status}")
            query.await_termination(0.2)
        found = [one.barrier for one in complete(query)[1:] or complete(query)]
    # Milliseconds, rounded down.
    return (float(np.percentile(found, 99)) + 1) / 1000


def complete(query: StreamingQuery) -> list[object]:
    """Return the complete checkpoints."""
    return [one for one in query.status.checkpoints if one.status == "complete"]


def restart(folder: Path, turns: int, *, quick: bool) -> None:
    """Print the time from the kill of a worker to the next row in the sink."""
    times = []
    for turn in range(turns):
        last = folder / f"last-{turn}"
        work = job(ScheduledSource(10_000, 10**9), SlowSink(0.0, str(last)))
        with work.start(
            workers=2, parallelism=1, checkpoint=str(folder / f"restart-{turn}"), interval=0.1
        ) as query:
            while not complete(query):
                query.await_termination(0.05)
            process = query._master._pool.processes[1]  # type: ignore[attr-defined]
            killed = time.time()
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            while last.stat().st_mtime <= killed + 0.001:
                query.await_termination(0.01)
            times.append(last.stat().st_mtime - killed)
    found = f"{min(times):.2f}-{max(times):.2f}"
    print("\nstream restart: from the kill of a worker process to the next row in the sink")
    print(f"  {statistics.median(times):.2f} s   {found}")
    against("stream_restart", "kill to first row", times, 5.0, quick=quick)


def state(folder: Path, turns: int, *, quick: bool) -> None:
    """Compare a full checkpoint of 1 GB with an incremental one."""
    kept = BigState(folder / "state", STATE_KEYS // (100 if quick else 1))
    harness.compare(
        "stream_state",
        f"a snapshot of {kept.keys:,} keys with {STATE_BYTES:,} bytes each on disk, all and 1 % of them",
        {"all": kept.full, "1 % changed": kept.incremental},
        [harness.Ratio("stream_incremental", "all", "1 % changed", 20.0)],
        turns=turns,
        size=kept.keys * STATE_BYTES,
        quick=quick,
    )


class BigState:
    """Strings by key."""

    def __init__(self, folder: Path, keys: int) -> None:
        self.keys = keys
        self.folder = SnapshotFolder(str(folder))
        self.backend = KeyedStateBackend(pa.schema([("key", pa.int64())]))
        self.values = self.backend.get_state(ValueStateDescriptor("value", pa.string()))
        self.number = 0
        #: Number of the last savepoint, on which no later snapshot builds; 0 before the first one.
        self.saved = 0
        for start in range(0, keys, 50_000):
            self.put(np.arange(start, min(start + 50_000, keys)), "a")
        self.write()

    def put(self, keys: np.ndarray, letter: str) -> None:
        self.backend.set_keys([pa.array(keys)])
        self.values.put(pa.repeat(pa.scalar(letter * STATE_BYTES), len(keys)))

    def write(self, *, savepoint: bool = False) -> float:
        self.number += 1
        # Earlier writes reach the disk first: a kernel with much to write stops the next writer.
        os.sync()
        started = time.perf_counter()
        self.backend.snapshot(self.number, savepoint=savepoint).write(self.folder)
        seconds = time.perf_counter() - started
        if not savepoint:
            self.backend.complete(self.number)
        return seconds

    def full(self) -> float:
        for name in self.folder.names():
            if name.startswith(f"{self.saved:010d}-"):
                self.folder.delete(name)
        seconds = self.write(savepoint=True)
        self.saved = self.number
        return seconds

    def incremental(self) -> float:
        self.put(np.arange(0, self.keys, 100), "b")
        return self.write()


def against(name: str, what: str, seconds: Sequence[float], allowed: float, *, quick: bool) -> None:
    """Print and store the ratio of an allowed time to measured ones; its goal is 1."""
    ratio = allowed / statistics.median(seconds)
    print(f"  {what}: {statistics.median(seconds) * 1000:.1f} ms of {allowed * 1000:.0f} ms")
    print(f"{'TRIED' if quick else 'RATIO'} {name} {ratio:.2f} goal 1", flush=True)
    if not quick:
        found = {"name": name, "goal": 1.0, "median": ratio}
        harness.store(name, what=what, bytes=0, seconds={what: list(seconds)}, ratios=[found])
