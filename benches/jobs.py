"""Twelve jobs of the kind that people run, each against the best way to write it in plain PySpark.

Every job starts from a DataFrame over Parquet files, or over columns that Spark computes, and ends in Spark's
``noop`` sink. Both contestants of a job call the same functions, once per partition:

- ``headgate``: ``exchange(df, by=..., map=..., reduce=...)``
- ``read``: the same with ``read="auto"``, so that the workers read the files
- ``pipelined``: the same as ``headgate`` with ``mode="pipelined"``, for jobs with a ``map``
- ``pyspark``: ``df.mapInArrow(map)`` if there is a ``map``, ``repartition(slots, by)``, and
  ``mapInArrow(reduce)`` if there is a ``reduce``

The rows of both are compared before anything is timed. The master has as many slots as the machine has cores
for it: two. Each job prints its ratios; the least and the median of all follow.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches import harness, job_functions
from benches.spark import saving, session
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from headgate.spark import exchange

SLOTS = 2


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        name: of its ratio, after ``jobs_``.
        data: the name of its input, a method of :class:`Data`.
        by: the key.
        map: the function before the exchange, and ``mapped``, the columns that it returns.
        reduce: the function after the exchange, and ``reduced``, the columns that it returns.
    """

    name: str
    data: str
    by: str
    map: Callable | None = None
    mapped: str | None = None
    reduce: Callable | None = None
    reduced: str | None = None

    def headgate(self, df: DataFrame, **options: Any) -> DataFrame:
        if self.map is not None and self.reduce is not None:
            options["map_schema"] = self.mapped
        if self.map is not None or self.reduce is not None:
            options["schema"] = self.reduced or self.mapped or df.schema
        return exchange(df, by=self.by, map=self.map, reduce=self.reduce, progress="off", **options)

    def pyspark(self, df: DataFrame) -> DataFrame:
        if self.map is not None:
            df = df.mapInArrow(self.map, self.mapped)
        df = df.repartition(SLOTS, self.by)
        return df if self.reduce is None else df.mapInArrow(self.reduce, self.reduced)


JOBS = (
    Job("repartition", "clicks", "user"),
    Job(
        "sessions",
        "clicks",
        "user",
        reduce=job_functions.sessions,
        reduced="user long, begin long, seconds long, clicks long",
    ),
    Job(
        "features",
        "clicks",
        "user",
        reduce=job_functions.features,
        reduced="user long, clicks long, cents long, largest long, pages long, hour long",
    ),
    Job("models", "clicks", "user", reduce=job_functions.models, reduced="user long, slope long"),
    Job(
        "latest",
        "clicks",
        "user",
        reduce=job_functions.latest,
        reduced="user long, second long, page long, cents long",
    ),
    Job("largest", "clicks", "page", reduce=job_functions.largest, reduced="page long, cents long"),
    Job(
        "as_of",
        "ticks",
        "symbol",
        reduce=job_functions.as_of,
        reduced="symbol long, at long, paid long, quoted long",
    ),
    Job(
        "words",
        "texts",
        "word",
        map=job_functions.words,
        mapped="word string, times long",
        reduce=job_functions.total_of_words,
        reduced="word string, times long",
    ),
    Job(
        "logs",
        "logs",
        "user",
        map=job_functions.parsed,
        mapped="user long, kind string, took long",
        reduce=job_functions.slow_requests,
        reduced="user long, kind string, took long, requests long",
    ),
    Job(
        "near_duplicates",
        "documents",
        "band",
        map=job_functions.signed,
        mapped="band long, id long, signature array<long>",
        reduce=job_functions.near_duplicates,
        reduced="left long, right long",
    ),
    Job(
        "centroids",
        "points",
        "centroid",
        map=job_functions.nearest,
        mapped="centroid long, points long, x long, y long",
        reduce=job_functions.moved,
        reduced="centroid long, points long, x long, y long",
    ),
    Job(
        "ranks",
        "links",
        "page",
        map=job_functions.contributions,
        mapped="page long, rank long",
        reduce=job_functions.ranks,
        reduced="page long, rank long",
    ),
)


