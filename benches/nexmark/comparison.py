"""Queries against engines for streams: the time of each job without its start, in turns."""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from benches import harness
from benches.nexmark.engines import (
    FEW,
    PEERS,
    check,
    checked_events,
    opened,
    ratios_line,
    scaled,
    surviving,
)
from benches.nexmark.queries import QUERIES

#: A start takes a second, give or take a tenth: the ratio of a query that takes less than this would say nothing.
SHORTEST = 0.25
#: Engines that call Python for each row of a key, or each key of a micro-batch, get a share of the events, or a turn would take hours.
SHARES = {"bytewax": 10, "bytewax batches": 10, "spark stateful": 200}
#: Queries without state, of which a row at a time takes seconds: of a share of the events they would take less than starts differ by.
STATELESS = ("q0", "q1", "q2", "q13", "q14", "q21", "q22")
GOALS = {
    "nexmark_least": 1.5,
    "nexmark_median": 4.0,
    "nexmark_scale": 1.8,
    "nexmark_spark_sql": 5.0,
    "nexmark_bytewax": 10.0,
}
#: Queries whose work is by key, so that a second worker with a core of its own should halve their time.
KEYED = ("q4", "q5", "q9", "q11", "q16", "q17", "q18", "q19", "q20", "q23")


def run(options: Namespace) -> None:
    """Measure the queries and peers of the options; print and store the ratios."""
    events = options.events or (FEW * 20 if options.quick else 10_000_000)
    peers = PEERS if options.peers is None else options.peers
    with ExitStack() as stack:
        folder = checked_events(quick=options.quick)
        engines = opened(stack, ["headgate", *peers])
        seconds = {}
        for query in options.queries or QUERIES:
            able = {name: engine for name, engine in engines.items() if engine.can(query)}
            failed: set[str] = set()
            if not options.unchecked:
                for name, engine in able.items():
                    surviving(name, failed, partial(check, name, engine, query, folder))
            contestants: dict[str, Callable[[], float]] = {
                name: partial(
                    surviving, name, failed, scaled(engine, query, events, share(name, query))
                )
                for name, engine in able.items()
            }
            times = harness.measure("nexmark", contestants, turns=options.turns)
            seconds[query] = {name: of for name, of in times.items() if name not in failed}
            print(f"  {query}: {line_of(seconds[query], events)}", flush=True)
        report(seconds, events, quick=options.quick)


def share(name: str, query: str) -> int:
    """Return the number of which an engine gets one part of the events."""
    return 1 if query in STATELESS else SHARES.get(name, 1)


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
                ratio = harness.median_ratio(theirs, times["headgate"])
                ratios.setdefault(name, {})[query] = ratio
    for name, by_query in ratios.items():
        print(f"  {name} over headgate: {ratios_line(by_query)}")
    harness.show_ratios(lines_of(ratios), GOALS, quick=quick)
    if not quick:
        harness.amend("nexmark", results_of(seconds, events))


def results_of(
    seconds: dict[str, dict[str, list[float]]], events: int
) -> dict[str, dict[str, object]]:
    """Return what is stored of each query beside each peer, so that a run of some of them keeps what is known of the others."""
    return {
        f"{query} {peer}": {
            "events": events,
            "seconds": {"headgate": times["headgate"], peer: theirs},
        }
        for query, times in seconds.items()
        for peer, theirs in times.items()
        if peer != "headgate"
    }


def lines_of(ratios: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the figures that have goals, by their names."""
    lines = {}
    if by_query := ratios.get("flink"):
        lines["nexmark_least"] = min(by_query.values())
        lines["nexmark_median"] = statistics.median(by_query.values())
    scale = [ratio for query, ratio in ratios.get("one core", {}).items() if query in KEYED]
    if scale:
        lines["nexmark_scale"] = statistics.median(scale)
    if by_query := ratios.get("spark"):
        lines["nexmark_spark_sql"] = min(by_query.values())
    if by_row := ratios.get("bytewax"):
        # The faster of its two ways counts.
        batches = ratios.get("bytewax batches", {})
        lines["nexmark_bytewax"] = min(
            min(ratio, batches.get(query, ratio)) for query, ratio in by_row.items()
        )
    return lines
