"""The queries of Nexmark against engines for streams, over the same events, which are Parquet files.

Each engine has two tasks of each operator: Headgate in two worker processes, Flink SQL in a Java runtime of its own, Spark's
SQL on ``local[2]`` in micro-batches of a million events, Bytewax in two processes, a row at a time, and with rows that are grouped by batch before. Checkpoints
come every ten seconds, Spark's with each micro-batch; results go nowhere. The time of a query is that of its job without its start: less that of the
same job over a few events. The first turn is not counted, so that each runtime has compiled its code.

Before, each engine answers every query over fewer events, and DuckDB says whether the answer is right.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from benches import environments, harness
from benches.environments import PeerError
from benches.flink_cluster import FlinkError
from benches.nexmark import flink, oracle, spark
from benches.nexmark.bytewax_peer import Bytewax
from benches.nexmark.events import KINDS, of_files, written
from benches.nexmark.queries import FOLDERS, KEYS, QUERIES

from headgate._changes import last_changes
from headgate.sink import FileSink, FunctionSink

EVENTS = 10_000_000
#: Events of the answers that are compared, and of the jobs whose time is taken for that of a start.
CHECKED, FEW = 200_000, 5000
#: A start takes a second, give or take a tenth: the ratio of a query that takes less than this would say nothing.
SHORTEST = 0.25
PEERS = ("one worker", "flink", "spark", "bytewax", "bytewax batches")
GOALS = {
    "nexmark_least": 1.5,
    "nexmark_median": 4.0,
    "nexmark_scale": 1.8,
    "nexmark_spark_sql": 5.0,
    "nexmark_bytewax": 10.0,
}
#: Queries whose work is by key, so that a second worker should halve their time.
KEYED = ("q4", "q5", "q9", "q11", "q16", "q17", "q18", "q19", "q20", "q23")


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--events", type=int, help=f"by default {EVENTS:,}")
    parser.add_argument("--queries", default=",".join(QUERIES), help="such as q5,q7")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"some of {','.join(PEERS)}")
    parser.add_argument("--unchecked", action="store_true", help="compare no answers")
    options = parser.parse_args(arguments)
    events = options.events or (FEW * 20 if options.quick else EVENTS)
    queries = options.queries.split(",")
    with ExitStack() as stack:
        folder = environments.cache()
        whole, few, some = (written(folder, number) for number in (events, FEW, CHECKED))
        engines: dict[str, Engine] = {"headgate": Headgate(2)}
        programs = {"flink": flink.flink, "spark": spark.spark}
        for name in filter(None, options.peers.split(",")):
            try:
                if name in programs:
                    engines[name] = stack.enter_context(programs[name]())
                elif name.startswith("bytewax"):
                    engines[name] = Bytewax("batches" if name.endswith("batches") else "rows")
                else:
                    engines[name] = Headgate(1)
            except (PeerError, FlinkError) as error:
                print(f"{name} is not measured: {error}")
        seconds = {}
        for query in queries:
            able = {name: engine for name, engine in engines.items() if engine.can(query)}
            if not options.unchecked:
                for name, engine in able.items():
                    if not engine.finishes(query):
                        continue
                    rows = oracle.check(query, engine.rows(query, some), patterns(some))
                    print(f"  {query}: {name} has the {rows:,} rows of DuckDB", flush=True)
            contestants: dict[str, Callable[[], float]] = {
                name: partial(net_seconds, engine, query, whole, few)
                for name, engine in able.items()
            }
            seconds[query] = harness.measure("nexmark", contestants, turns=options.turns)
            print(f"  {query}: {line_of(seconds[query], events)}", flush=True)
        report(seconds, events, quick=options.quick)


class Engine:
    """An engine that answers queries."""

    def can(self, query: str) -> bool:
        """Return True for a query that it has."""
        raise NotImplementedError

    def finishes(self, query: str) -> bool:
        """Return False for a query whose last rows never come, so that the answer is not compared."""
        return True

    def seconds(self, query: str, events: Path) -> float:
        """Run a query whose result goes nowhere; return the seconds from its start to its end."""
        raise NotImplementedError

    def rows(self, query: str, events: Path) -> pa.Table:
        """Return the rows of a query's result."""
        raise NotImplementedError