class Data:
    """The inputs, as Parquet files that are made once and kept in the cache folder.

    Args:
        scale: 1 is two million clicks.
    """

    def __init__(self, spark: SparkSession, scale: float) -> None:
        self._spark, self._scale = spark, scale

    def of(self, name: str) -> DataFrame:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "headgate" / "jobs" / f"{name}-{self._scale:g}"
        if not (folder / "_SUCCESS").exists():
            getattr(self, name)().write.mode("overwrite").parquet(str(folder))
        return self._spark.read.parquet(str(folder))

    def _rows(self, number: int) -> DataFrame:
        return self._spark.range(0, int(number * self._scale), 1, 4)

    def clicks(self) -> DataFrame:
        return self._rows(2_000_000).selectExpr(
            "pmod(xxhash64(id), 20000) AS user",
            "pmod(xxhash64(id, 1), 604800) AS second",
            "pmod(xxhash64(id, 2), 5000) AS page",
            "pmod(xxhash64(id, 3), 10000) AS cents",
        )

    def ticks(self) -> DataFrame:
        return self._rows(2_000_000).selectExpr(
            "pmod(xxhash64(id), 500) AS symbol",
            "pmod(xxhash64(id, 1), 23400000) AS at",
            "cast(id % 4 = 0 AS long) AS kind",
            "10000 + pmod(xxhash64(id, 2), 500) AS cents",
        )

    def texts(self) -> DataFrame:
        some = ", ' ', ".join(f"pmod(xxhash64(id, {n}), 30000)" for n in range(12))
        return self._rows(200_000).selectExpr(f"concat({some}) AS text")

    def logs(self) -> DataFrame:
        return self._rows(600_000).selectExpr(
            "concat('2026-01-01 ', CASE id % 50 WHEN 0 THEN 'warning: '"
            " ELSE concat('user=', pmod(xxhash64(id), 5000), ' kind=', element_at(array('get', 'put',"
            " 'list'), cast(id % 3 + 1 AS int)), ' took=', pmod(xxhash64(id, 1), 900), 'ms') END) AS line"
        )

    def documents(self) -> DataFrame:
        # Every tenth document repeats the words of another but two.
        words = ", ' ', ".join(
            f"concat('w', pmod(xxhash64(if(id % 10 = 0, id + 1, id) + {n if n > 1 else 'id'}, {n}), 5000))"
            for n in range(24)
        )
        return self._rows(60_000).selectExpr("id", f"concat({words}) AS text")

    def points(self) -> DataFrame:
        return self._rows(600_000).selectExpr(
            "pmod(xxhash64(id), 100000) / 100D AS x", "pmod(xxhash64(id, 1), 100000) / 100D AS y"
        )

    def links(self) -> DataFrame:
        return self._rows(3_000_000).selectExpr(
            "pmod(xxhash64(id), 300000) AS target", "pmod(xxhash64(id, 1), 1000) AS share"
        )


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--job", choices=[job.name for job in JOBS], help="by default all")
    options = parser.parse_args(arguments)
    cloudpickle.register_pickle_by_value(job_functions)
    spark = session(f"local[{SLOTS}]")
    try:
        data = Data(spark, 0.01 if options.quick else 1)
        found = [
            compare(job, data.of(job.data), options.turns, quick=options.quick)
            for job in JOBS
            if options.job in (None, job.name)
        ]
    finally:
        spark.stop()
    if len(found) == len(JOBS):
        name = "TRIED" if options.quick else "RATIO"
        by_spark, by_workers = zip(*found, strict=True)
        print(f"{name} jobs_least {min(by_spark):.2f} goal 0.97")
        print(f"{name} jobs_median {statistics.median(by_spark):.2f} goal 1.5")
        print(f"{name} jobs_read {statistics.median(by_workers):.2f} goal 2")


def compare(job: Job, df: DataFrame, turns: int, *, quick: bool) -> tuple[float, float]:
    """Check that all ways give the same rows, time them, and return the ratios of the first two."""
    plans = {
        "headgate": lambda: job.headgate(df),
        "read": lambda: job.headgate(df, read="auto"),
        "pyspark": lambda: job.pyspark(df),
    }
    ratios = [
        harness.Ratio(f"jobs_{job.name}", "pyspark", "headgate", goal=0.97),
        harness.Ratio(f"jobs_{job.name}_read", "pyspark", "read", goal=0.97),
    ]
    if job.map is not None:
        plans["pipelined"] = lambda: job.headgate(df, mode="pipelined")
        name = f"jobs_{job.name}_pipelined"
        ratios.append(harness.Ratio(name, "pyspark", "pipelined", goal=0.97))
    rows = {name: sorted(map(tuple, plan().collect())) for name, plan in plans.items()}
    for name, found in rows.items():
        if found != rows["pyspark"] or not found:
            raise SystemExit(
                f"{job.name}: {len(found)} rows by {name}, {len(rows['pyspark'])} by pyspark"
            )
    by_spark, by_workers, *_ = harness.compare(
        f"jobs_{job.name}",
        f"{job.name} on local[{SLOTS}], {len(rows['pyspark']):,} rows of result",
        {name: saving(plan) for name, plan in plans.items()},
        ratios,
        turns=turns,
        size=df.count() * 8 * len(df.columns),
        quick=quick,
    )
    return by_spark, by_workers
