"""Spark's side of the bench: Structured Streaming, in a process of its own that answers orders line by line.

An order is a line of JSON: the way, which is ``"sql"`` or ``"stateful"`` (see ``spark_stateful.py``), the query, the folder of the
events, and a folder for the rows or None. An answer is a line that starts with ``ANSWER``: seconds, or a message that starts
with ``failed``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

from benches.nexmark import spark_stateful
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession, functions

#: The stores of state of each way: processors of Python need the second.
STORES = {"sql": "HDFSBackedStateStoreProvider", "stateful": "RocksDBStateStoreProvider"}
#: Files of bids in a micro-batch: a million events.
FILES = 5
RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
COUNTS = ", ".join(
    f"count(*) FILTER (WHERE {where}) AS {rank}_bids" for rank, where in RANKS.items()
)
ID = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
#: Those that its SQL can express on streams, exactly.
SQL = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q11": """SELECT bidder, count(*) AS bid_count, session_window.start AS window_start, session_window.end AS window_end
        FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds')""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q17": f"""SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day, {COUNTS}, min(price) AS min_price,
            max(price) AS max_price, avg(price) AS mean_price, sum(price) AS sum_price
        FROM bid GROUP BY auction, day""",
    "q18": """SELECT last.* FROM (
            SELECT max_by(struct(auction, bidder, price, channel, url, dateTime, extra), dateTime) AS last
            FROM bid GROUP BY bidder, auction)""",
    "q20": """SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime, B.extra, A.itemName, A.description,
            A.initialBid, A.reserve, A.dateTime AS dateTime_auction, A.expires, A.seller, A.category, A.extra AS extra_auction
        FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
    "q21": f"""SELECT * FROM (
            SELECT auction, bidder, price, channel, CASE lower(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE nullif({ID}, '') END AS channel_id FROM bid) WHERE channel_id IS NOT NULL""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
            split_part(url, '/', 6) AS dir3
        FROM bid""",
    "q23": """SELECT B.bidder, B.price, B.channel, B.url, B.extra, P.name, P.emailAddress, P.creditCard, P.city, P.state,
            P.extra AS extra_person, A.id, A.itemName, A.description, A.initialBid, A.reserve, A.dateTime, A.expires,
            A.category, A.extra AS extra_auction
        FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder""",
}
#: Queries whose results are updated.
UPDATES = ("q17", "q18")
#: Of a session or a window, Spark emits no row before later rows or batches have come: the last ones are missing.
UNFINISHED = ("q11", "q12")


def main() -> None:
    # Python workers get the processors with the plan.
    cloudpickle.register_pickle_by_value(spark_stateful)
    builder = SparkSession.builder.appName("headgate nexmark").master("local[2]")
    for name, value in {
        "spark.driver.memory": "8g",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    print("ANSWER ready", flush=True)
    for line in sys.stdin:
        try:
            print(f"ANSWER {seconds(spark, **json.loads(line))}", flush=True)
        except Exception as error:  # noqa: BLE001 - told to the bench
            message = str(error).replace("\n", " ")
            print(f"ANSWER failed {message[:2000]}", flush=True)
    spark.stop()


def seconds(spark: SparkSession, way: str, query: str, events: str, rows: str | None) -> float:
    """Run a query over all files; return the seconds from its start to its end."""
    package = "org.apache.spark.sql.execution.streaming.state"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", f"{package}.{STORES[way]}")
    with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
        started = time.perf_counter()
        for kind in ("person", "auction", "bid"):
            path = f"{events}/ordered/{kind}"
            schema = spark.read.parquet(path).schema
            stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES)
            # Watermarks need times with a zone.
            time_with_zone = functions.col("dateTime").cast("timestamp")
            timed = stream.parquet(path).withColumn("dateTime", time_with_zone)
            timed.withWatermark("dateTime", "4 seconds").createOrReplaceTempView(kind)
        if way == "sql":
            result = spark.sql(SQL[query])
        else:
            result = spark_stateful.result(query, spark.table("bid"))
        writer = result.writeStream.option("checkpointLocation", folder)
        updates = way == "stateful" or query in UPDATES
        writer = writer.outputMode("update" if updates else "append")
        if rows is None:
            writer = writer.format("noop")
        else:
            writer = writer.foreachBatch(lambda batch, number: written(batch, number, rows))
        running: Any = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        return time.perf_counter() - started


def written(batch: DataFrame, number: int, path: str) -> None:
    """Add the rows of a micro-batch, with its number."""
    batch.withColumn("batch", functions.lit(number)).write.mode("append").parquet(path)


if __name__ == "__main__":
    main()
