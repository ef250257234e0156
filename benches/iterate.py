"""Ten rounds of ranks of pages on ``local[2]``, as one job each, to the ``noop`` sink.

There are 3 million links between 300,000 pages, in Parquet files. A round joins the links with the ranks, sums what
each link gives to its target, and makes the new ranks of the sums. The ranks of all contestants are compared before
anything is timed; all Python functions do the same work with numpy.

- ``headgate``: ``iterate(pages, links, send=..., update=...)``
- ``pyspark``: a loop of ``mapInArrow`` (join) -> ``repartition`` by target -> ``mapInArrow`` (sum). Spark places the
  links once and reads them side by side with the ranks, the best way to bring both to one function.
- ``fused``: the same with the sum and the next join in one function, which saves a shuffle and two crossings a round
- ``sql``: a loop of Spark's join, ``groupBy`` and ``sum``, without Python
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from benches import harness
from benches.jobs import SLOTS, Data
from benches.spark import saving, session
from pyspark import cloudpickle
from pyspark.sql import DataFrame

import headgate as hg
from headgate.spark import Input, iterate

ROUNDS = 10
#: Columns of links and ranks in one DataFrame: a rank is a link of a page to nowhere.
BOTH = "page long, target long, value double"
RANKS = "page long, rank double"


class Graph(Data):
    """Links with their share of the page's rank, and the pages."""

    def shares(self) -> DataFrame:
        return self.links_of(300_000).selectExpr(
            "source", "target", "1D / count(*) OVER (PARTITION BY source) AS share"
        )

    def links_of(self, pages: int) -> DataFrame:
        number = int(pages * self._scale)
        return self._rows(3_000_000).selectExpr(
            f"pmod(xxhash64(id), {number}) AS source", f"pmod(xxhash64(id, 1), {number}) AS target"
        )

    def pages(self) -> DataFrame:
        return self._rows(300_000).selectExpr("id AS page", "1D AS rank")


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="by default 10")
    options = parser.parse_args(arguments)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = session(f"local[{SLOTS}]")
    # Two hundred tasks for each join would only slow Spark's own way down.
    spark.conf.set("spark.sql.shuffle.partitions", str(SLOTS))
    try:
        data = Graph(spark, 0.01 if options.quick else 1)
        pages, links = data.of("pages"), data.of("shares")
        plans = {
            way.__name__: lambda way=way: way(pages, links, options.rounds)
            for way in (headgate, pyspark, fused, sql)
        }
        check({name: plan().toArrow() for name, plan in plans.items()})
        harness.compare(
            "iterate",
            f"{options.rounds} rounds of ranks, {links.count():,} links, on local[{SLOTS}]",
            {name: saving(plan) for name, plan in plans.items()},
            [
                harness.Ratio("iterate", "pyspark", "headgate", goal=3),
                harness.Ratio("iterate_fused", "fused", "headgate"),
                harness.Ratio("iterate_sql", "sql", "headgate"),
            ],
            turns=options.turns,
            size=options.rounds * links.count() * 24,
            quick=options.quick,
        )
    finally:
        spark.stop()


def check(found: dict[str, pa.Table]) -> None:
    expected = found["sql"].sort_by("page")
    for name, table in found.items():
        ranks = table.sort_by("page")
        same = ranks["page"].equals(expected["page"]) and np.allclose(
            ranks["rank"], expected["rank"], rtol=1e-9
        )
        if not same or not len(ranks):
            raise SystemExit(f"{name} has other ranks than Spark's SQL")


def headgate(pages: DataFrame, links: DataFrame, rounds: int) -> DataFrame:
    def send(ranks: hg.Batches, links: hg.Batches) -> pa.Table:
        ranks, links = ranks.read_all(), links.read_all()
        return given(*numbers(ranks, "page", "rank"), *numbers(links, "source", "target", "share"))

    def update(ranks: hg.Batches, messages: hg.Batches) -> pa.Table:
        return ranked(messages.read_all())

    return iterate(
        pages,
        Input(links, by="source"),
        by="page",
        send=send,
        update=update,
        message_schema=RANKS,
        rounds=rounds,
        num_partitions=SLOTS,
        progress="off",
    )


