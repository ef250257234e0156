"""Queries by key with batches of 1, 100 and 4,096 rows of input, beside engines that handle a row at a time.

We and Bytewax read the same files in batches of so many rows, in two processes. PyFlink reads them in its own way, in thread mode, with two
TaskManagers. Times of those that have fewer events are scaled: of batches of one row, and of the peers.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial

from benches import environments, harness
from benches.environments import PeerError
from benches.nexmark.bytewax_peer import Bytewax
from benches.nexmark.engines import FEW, Engine, check, ratios_line, scaled, surviving
from benches.nexmark.events import written
from benches.nexmark.ours import Headgate
from benches.nexmark.pyflink_peer import PyFlink

QUERIES = ("q17", "q18", "q11")
#: Rows in a batch, and the share of the events that our job gets.
SIZES = {1: 50, 100: 1, 4096: 1}
#: The share of the peers, to which all batches cost the same.
PEERS = 20
GOALS = {"nexmark_small_batches": 0.5, "nexmark_small_batches_bytewax": 3.0}


def run(options: Namespace) -> None:
    """Measure the queries; print and store seconds for all events, and the ratios."""
    events = options.events or (FEW * 4 if options.quick else 10_000_000)
    seconds = {}
    engines = {
        f"headgate {rows:,}": (Headgate(2, rows), share) for rows, share in SIZES.items()
    } | peers(options.peers)
    for query in options.queries or QUERIES:
        contestants: dict[str, Callable[[], float]] = {}
        failed: set[str] = set()
        few = written(environments.cache(), FEW)
        for name, (engine, share) in engines.items():
            if not options.unchecked:
                surviving(name, failed, partial(check, name, engine, query, few))
            work = scaled(engine, query, events, share)
            contestants[name] = partial(surviving, name, failed, work)
        times = harness.measure("nexmark_small_batches", contestants, turns=options.turns)
        seconds[query] = {name: of for name, of in times.items() if name not in failed}
        for name, of in seconds[query].items():
            median = statistics.median(of)
            print(f"  {query}: {name:<16}{median:>9.2f} s {events / median:>12,.0f} events/s")
    report(seconds, events, quick=options.quick)


def peers(names: Sequence[str] | None) -> dict[str, tuple[Engine, int]]:
    """Return the peers that can be had, with their share of the events."""
    engines: dict[str, tuple[Engine, int]] = {}
    for name in ("bytewax", "pyflink") if names is None else names:
        try:
            if name == "bytewax":
                engines |= {f"bytewax {rows:,}": (Bytewax("rows", rows), PEERS) for rows in SIZES}
            elif name == "pyflink":
                engines[name] = (PyFlink(), PEERS)
        except PeerError as error:
            print(f"{name} is not measured: {error}")
    return engines


def report(seconds: dict[str, dict[str, list[float]]], events: int, *, quick: bool) -> None:
    """Print who is faster at each size, and the least ratios; store them."""

    def over(query: str, theirs: str, ours: str) -> float:
        return harness.median_ratio(seconds[query][theirs], seconds[query][ours])

    ratios = {
        "nexmark_small_batches": min(
            over(query, "headgate 4,096", "headgate 100") for query in seconds
        )
    }
    for rows in SIZES:
        for peer in (f"bytewax {rows:,}", "pyflink"):
            if all(peer in times for times in seconds.values()):
                by_query = {query: over(query, peer, f"headgate {rows:,}") for query in seconds}
                print(f"  batches of {rows:,}: {peer} over headgate: {ratios_line(by_query)}")
                if peer == "bytewax 100":
                    ratios["nexmark_small_batches_bytewax"] = min(by_query.values())
    harness.report(
        "nexmark_small_batches", ratios, GOALS, quick=quick, events=events, seconds=seconds
    )