class Headgate(Engine):
    """Our jobs, of two tasks for each operator.

    Args:
        workers: number of processes.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def can(self, query: str) -> bool:
        return query in QUERIES

    def seconds(self, query: str, events: Path) -> float:
        with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
            result = QUERIES[query](of_files(events))
            sink = FunctionSink(nothing)
            if query in FOLDERS:
                sink = FileSink(f"{folder}/result", partition_by=FOLDERS[query])
            started = time.perf_counter()
            result.sink(sink).run(
                parallelism=2,
                workers=self._workers,
                checkpoint=f"{folder}/checkpoints",
                interval="10s",
            )
            return time.perf_counter() - started

    def rows(self, query: str, events: Path) -> pa.Table:
        with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
            sink = FileSink(f"{folder}/result", partition_by=FOLDERS.get(query, ()))
            QUERIES[query](of_files(events)).sink(sink).run(parallelism=2, workers=self._workers)
            names = pa.schema([(name, pa.string()) for name in FOLDERS.get(query, ())])
            folders = ds.partitioning(names, flavor="hive") if query in FOLDERS else None
            rows = ds.dataset(f"{folder}/result", partitioning=folders).to_table()
        return last_changes(rows, KEYS[query])[0] if query in KEYS else rows


def nothing(batch: pa.RecordBatch) -> None:
    """Take rows."""


def patterns(events: Path) -> dict[str, str]:
    """Return the files of the events, for DuckDB."""
    return {kind: f"{events}/ordered/{kind}/*.parquet" for kind in KINDS}


def net_seconds(engine: Engine, query: str, whole: Path, few: Path) -> float:
    """Return the seconds of a query without those of its start."""
    start = engine.seconds(query, few)
    # A start that took longer than the whole job would give a time below 0.
    return max(engine.seconds(query, whole) - start, 0.001)


def line_of(seconds: dict[str, list[float]], events: int) -> str:
    """Return the medians of a query as a line."""
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return "   ".join(
        f"{name} {median:.2f} s ({events / median / 1e6:.2f} M events/s)"
        for name, median in medians.items()
    )


def report(seconds: dict[str, dict[str, list[float]]], events: int, *, quick: bool) -> None:
    """Print the ratios of all queries, and the lines of the goals; store them."""
    print("machine: " + ", ".join(f"{key} {value}" for key, value in harness.machine().items()))
    ratios: dict[str, dict[str, float]] = {}
    for query, times in seconds.items():
        if statistics.median(times["headgate"]) < SHORTEST and not quick:
            print(
                f"  {query} takes less than {SHORTEST} s beside its start: no ratio; try more --events"
            )
            continue
        for name, theirs in times.items():
            if name != "headgate":
                pairs = zip(theirs, times["headgate"], strict=True)
                ratio = statistics.median(other / ours for other, ours in pairs)
                ratios.setdefault(name, {})[query] = ratio
    for name, by_query in ratios.items():
        words = "  ".join(f"{query} {ratio:.2f}" for query, ratio in by_query.items())
        print(f"  {name} over headgate: {words}")
    lines = lines_of(ratios)
    for name, ratio in lines:
        word = "TRIED" if quick else "RATIO"
        print(f"{word} {name} {ratio:.2f} goal {GOALS[name]:g}", flush=True)
    if not quick:
        harness.store("nexmark", events=events, seconds=seconds, ratios=dict(lines))


def lines_of(ratios: dict[str, dict[str, float]]) -> list[tuple[str, float]]:
    """Return the figures that have goals, by their names."""
    lines = []
    if by_query := ratios.get("flink"):
        lines += [("nexmark_least", min(by_query.values()))]
        lines += [("nexmark_median", statistics.median(by_query.values()))]
    scale = [ratio for query, ratio in ratios.get("one worker", {}).items() if query in KEYED]
    if scale:
        lines += [("nexmark_scale", statistics.median(scale))]
    if by_query := ratios.get("spark"):
        lines += [("nexmark_spark_sql", min(by_query.values()))]
    if by_row := ratios.get("bytewax"):
        # The faster of its two ways counts.
        batches = ratios.get("bytewax batches", {})
        least = min(min(ratio, batches.get(query, ratio)) for query, ratio in by_row.items())
        lines += [("nexmark_bytewax", least)]
    return lines
