"""q5 and q17 on ``local-cluster`` with two executors of one core, beside two worker processes without Spark."""

from __future__ import annotations

import statistics
from argparse import Namespace

from benches import harness
from benches.nexmark import events as streams
from benches.nexmark import ours, queries
from benches.nexmark.engines import FEW, check, checked_events, scaled
from benches.nexmark.ours import Headgate
from benches.spark import session
from pyspark import cloudpickle

MASTER = "local-cluster[2,1,2048]"
QUERIES = ("q5", "q17")
GOAL = 0.9


def run(options: Namespace) -> None:
    """Compare the times; print and store the least ratio."""
    count = options.events or (FEW * 4 if options.quick else 10_000_000)
    folder = checked_events(quick=options.quick)
    # Executors cannot import this folder.
    for module in (streams, ours, queries):
        cloudpickle.register_pickle_by_value(module)
    spark = session(MASTER)
    try:
        engines = {"processes": Headgate(2), "cluster": Headgate(2, spark=spark)}
        seconds = {}
        for query in options.queries or QUERIES:
            if not options.unchecked:
                check("local-cluster", engines["cluster"], query, folder)
            contestants = {name: scaled(engine, query, count) for name, engine in engines.items()}
            seconds[query] = harness.measure("nexmark_cluster", contestants, turns=options.turns)
            medians = ", ".join(
                f"{n} {statistics.median(t):.2f} s" for n, t in seconds[query].items()
            )
            print(f"  {query}: {medians}", flush=True)
    finally:
        spark.stop()
    ratio = min(
        harness.median_ratio(times["processes"], times["cluster"]) for times in seconds.values()
    )
    name = "nexmark_local_cluster"
    harness.report(name, {name: ratio}, {name: GOAL}, quick=options.quick, seconds=seconds)
