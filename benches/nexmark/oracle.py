"""The answers to the queries of Nexmark, by DuckDB over the same events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

BID = "auction, bidder, price, channel, url, dateTime, extra"
#: The published queries; DuckDB's names of functions differ.
SQL = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q10": """
        SELECT auction, bidder, price, dateTime, extra, strftime(dateTime, '%Y-%m-%d') AS dt, strftime(dateTime, '%H:%M') AS hm
        FROM bid""",
    "q11": """
        WITH opened AS (
            SELECT bidder, dateTime, coalesce(dateTime - lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime)
                > INTERVAL 10 SECOND, true) AS opens FROM bid
        ), numbered AS (
            SELECT bidder, dateTime, sum(opens::INT) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM opened
        )
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS window_start,
            max(dateTime) + INTERVAL 10 SECOND AS window_end
        FROM numbered GROUP BY bidder, session""",
    "q13": """
        SELECT auction, bidder, price, dateTime, value
        FROM bid JOIN (SELECT i AS key, i::VARCHAR AS value FROM range(10000) t(i)) ON auction % 10000 = key""",
    "q14": """
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q21": """
        SELECT * FROM (
            SELECT auction, bidder, price, channel, CASE lower(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id FROM bid
        ) WHERE channel_id IS NOT NULL""",
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
            split_part(url, '/', 6) AS dir3
        FROM bid""",
}


class WrongAnswerError(AssertionError):
    """A query returned other rows than DuckDB."""


def check(name: str, answer: pa.Table, events: Mapping[str, Any]) -> int:
    """Compare the answer to a query with DuckDB's, as multisets of rows; return their number.

    Args:
        name: of the query.
        answer: all rows of the result; of a query that updates, the last ones of each key.
        events: ``person``, ``auction`` and ``bid``: tables, or patterns of Parquet files.

    Raises:
        WrongAnswerError: they differ.
    """
    with duckdb.connect() as database:
        for kind, rows in events.items():
            if isinstance(rows, str):
                database.sql(f"CREATE VIEW {kind} AS SELECT * FROM read_parquet('{rows}')")
            else:
                database.register(kind, rows)
        database.register("answer", answer)
        database.sql(f"CREATE TABLE expected AS {SQL[name]}")
        columns = ", ".join(
            column[0] for column in database.sql("FROM expected LIMIT 0").description
        )
        database.sql(f"CREATE TABLE actual AS SELECT {columns} FROM answer")
        missing = database.sql("FROM expected EXCEPT ALL FROM actual")
        surplus = database.sql("FROM actual EXCEPT ALL FROM expected")
        counts = [len(rows) for rows in (missing, surplus)]
        if any(counts):
            raise WrongAnswerError(
                f"{name}: {counts[0]} rows are missing, {counts[1]} are wrong\n"
                f"expected:\n{missing.limit(5)}\nactual:\n{surplus.limit(5)}"
            )
        return int(database.sql("SELECT count(*) FROM expected").fetchall()[0][0])
