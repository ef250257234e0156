"""The answers to the queries of Nexmark, by DuckDB over the same events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

#: Auctions with the bids while they ran; the ten seconds of a time.
OPEN = "auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"
TEN = "time_bucket(INTERVAL 10 SECOND, dateTime)"
#: Conditions of three ranks of prices, and counts by them.
RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
BIDS = ", ".join(f"count(*) FILTER (WHERE {where}) AS {rank}_bids" for rank, where in RANKS.items())
PARTIES = ", ".join(
    f"count(DISTINCT {column}) FILTER (WHERE {where}) AS {rank}_{column}s"
    for column in ("bidder", "auction")
    for rank, where in RANKS.items()
)
#: The published queries; DuckDB's names of functions differ.
SQL = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""
        SELECT category, avg(final) AS final
        FROM (SELECT max(B.price) AS final, A.category FROM {OPEN} GROUP BY A.id, A.category) GROUP BY category""",
    "q5": """
        WITH counted AS (
            SELECT auction, count(*) AS num, ends FROM (
                SELECT auction, time_bucket(INTERVAL 2 SECOND, dateTime) + n * INTERVAL 2 SECOND AS ends
                FROM bid, range(1, 6) t(n)
            ) GROUP BY auction, ends
        )
        SELECT auction, num, ends AS window_end FROM counted QUALIFY num = max(num) OVER (PARTITION BY ends)""",
    "q6": f"""
        WITH closed AS (SELECT A.id, A.seller, A.expires, max(B.price) AS price FROM {OPEN} GROUP BY ALL)
        SELECT seller, avg(price) AS avg_price FROM (
            FROM closed QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10
        ) GROUP BY seller""",
    "q7": f"""
        SELECT auction, bidder, price, dateTime, extra FROM bid B JOIN (
            SELECT max(price) AS highest, {TEN} AS starts FROM bid GROUP BY starts
        ) M ON B.price = highest AND B.dateTime >= starts AND B.dateTime < starts + INTERVAL 10 SECOND""",
    "q8": f"""
        SELECT P.id, P.name, P.starttime AS window_start
        FROM (SELECT DISTINCT id, name, {TEN} AS starttime FROM person) P
        JOIN (SELECT DISTINCT seller, {TEN} AS starttime FROM auction) A ON P.id = A.seller AND P.starttime = A.starttime""",
    "q9": f"""
        SELECT A.*, B.bidder, B.price, B.dateTime AS dateTime_bid, B.extra AS extra_bid FROM {OPEN}
        QUALIFY row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime) <= 1""",
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
    # Its windows depend on the clock: the sums of all are compared.
    "q12": "SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
    "q13": """
        SELECT auction, bidder, price, dateTime, value
        FROM bid JOIN (SELECT i AS key, i::VARCHAR AS value FROM range(10000) t(i)) ON auction % 10000 = key""",
    "q14": """
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"""
        SELECT date_trunc('day', dateTime)::TIMESTAMP_MS AS window_start, {BIDS}, {PARTIES} FROM bid GROUP BY window_start""",
    "q16": f"""
        SELECT channel, date_trunc('day', dateTime)::TIMESTAMP_MS AS window_start, max(dateTime) AS last, {BIDS}, {PARTIES}
        FROM bid GROUP BY channel, window_start""",
    "q17": f"""
        SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day, {BIDS}, min(price) AS min_price, max(price) AS max_price,
            avg(price) AS mean_price, sum(price)::BIGINT AS sum_price
        FROM bid GROUP BY auction, day""",
    # Of bids at one time or price, any may be the last or the highest: only what is certain is compared.
    "q18": "SELECT bidder, auction, max(dateTime) AS dateTime FROM bid GROUP BY bidder, auction",
    "q19": """
        SELECT auction, price, rank_number
        FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid)
        WHERE rank_number <= 10""",
    "q20": """
        SELECT B.*, A.itemName, A.description, A.initialBid, A.reserve, A.dateTime AS dateTime_auction, A.expires, A.seller,
            A.category, A.extra AS extra_auction
        FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
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
    "q23": """
        SELECT bidder, price, channel, url, B.extra, name, emailAddress, creditCard, city, state, P.extra AS extra_person,
            A.id, itemName, description, initialBid, reserve, A.dateTime, expires, category, A.extra AS extra_auction
        FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder""",
}
SUMS = {"q12": "SELECT bidder, sum(bid_count) AS bid_count FROM result GROUP BY bidder"}
#: Queries whose rows must be bids too, because SQL leaves open which ones they are.
OF_BIDS = ("q18", "q19")


