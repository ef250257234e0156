"""A DataFrame of a Delta table: workers read Spark's own rows of the version that it has, or Spark reads."""

import os
from pathlib import Path

import pytest
from tests.kit.own_driver import drive

#: Folder with the jars of Delta, which scripts/delta_jars.sh downloads.
JARS = os.environ.get("HEADGATE_TEST_DELTA")
pytestmark = pytest.mark.skipif(
    JARS is None,
    reason="no jars of Delta for this PySpark: run scripts/oldest_spark.sh tests/soak/lakes",
)

ROOT = Path(__file__).parents[3]
SCANS = 104
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
}
RANDOM = """
from tests.kit.random_delta import random_delta
from tests.kit.random_scans import run

report = run(spark, os.path.abspath("tables"), 0, SCANS, random_delta)
looked_at = report.workers + report.reasons.total()
tell(workers=report.workers, differences=report.differences, looked_at=looked_at, text=str(report))
"""

CALLS = """
from headgate.spark import explain
from headgate.spark.plan.read_auto.decide import source_of
from tests.kit.random_scans import by_workers, rows_of

delta = spark.read.format("delta")
table = os.path.abspath("orders")
spark.range(100).selectExpr("id", "id % 3 as k").write.format("delta").partitionBy("k").save(table)
spark.sql(
    f"alter table delta.`{table}` set tblproperties ('delta.enableDeletionVectors' = 'true',"
    " 'delta.enableChangeDataFeed' = 'true')"
)
spark.sql(f"delete from delta.`{table}` where id >= 90")
spark.sql(f"create table orders using delta location '{table}'")
history = spark.sql(f"describe history delta.`{table}`")
newest = history.selectExpr("string(timestamp)").first()[0]

def same(batches):
    yield from batches

def moved(df, by="k"):
    said.clear()
    out = exchange(df, by=by, num_partitions=3, map=same, schema=df.schema)
    explained = " ".join(str(explain(out)).split())
    return out, [line for line in said if line.startswith("exchange by")][0], explained

exchanges = {}
def look(name, df, by="k"):
    out, reader, explained = moved(df, by)
    exchanges[name] = {"reader": reader, "explained": explained}
    if "the workers read" in reader:
        rows = rows_of(by_workers(source_of(df)))
        exchanges[name] |= {"alike": rows == rows_of(df.toArrow()), "rows": rows.total()}

look("newest", delta.load(table))
look("filter", delta.load(table).where("k = 1 and id > 50").selectExpr("k as key", "id"), "key")
look("versionAsOf", spark.read.format("delta").option("versionAsOf", 0).load(table))
look("timestampAsOf", spark.read.format("delta").option("timestampAsOf", newest).load(table))
look("table", spark.table("orders"))
look("table's version", spark.sql("select id, k from orders version as of 0"))
feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
look("changes", feed.load(table))
look("folder", spark.read.format("delta").load(f"{table}/k=1"))
spark.conf.set("spark.databricks.delta.tomorrow", "1")
look("conf", delta.load(table))
spark.conf.unset("spark.databricks.delta.tomorrow")
by_id = os.path.abspath("by_id")
spark.sql(
    f"create table delta.`{by_id}` (id bigint, k int) using delta"
    " tblproperties ('delta.columnMapping.mode' = 'id')"
)
spark.sql(f"insert into delta.`{by_id}` values (1, 1)")
look("by id", delta.load(by_id))
pinned, _, _ = moved(delta.load(table))
spark.range(1000, 1007).selectExpr("id", "id % 3 as k").write.format("delta").mode("append").save(table)
exchanges["pinned"] = sorted(row.id for row in pinned.collect())
exchanges["after"] = delta.load(table).count()
sys.modules["deltalake"] = None
look("package", delta.load(table))
tell(exchanges=exchanges)
"""


def driven(body, tmp_path):
    jars = [str(jar) for jar in sorted(Path(JARS).glob("*.jar"))]
    conf = {**DELTA, "spark.jars": ",".join(jars)}
    head = f"SCANS = {SCANS}\nsys.path.insert(0, {str(ROOT)!r})\n"
    return drive(head + body, "local[2]", tmp_path, **conf)


def test_random_tables_and_scans_give_sparks_rows(tmp_path):
    report = driven(RANDOM, tmp_path)
    assert not report["differences"], report["text"]
    assert report["workers"] > SCANS // 5, report["text"]
    assert report["looked_at"] == SCANS


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory):
    return driven(CALLS, tmp_path_factory.mktemp("delta"))["exchanges"]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("newest", 90),
        ("filter", 13),
        ("versionAsOf", 100),
        ("timestampAsOf", 90),
        ("table", 90),
        ("table's version", 100),
        ("folder", 30),
    ],
)
def test_workers_read_the_version_of_spark(exchanges, name, rows):
    assert "the workers read the input, DeltaSource(" in exchanges[name]["reader"]
    assert "read by the workers" in exchanges[name]["explained"]
    assert (exchanges[name]["alike"], exchanges[name]["rows"]) == (True, rows)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("changes", "not files"),
        ("conf", "spark.databricks.delta.tomorrow is 1"),
        ("by id", "mapped by id"),
        (
            "package",
            'needs deltalake, which is not installed. To change that: pip install "headgate',
        ),
    ],
)
def test_what_is_not_known_stays_with_spark(exchanges, name, why):
    assert "Spark reads the input" in exchanges[name]["reader"]
    assert why in exchanges[name]["reader"]
    assert why in exchanges[name]["explained"]
    assert "rows" not in exchanges[name]


def test_the_version_is_that_of_the_call(exchanges):
    assert (exchanges["pinned"], exchanges["after"]) == ([*range(90)], 97)
