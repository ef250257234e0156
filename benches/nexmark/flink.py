"""Flink's side of the bench: Nexmark's published SQL in a Java runtime of its own, over files of the same events; and q4 to q9 in Java.

A mini cluster in one JVM runs two tasks of each operator, with the state backend in memory, object reuse and mini-batches,
which the published set-up turns on too. Averages are of doubles, as ours. Flink has no q6; q13 needs a table that can be looked
up, and Flink's files are none; q12 ends without its last windows.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
from benches import environments, flink_cluster
from benches.environments import PeerError
from benches.nexmark import oracle
from benches.nexmark.queries import KEYS

PROGRAM = Path(__file__).parents[1] / "flink" / "NexmarkSql.java"
#: The queries of the DataStream API.
STREAMS = PROGRAM.with_name("NexmarkStreams.java")
STREAMED = ("q4", "q5", "q6", "q7", "q8", "q9")
#: Most memory of the JVM.
HEAP = "8g"
#: The last checkpoint, which Flink takes at the next interval, would be for nothing: its tasks do not wait for it.
CHECKPOINTS = {
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.checkpoints-after-tasks-finish.enabled": "false",
}
OPTIONS = {
    "pipeline.object-reuse": "true",
    "restart-strategy.type": "none",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "taskmanager.memory.network.max": "128m",
    "taskmanager.memory.network.min": "128m",
}
COLUMNS = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    "`dateTime` TIMESTAMP(3), extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
    "`dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING",
}
OPEN = "auction A, bid B WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires"
DAY = "DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')"
COUNTED = """
    SELECT auction, count(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end"""
SQL = {
    "q0": "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
        WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')""",
    "q4": f"""SELECT category, AVG(CAST(final AS DOUBLE)) AS final
        FROM (SELECT MAX(B.price) AS final, A.category FROM {OPEN} GROUP BY A.id, A.category) GROUP BY category""",
    "q5": f"""SELECT B.auction, B.num, B.window_end FROM ({COUNTED}) AS B JOIN (
            SELECT max(num) AS maxn, window_start, window_end FROM ({COUNTED}) GROUP BY window_start, window_end
        ) AS M ON B.window_start = M.window_start AND B.window_end = M.window_end AND B.num >= M.maxn""",
    "q7": """SELECT B.auction, B.bidder, B.price, B.`dateTime`, B.extra FROM bid B JOIN (
            SELECT MAX(price) AS maxprice, window_end AS ends
            FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) GROUP BY window_start, window_end
        ) M ON B.price = M.maxprice WHERE B.`dateTime` BETWEEN M.ends - INTERVAL '10' SECOND AND M.ends""",
    "q8": """SELECT P.id, P.name, P.window_start FROM (
            SELECT id, name, window_start, window_end
            FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
            GROUP BY id, name, window_start, window_end
        ) P JOIN (
            SELECT seller, window_start, window_end
            FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end
        ) A ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end""",
    "q9": f"""SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra, bidder, price,
            dateTime_bid, extra_bid
        FROM (SELECT A.*, B.bidder, B.price, B.`dateTime` AS dateTime_bid, B.extra AS extra_bid,
                ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.`dateTime` ASC) AS rownum FROM {OPEN})
        WHERE rownum <= 1""",
    "q11": """SELECT bidder, count(*) AS bid_count, SESSION_START(`dateTime`, INTERVAL '10' SECOND) AS window_start,
            SESSION_END(`dateTime`, INTERVAL '10' SECOND) AS window_end
        FROM bid GROUP BY bidder, SESSION(`dateTime`, INTERVAL '10' SECOND)""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN HOUR(`dateTime`) >= 8 AND HOUR(`dateTime`) <= 18 THEN 'dayTime'
                WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
            `dateTime`, extra, count_char(extra, 'c') AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"""SELECT CAST({DAY} || ' 00:00:00' AS TIMESTAMP(3)) AS window_start, {oracle.BIDS}, {oracle.PARTIES}
        FROM bid GROUP BY {DAY}""",
    "q16": f"""SELECT channel, CAST({DAY} || ' 00:00:00' AS TIMESTAMP(3)) AS window_start, max(`dateTime`) AS `last`,
            {oracle.BIDS}, {oracle.PARTIES}
        FROM bid GROUP BY channel, {DAY}""",
    "q17": f"""SELECT auction, {DAY} AS `day`, {oracle.BIDS}, min(price) AS min_price, max(price) AS max_price,
            avg(CAST(price AS DOUBLE)) AS mean_price, sum(price) AS sum_price
        FROM bid GROUP BY auction, {DAY}""",
    "q18": """SELECT auction, bidder, price, channel, url, `dateTime`, extra
        FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS rank_number FROM bid)
        WHERE rank_number <= 1""",
    "q19": """SELECT * FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid
        ) WHERE rank_number <= 10""",
    "q20": """SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.`dateTime`, B.extra, A.itemName, A.description,
            A.initialBid, A.reserve, A.`dateTime` AS dateTime_auction, A.expires, A.seller, A.category, A.extra AS extra_auction
        FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10""",
    "q21": """SELECT auction, bidder, price, channel, CASE
                WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
                WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
                ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
        FROM bid WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
            OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2,
            SPLIT_INDEX(url, '/', 5) AS dir3
        FROM bid""",
    "q23": """SELECT B.bidder, B.price, B.channel, B.url, B.extra, P.name, P.emailAddress, P.creditCard, P.city, P.state,
            P.extra AS extra_person, A.id, A.itemName, A.description, A.initialBid, A.reserve, A.`dateTime`, A.expires,
            A.category, A.extra AS extra_auction
        FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder""",
}


class Flink:
    """A JVM with our program.

    Args:
        process: the JVM.
        folder: for scripts and checkpoints.
        way: ``"sql"``, or ``"streams"`` for the DataStream API.
    """

    def __init__(self, process: subprocess.Popen[str], folder: Path, way: str) -> None:
        self._process = process
        self._folder = folder
        self._way = way

    def can(self, query: str) -> bool:
        return query in (SQL if self._way == "sql" else STREAMED)

    def finishes(self, query: str) -> bool:
        return self.can(query)

    def seconds(self, query: str, events: Path) -> float:
        if self._way == "streams":
            return self._answer("run-stream", query, query, events) / 1000
        job = f"CREATE TABLE nowhere WITH ('connector' = 'blackhole') AS {SQL[query]}"
        return self._answer("run", query, job, events) / 1000

    def rows(self, query: str, events: Path) -> pa.Table:
        """Return the rows after all changes, as texts."""
        changes = self._folder / f"{query}.sql.changes"
        if self._way == "sql":
            self._answer("collect", query, SQL[query], events)
            return oracle.after_changes(changes)
        self._answer("collect-stream", query, query, events)
        # Each row is the newest one of its key.
        return oracle.last_rows(changes, KEYS.get(query))

    def run(self, name: str, sources: Sequence[str], job: str, options: Mapping[str, str]) -> int:
        """Run a job over other tables, with a checkpoint at its end; return its milliseconds."""
        folder = {"execution.checkpointing.dir": f"file://{self._folder}/kept"}
        return self._carry_out("run", name, [*sources, job], {**options, **folder})

    def _answer(self, command: str, query: str, job: str, events: Path) -> int:
        if command.startswith("collect"):
            # Rows would wait for checkpoints. Two tasks may begin one after the other, and rows of the second be late.
            return self._carry_out(command, query, [*tables(events, "ordered"), job], {}, tasks=1)
        folder = {"execution.checkpointing.dir": f"file://{self._folder}/kept"}
        return self._carry_out(command, query, [*tables(events), job], {**CHECKPOINTS, **folder})

    def _carry_out(
        self,
        command: str,
        name: str,
        statements: Sequence[str],
        options: Mapping[str, str],
        tasks: int = 2,
    ) -> int:
        script = self._folder / f"{name}.sql"
        settings = [f"SET {option}={value}" for option, value in {**OPTIONS, **options}.items()]
        script.write_text(";\n".join([*settings, *statements]), encoding="utf-8")
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{command}\t{script}\t{tasks}\n")
        stdin.flush()
        return int(_answer(stdout, self._folder))


def tables(events: Path, layout: str = "halves") -> list[str]:
    """Return the statements that make the tables of files; see ``events.py``."""
    return [
        f"CREATE TABLE {kind} ({columns}, WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND) WITH "
        f"('connector' = 'filesystem', 'path' = 'file://{events}/{layout}/{kind}', 'format' = 'parquet')"
        for kind, columns in COLUMNS.items()
    ]


@contextmanager
def flink() -> Iterator[Callable[[str], Flink]]:
    """Run the JVM until the block ends; yield a function that returns the engine of a way.

    Raises:
        PeerError: a part of it cannot be had.
    """
    jars = flink_cluster.libraries()
    if jars is None:
        raise PeerError("pip install apache-flink-libraries")
    parquet = environments.downloaded("flink_jars.sh")
    with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as name:
        folder = Path(name)
        jar = flink_cluster.compiled([PROGRAM, STREAMS], jars, folder)
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in flink_cluster.OPENED]
        classpath = ":".join(map(str, (jars / "*", parquet / "*", jar)))
        command = ["java", f"-Xmx{HEAP}", *opened, "-cp", classpath, PROGRAM.stem]
        with (folder / "log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            _answer(process.stdout, folder)
            yield partial(Flink, process, folder)
        finally:
            process.kill()
            process.communicate()


def _answer(lines: Iterator[str], folder: Path) -> str:
    """Return the program's next answer."""
    for line in lines:
        if line.startswith("ANSWER "):
            answer = line.split()[1]
            if answer == "failed":
                break
            return answer
    raise PeerError(f"Flink failed:\n{flink_cluster.tail(folder / 'log')}")
