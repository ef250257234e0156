"""Jobs of the kind that people run, each against the best way to write it in plain PySpark.

Ten are those of ``docs/cookbook.md``: the blocks of the page are what runs. Four more have their functions in
``benches/job_functions.py``. Every job starts from DataFrames over Parquet files as Spark writes them by default,
and ends in Spark's ``noop`` sink: the clicks have times of 96 bits, readings and invoices lie in folders by a
column, pages have arrays, and the lines lie in a store that speaks S3, a server in this process. The contestants of a job call the same Python, once per partition:

- ``headgate``: ``exchange(...)``, by which the workers read the files
- ``spark_reads``: the same with ``read="spark"``
- ``pyspark``: ``mapInArrow(map)`` if there is a ``map``, ``repartition(by)``, and ``mapInArrow(reduce)`` if
  there is a ``reduce``; several inputs are one union
- ``cogroup`` or ``applyInArrow``: Spark's call by key, for jobs that it can do. The faster of it and
  ``pyspark`` counts

The rows of all are compared before anything is timed. The master has as many slots as the machine has cores
for it: two. Each job prints its ratios; the least and the median of all follow.
"""

from __future__ import annotations

import logging
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benches import cookbook, environments, harness, job_functions
from benches.cookbook import Table
from benches.spark import saving, session
from moto.server import ThreadedMotoServer
from pyarrow import fs
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from headgate.spark import exchange