def pyspark(pages: DataFrame, links: DataFrame, rounds: int) -> DataFrame:
    placed = links.selectExpr("source AS page", "target", "share AS value")
    placed = placed.repartition(SLOTS, "page")
    ranks = pages
    for _ in range(rounds):
        of_pages = ranks.selectExpr("page", "-1L AS target", "rank AS value")
        both = placed.union(of_pages.repartition(SLOTS, "page"))
        sent = both.mapInArrow(joined, RANKS).repartition(SLOTS, "page")
        ranks = sent.mapInArrow(summed, RANKS)
    return ranks


def fused(pages: DataFrame, links: DataFrame, rounds: int) -> DataFrame:
    placed = links.selectExpr("source AS page", "target", "share AS value")
    placed = placed.repartition(SLOTS, "page")
    ranks = pages.selectExpr("page", "-1L AS target", "rank AS value").repartition(SLOTS, "page")
    sent = placed.union(ranks).mapInArrow(joined, RANKS).repartition(SLOTS, "page")
    for _ in range(rounds - 1):
        messages = sent.selectExpr("page", "-1L AS target", "rank AS value")
        sent = placed.union(messages).mapInArrow(summed_and_joined, RANKS)
        sent = sent.repartition(SLOTS, "page")
    return sent.mapInArrow(summed, RANKS)


def sql(pages: DataFrame, links: DataFrame, rounds: int) -> DataFrame:
    ranks, links = pages, links.repartition(SLOTS, "source")
    for _ in range(rounds):
        sent = links.join(ranks, links["source"] == ranks["page"])
        sent = sent.selectExpr("target AS page", "rank * share AS rank")
        none = pages.selectExpr("page", "0D AS rank")
        sums = sent.union(none).groupBy("page").agg({"rank": "sum"})
        ranks = sums.selectExpr("page", "0.15D + 0.85D * `sum(rank)` AS rank")
    return ranks


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pages, targets, values, is_rank = taken(batches)
    ranks, links = (
        (pages[is_rank], values[is_rank]),
        [x[~is_rank] for x in (pages, targets, values)],
    )
    yield from given(*ranks, *links).to_batches()


def summed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    batches = list(batches)
    if batches:
        yield from ranked(pa.Table.from_batches(batches)).to_batches()


def summed_and_joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pages, targets, values, is_rank = taken(batches)
    messages = pa.table({"page": pages[is_rank], "rank": values[is_rank]})
    ranks = numbers(ranked(messages), "page", "rank")
    links = [column[~is_rank] for column in (pages, targets, values)]
    yield from given(*ranks, *links).to_batches()


def taken(batches: Iterable[pa.RecordBatch]) -> tuple[np.ndarray, ...]:
    rows = pa.Table.from_batches(batches)
    pages, targets, values = numbers(rows, "page", "target", "value")
    return pages, targets, values, targets < 0


def given(
    pages: np.ndarray,
    ranks: np.ndarray,
    sources: np.ndarray,
    targets: np.ndarray,
    shares: np.ndarray,
) -> pa.Table:
    """Return the sum of what the links give to each target, and nothing for each page itself."""
    number = 1 + max(int(pages.max(initial=-1)), int(sources.max(initial=-1)))
    rank_of = np.zeros(number)
    rank_of[pages] = ranks
    sums = np.bincount(targets, rank_of[sources] * shares, minlength=number)
    own = np.zeros(len(sums), bool)
    own[pages] = True
    own[targets] = True
    return pa.table({"page": np.flatnonzero(own), "rank": sums[own]})


def ranked(messages: pa.Table) -> pa.Table:
    """Return the ranks for the sums of what pages got."""
    pages, values = numbers(messages, "page", "rank")
    sums = np.bincount(pages, values)
    own = np.zeros(len(sums), bool)
    own[pages] = True
    return pa.table({"page": np.flatnonzero(own), "rank": 0.15 + 0.85 * sums[own]})


def numbers(rows: pa.Table, *names: str) -> list[np.ndarray]:
    return [rows.column(name).to_numpy() for name in names]