class WrongAnswerError(AssertionError):
    """A query returned other rows than DuckDB."""


def check(name: str, answer: pa.Table, events: Mapping[str, Any], *, is_whole: bool = True) -> int:
    """Compare the answer to a query with DuckDB's, as multisets of rows; return the number of DuckDB's, or of the answer's.

    Args:
        name: of the query.
        answer: all rows of the result; of a query that updates, the last ones of each key.
        events: ``person``, ``auction`` and ``bid``: tables, or patterns of Parquet files.
        is_whole: False if rows may be missing, and must be right nevertheless.

    Raises:
        WrongAnswerError: they differ.
    """
    with duckdb.connect() as database:
        for kind, rows in events.items():
            if isinstance(rows, str):
                database.sql(f"CREATE VIEW {kind} AS SELECT * FROM read_parquet('{rows}')")
            else:
                database.register(kind, rows)
        database.register("result", answer)
        database.sql(f"CREATE VIEW answer AS {SUMS.get(name, 'FROM result')}")
        database.sql(f"CREATE TABLE expected AS {SQL[name]}")
        database.sql(f"CREATE TABLE actual AS {_cast(database, 'expected', 'answer')}")
        missing = database.sql("FROM expected EXCEPT ALL FROM actual")
        surplus = database.sql("FROM actual EXCEPT ALL FROM expected")
        counts = [len(rows) for rows in (missing, surplus)]
        if counts[1] or (is_whole and counts[0]):
            raise WrongAnswerError(
                f"{name}: {counts[0]} rows are missing, {counts[1]} are wrong\n"
                f"expected:\n{missing.limit(5)}\nactual:\n{surplus.limit(5)}"
            )
        if name in OF_BIDS:
            others = database.sql(f"{_cast(database, 'bid', 'answer')} EXCEPT ALL FROM bid")
            if len(others):
                raise WrongAnswerError(f"{name}: {len(others)} rows are no bids\n{others.limit(5)}")
        rows = "expected" if is_whole else "actual"
        return int(database.sql(f"SELECT count(*) FROM {rows}").fetchall()[0][0])


def _cast(database: duckdb.DuckDBPyConnection, schema: str, table: str) -> str:
    """Return the query of a table's columns as another one has them: engines may give their rows as texts."""
    wanted = database.sql(f"FROM {schema} LIMIT 0")
    columns = zip(wanted.columns, wanted.types, strict=True)
    return f"SELECT {', '.join(f'CAST({name} AS {kind}) AS {name}' for name, kind in columns)} FROM {table}"


def after_changes(path: Path) -> pa.Table:
    """Return the rows after the changes of a file: text with tabs, whose first column is one of +I, +U, -U and -D."""
    with duckdb.connect() as database:
        return database.sql(f"""
            SELECT * EXCLUDE (number, n) FROM (
                SELECT * EXCLUDE (kind), sum(CASE WHEN kind[1] = '+' THEN 1 ELSE -1 END) AS number
                FROM read_csv('{path}', delim = '\t', header = true, all_varchar = true, quote = '', escape = '')
                GROUP BY ALL HAVING number > 0
            ), LATERAL range(CAST(number AS BIGINT)) t(n)""").to_arrow_table()


def last_rows(path: Path, keys: Sequence[str] | None) -> pa.Table:
    """Return the last rows of each key in such a file, or all rows without keys."""
    with duckdb.connect() as database:
        names = (
            f"QUALIFY row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY place DESC) = 1"
            if keys
            else ""
        )
        return database.sql(f"""
            SELECT * EXCLUDE (kind, place) FROM (
                SELECT *, row_number() OVER () AS place
                FROM read_csv('{path}', delim = '\t', header = true, all_varchar = true, quote = '', escape = '', parallel = false)
            ) {names}""").to_arrow_table()