SLOTS = 2
#: Tables in folders, and the column of the folders.
FOLDERS = {"readings": "site", "invoices": "region"}
#: Tables in the store.
STORED = ("lines",)
BUCKET = "tables"


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        name: of its ratio, after ``jobs_``.
        headgate: the job with Headgate.
        rivals: the same without it, by the name of the contestant; ``pyspark`` is one of them.
    """

    name: str
    headgate: Callable[[Table], DataFrame]
    rivals: dict[str, Callable[[Table], DataFrame]]


def written(
    name: str,
    data: str,
    by: str,
    *,
    map: Callable | None = None,  # noqa: A002 - named as in exchange()
    mapped: str | None = None,
    reduce: Callable | None = None,
    reduced: str | None = None,
) -> Job:
    """Return a job of two functions and the columns that they return.

    Args:
        name: of the job.
        data: the name of its input, a method of :class:`Data`.
        by: the key.
        map: the function before the exchange, and ``mapped``, the columns that it returns.
        reduce: the function after the exchange, and ``reduced``, the columns that it returns.
    """
    schemas = {"schema": reduced or mapped} if map or reduce else {}
    if map and reduce:
        schemas["map_schema"] = mapped

    def by_headgate(table: Table) -> DataFrame:
        return exchange(table(data), by=by, map=map, reduce=reduce, **schemas)

    def by_pyspark(table: Table) -> DataFrame:
        df = table(data) if map is None else table(data).mapInArrow(map, mapped)
        df = df.repartition(SLOTS, by)
        return df if reduce is None else df.mapInArrow(reduce, reduced)

    return Job(name, by_headgate, {"pyspark": by_pyspark})


def of_the_page() -> list[Job]:
    return [
        Job(job.name, job.headgate.run, {"pyspark": job.pyspark.run, **cookbook.by_key(job)})
        for job in cookbook.jobs()
    ]


def jobs() -> list[Job]:
    return [
        written("repartition", "clicks", "user"),
        written(
            "latest",
            "clicks",
            "user",
            reduce=job_functions.latest,
            reduced="user long, second long, page long, cents long, seen timestamp",
        ),
        written(
            "words",
            "texts",
            "word",
            map=job_functions.words,
            mapped="word string, times long",
            reduce=job_functions.total_of_words,
            reduced="word string, times long",
        ),
        written(
            "centroids",
            "points",
            "centroid",
            map=job_functions.nearest,
            mapped="centroid long, points long, x long, y long",
            reduce=job_functions.moved,
            reduced="centroid long, points long, x long, y long",
        ),
        *of_the_page(),
    ]


class Data:
    """The inputs, as Parquet files; those that are not in the store are made once and kept in the cache folder.

    Args:
        scale: 1 is two million clicks.
    """

    def __init__(self, spark: SparkSession, scale: float) -> None:
        self._spark, self._scale = spark, scale

    def of(self, name: str) -> DataFrame:
        made = getattr(self, name)()
        # With the columns, as another version of this bench may have written a table of that name.
        label = "-".join([name, *made.columns, f"{self._scale:g}"])
        folder = environments.cache() / "jobs" / label
        by = [FOLDERS[name]] if name in FOLDERS else []
        if name in STORED:
            made.write.mode("overwrite").parquet(f"s3a://{BUCKET}/{name}")
            return self._spark.read.parquet(f"s3a://{BUCKET}/{name}")
        if not (folder / "_SUCCESS").exists():
            made.write.mode("overwrite").partitionBy(*by).parquet(str(folder))
        return self._spark.read.parquet(str(folder))

    def _rows(self, number: int) -> DataFrame:
        return self._spark.range(0, int(number * self._scale), 1, 4)

    def _keys(self, number: int) -> int:
        return max(100, int(number * self._scale))

    def clicks(self) -> DataFrame:
        return self._rows(2_000_000).selectExpr(
            f"pmod(xxhash64(id), {self._keys(20_000)}) AS user",
            "pmod(xxhash64(id, 1), 604800) AS second",
            "pmod(xxhash64(id, 2), 5000) AS page",
            "pmod(xxhash64(id, 3), 10000) AS cents",
            "timestamp_seconds(1767225600 + pmod(xxhash64(id, 1), 604800)) AS seen",
        )

    def trades(self) -> DataFrame:
        return self._rows(500_000).selectExpr(
            "id % 500 AS symbol", "id * 46 AS at", "10000 + pmod(xxhash64(id, 2), 500) AS paid"
        )

    def quotes(self) -> DataFrame:
        return self._rows(1_500_000).selectExpr(
            "id % 500 AS symbol", "id * 15 + 7 AS at", "10000 + pmod(xxhash64(id), 500) AS quoted"
        )

    def invoices(self) -> DataFrame:
        return self._rows(1_000_000).selectExpr(
            f"pmod(xxhash64(id), {self._keys(20_000)}) AS customer",
            "id",
            "id div 3000 AS day",
            "1 + pmod(xxhash64(id, 1), 1000) AS cents",
            "concat('region ', id % 3) AS region",
        )

    def payments(self) -> DataFrame:
        return self._rows(500_000).selectExpr(
            f"pmod(xxhash64(id), {self._keys(20_000)}) AS customer",
            "id div 1500 AS day",
            "1 + pmod(xxhash64(id, 1), 2000) AS cents",
        )

    def readings(self) -> DataFrame:
        return self._rows(2_000_000).selectExpr(
            "id % 500 AS machine",
            "id div 500 * 10 AS at",
            "pmod(xxhash64(id), 1000) AS value",
            "id % 4 AS site",
        )

    def runs(self) -> DataFrame:
        return self._rows(100_000).selectExpr(
            "id % 500 AS machine",
            "id AS run",
            "id div 500 * 200 AS begin",
            "id div 500 * 200 + pmod(xxhash64(id), 1000) AS end",
        )

    def texts(self) -> DataFrame:
        some = ", ' ', ".join(f"pmod(xxhash64(id, {n}), 30000)" for n in range(12))
        return self._rows(200_000).selectExpr(f"concat({some}) AS text")

    def lines(self) -> DataFrame:
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

    def pages(self) -> DataFrame:
        number = int(300_000 * self._scale)
        return self._rows(300_000).selectExpr(
            "id AS page",
            "1D AS rank",
            f"transform(sequence(1, 1 + id % 19), n -> pmod(xxhash64(id, n), {number})) AS targets",
        )


def main(arguments: Sequence[str]) -> None:
    every = jobs()
    parser = harness.arguments(__doc__)
    parser.add_argument("--job", choices=[job.name for job in every], help="by default all")
    options = parser.parse_args(arguments)
    cloudpickle.register_pickle_by_value(job_functions)
    with store() as confs_of_store:
        run(every, options, session(f"local[{SLOTS}]", **confs_of_store))


@contextmanager
def store() -> Iterator[dict[str, str]]:
    """Serve an empty bucket of S3 while the block runs; yield the confs by which Spark finds it."""
    jars = environments.downloaded("store_jars.sh", "s3a")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "endpoint": f"http://{host}:{port}",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": "key",
            "secret.key": "secret",
        }
        fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            endpoint_override=f"{host}:{port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir(BUCKET)
        paths = ",".join(map(str, sorted(jars.glob("*.jar"))))
        found = {f"spark.hadoop.fs.s3a.{name}": text for name, text in options.items()}
        yield {**found, "spark.jars": paths}
    finally:
        server.stop()


def run(every: list[Job], options: Namespace, spark: SparkSession) -> None:
    # As many partitions as repartition(SLOTS, by) makes.
    spark.conf.set("spark.sql.shuffle.partitions", SLOTS)
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    spark.conf.set("spark.headgate.progress", "off")
    try:
        data = Data(spark, 0.01 if options.quick else 1)
        found = [
            compare(job, spark, data.of, options.turns, quick=options.quick)
            for job in every
            if options.job in (None, job.name)
        ]
    finally:
        spark.stop()
    if len(found) == len(every):
        name = "TRIED" if options.quick else "RATIO"
        by_workers, by_spark = zip(*found, strict=True)
        print(f"{name} jobs_least {min(by_workers):.2f} goal 0.97")
        print(f"{name} jobs_median {statistics.median(by_workers):.2f} goal 1.7")
        print(f"{name} jobs_spark_reads {statistics.median(by_spark):.2f}")


def compare(
    job: Job, spark: SparkSession, table: Table, turns: int, *, quick: bool
) -> tuple[float, float]:
    """Check that all ways give the same rows, time them, and return the ratios of the first two."""
    tables: dict[str, DataFrame] = {}

    def noted(name: str) -> DataFrame:
        if name not in tables:
            tables[name] = table(name)
        return tables[name]

    def by_headgate(**given: str) -> Callable[[], DataFrame]:
        def plan() -> DataFrame:
            with confs(spark, given):
                return job.headgate(noted)

        return plan

    plans = {"headgate": by_headgate(), "spark_reads": by_headgate(read="spark")}
    ways = list(plans)
    for name, rival in job.rivals.items():
        plans[name] = lambda rival=rival: rival(noted)
    digests = {name: digest(plan()) for name, plan in plans.items()}
    for name, found in digests.items():
        if found != digests["pyspark"] or not found[0]:
            raise SystemExit(
                f"{job.name}: rows and hash {found} by {name}, {digests['pyspark']} by pyspark"
            )
    rivals = tuple(job.rivals)
    by_workers, by_spark, *_ = harness.compare(
        f"jobs_{job.name}",
        f"{job.name} on local[{SLOTS}], {digests['pyspark'][0]:,} rows of result",
        {name: saving(plan) for name, plan in plans.items()},
        [
            harness.Ratio(
                f"jobs_{job.name}" + ("" if way == "headgate" else f"_{way}"), rivals, way, 0.97
            )
            for way in ways
        ],
        turns=turns,
        size=sum(df.count() * 8 * len(df.columns) for df in tables.values()),
        quick=quick,
    )
    return by_workers, by_spark


@contextmanager
def confs(spark: SparkSession, options: dict[str, str]) -> Iterator[None]:
    """Give options to the exchanges that are planned meanwhile."""
    for name, value in options.items():
        spark.conf.set(f"spark.headgate.{name}", value)
    try:
        yield
    finally:
        for name in options:
            spark.conf.unset(f"spark.headgate.{name}")


def digest(df: DataFrame) -> tuple[int, object]:
    """Return the number of rows, and the sum of their hashes with floats to five digits.

    The last digits depend on the order of the rows that a function gets. Sums of simple fractions often lie in the
    middle between two values of five digits, where the last digit decides; a factor moves them away from there.
    """
    rounded = {
        "double": "round({0} * 0.7234571D, 5) + 0D",
        "array<double>": "transform({0}, x -> round(x * 0.7234571D, 5) + 0D)",
    }
    columns = [rounded.get(kind, "{0}").format(name) for name, kind in sorted(df.dtypes)]
    hashes = f"sum(cast(xxhash64({', '.join(columns)}) AS decimal(20)))"
    count, total = df.selectExpr("count(*)", hashes).first()
    return count, total
