"""Engines by name, the comparison of their answers, and their times without their starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from benches import environments
from benches.environments import PeerError
from benches.flink_cluster import FlinkError
from benches.nexmark import flink, oracle, spark
from benches.nexmark.bytewax_peer import Bytewax
from benches.nexmark.events import KINDS, written
from benches.nexmark.oracle import WrongAnswerError
from benches.nexmark.ours import Headgate, OneCore

#: Events of the jobs whose time is taken for that of a start, and of the answers that are compared.
FEW, CHECKED = 5000, 200_000
#: Programs that run while they are measured; each has several ways to answer.
PROGRAMS = {"flink": flink.flink, "spark": spark.spark}
WAYS = {
    "flink": ("flink", "sql"),
    "flink streams": ("flink", "streams"),
    "spark": ("spark", "sql"),
    "spark stateful": ("spark", "stateful"),
}
WITHOUT_START: dict[str, Callable[[], Engine]] = {
    "headgate": lambda: Headgate(2),
    "one worker": lambda: Headgate(1, parallelism=1),
    "one core": OneCore,
    "bytewax": lambda: Bytewax("rows"),
    "bytewax batches": lambda: Bytewax("batches"),
}
PEERS = ("one worker", "one core", *WAYS, "bytewax", "bytewax batches")


class Engine(Protocol):
    """An engine that answers queries."""

    def can(self, query: str) -> bool:
        """Return True for a query that it has."""

    def finishes(self, query: str) -> bool:
        """Return False for a query whose last rows never come."""

    def seconds(self, query: str, events: Path) -> float:
        """Run a query whose result goes nowhere; return the seconds from its start to its end."""

    def rows(self, query: str, events: Path) -> pa.Table:
        """Return the rows of a query's result."""


def opened(stack: ExitStack, names: Iterable[str]) -> dict[str, Engine]:
    """Return engines by name, which run until the stack closes; say which ones cannot be had."""
    engines: dict[str, Engine] = {}
    running: dict[str, Callable[[str], Engine]] = {}
    for name in names:
        try:
            if name in WAYS:
                program, way = WAYS[name]
                if program not in running:
                    running[program] = stack.enter_context(PROGRAMS[program]())
                engines[name] = running[program](way)
            else:
                engines[name] = WITHOUT_START[name]()
        except (PeerError, FlinkError) as error:
            print(f"{name} is not measured: {error}")
    return engines


def check(name: str, engine: Engine, query: str, events: Path) -> None:
    """Compare the rows of an engine with DuckDB's; without those that never come, which sums need.

    Raises:
        WrongAnswerError: they differ.
    """
    is_whole = engine.finishes(query)
    if is_whole or query not in oracle.SUMS:
        answer = engine.rows(query, events)
        rows = oracle.check(query, answer, patterns(events), is_whole=is_whole)
        of = "the" if is_whole else "no others than"
        print(f"  {query}: {name} has {of} {rows:,} rows of DuckDB", flush=True)


def patterns(events: Path) -> dict[str, str]:
    """Return the files of the events, for DuckDB."""
    return {kind: f"{events}/ordered/{kind}/*.parquet" for kind in KINDS}


def net_seconds(engine: Engine, query: str, whole: Path, few: Path) -> float:
    """Return the seconds of a query without those of its start."""
    start = engine.seconds(query, few)
    # A start that took longer than the whole job would give a time below 0.
    return max(engine.seconds(query, whole) - start, 0.001)


def checked_events(*, quick: bool) -> Path:
    """Return the folder of the events by which answers are compared."""
    return written(environments.cache(), FEW if quick else CHECKED)


def ratios_line(by_query: Mapping[str, float]) -> str:
    """Return the ratios of queries as one line."""
    return "  ".join(f"{query} {ratio:.2f}" for query, ratio in by_query.items())


def scaled(engine: Engine, query: str, events: int, share: int = 1) -> Callable[[], float]:
    """Return a function that runs a query, and returns its seconds for all events from those of a share of them."""
    # As many events as two starts, or no time would be left.
    count = max(events // share, min(events, 2 * FEW))
    whole, few = (written(environments.cache(), number) for number in (count, FEW))
    return lambda: net_seconds(engine, query, whole, few) * events / count


def surviving(name: str, failed: set[str], work: Callable[[], float | None]) -> float:
    """Work, unless the peer has failed before; name it, and return NaN, if it fails or its answer is wrong."""
    if name not in failed:
        try:
            return work() or 0.0
        except (PeerError, FlinkError, WrongAnswerError) as error:
            if name.startswith("headgate"):
                raise
            print(f"  {name} is not measured: {error}", flush=True)
            failed.add(name)
    return math.nan
