"""Nexmark: queries over the same events, which are Parquet files, part by part.

- ``comparison``: the queries against engines for streams. Each has two tasks of each operator: Headgate in two worker
  processes, Flink SQL in a Java runtime of its own, Spark's SQL on ``local[2]`` in micro-batches of a million events, Bytewax in
  two processes, a row at a time, and with rows that are grouped by batch before. Checkpoints come every ten seconds, Spark's
  with each micro-batch; results go nowhere. The time of a query is that of its job without its start: less that of the same job
  over a few events. The first turn is not counted, so that each runtime has compiled its code.
- ``small_batches``: batches of 1, 100 and 4,096 rows of input, beside Bytewax and PyFlink.
- ``latency``: from an event's time to its result, at a rate.
- ``recovery``: from the kill of a worker to the next new result.
- ``memory``: peak resident memory of all processes of a run.
- ``checkpoints``: a count by two million keys with a checkpoint each second, and without.
- ``cluster``: on Spark's ``local-cluster``, beside processes without Spark.
- ``kafka``: from a topic to another one, exactly once, beside Flink.

Before, each engine answers a query over fewer events, and DuckDB says whether the answer is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from benches import harness

PARTS = (
    *("comparison", "small_batches", "latency", "recovery", "memory", "checkpoints"),
    *("cluster", "kafka"),
)


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--parts", type=names, default=PARTS, help=f"some of {','.join(PARTS)}")
    parser.add_argument("--events", type=int, help="by default ten million, or what a part needs")
    parser.add_argument("--queries", type=names, help="such as q5,q7; by default those of the part")
    parser.add_argument("--peers", type=names, help="such as flink,bytewax; by default all")
    parser.add_argument("--unchecked", action="store_true", help="compare no answers")
    parser.add_argument("--latency", type=float, metavar="RATE", help="events/s of this part")
    options = parser.parse_args(arguments)
    for part in options.parts:
        # Worker processes import this package, and need none of the peers.
        import_module(f"benches.nexmark.{part}").run(options)


def names(text: str) -> list[str]:
    """Return the names of a list with commas."""
    return [name for name in text.split(",") if name]
