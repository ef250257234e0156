"""PyFlink's side of the bench: q11, q17 and q18 in thread mode, in PyFlink's own Python.

``python -P pyflink_program.py ORDER``: JSON with the port of a cluster, jars, options, the query, statements of SQL that make the
tables, a file for the rows or None, the number of tasks, and a folder for ids of processes. Flink's SQL reads the columns, all else is Python for each row.
The answer, the last line printed, is JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.data_stream import DataStream
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.datastream.window import EventTimeSessionWindows
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment
from pyflink.util.java_utils import add_jars_to_context_class_loader, to_jarray

HOST = "127.0.0.1"
#: Times are ms since 1970.
MILLIS = (
    "TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', `dateTime`) * CAST(1000 AS BIGINT) "
    "+ EXTRACT(MILLISECOND FROM `dateTime`)"
)
READ = {
    "q11": f"SELECT bidder, {MILLIS} AS millis FROM bid",
    "q17": "SELECT auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`, price FROM bid",
    "q18": f"SELECT auction, bidder, price, channel, url, {MILLIS} AS millis, extra FROM bid",
}
COUNTS = ("total_bids", "rank1_bids", "rank2_bids", "rank3_bids")
#: Query -> its columns; a type of Flink's has a part of the JVM once it was used, and cannot be pickled then.
COLUMNS = {
    "q11": dict.fromkeys(("bidder", "bid_count", "window_start", "window_end"), "LONG"),
    "q17": {
        "auction": "LONG",
        "day": "STRING",
        **dict.fromkeys((*COUNTS, "min_price", "max_price"), "LONG"),
        "mean_price": "DOUBLE",
        "sum_price": "LONG",
    },
    "q18": {
        **dict.fromkeys(("auction", "bidder", "price"), "LONG"),
        **dict.fromkeys(("channel", "url"), "STRING"),
        "dateTime": "LONG",
        "extra": "STRING",
    },
}
TIMES = ("dateTime", "window_start", "window_end")


class Millis(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithSession(ProcessWindowFunction):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        leave_pid(self._folder)

    def process(self, key: int, context: Any, elements: Iterable[int]) -> Iterator[Row]:
        window = context.window()
        yield Row(key, next(iter(elements)), window.start, window.end)


class Totals(KeyedProcessFunction):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        leave_pid(self._folder)
        descriptor = ValueStateDescriptor("totals", Types.TUPLE([Types.LONG() for _ in range(7)]))
        self._totals = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Row]:
        auction, day, price = value[0], value[1], value[2]
        counts = [1, 0, 0, 0]
        counts[1 if price < 10_000 else 2 if price < 1_000_000 else 3] = 1
        totals = (*counts, price, price, price)
        before = self._totals.value()
        if before is not None:
            added = (a + b for a, b in zip(before[:4], counts, strict=True))
            low, high = min(before[4], price), max(before[5], price)
            totals = (*added, low, high, before[6] + price)
        self._totals.update(totals)
        yield Row(auction, day, *totals[:6], totals[6] / totals[0], totals[6])


class Last(KeyedProcessFunction):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        leave_pid(self._folder)
        self._last = runtime_context.get_state(ValueStateDescriptor("last", row_type("q18")))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Row]:
        last = self._last.value()
        if last is None or value[5] >= last[5]:
            last = Row(*(value[place] for place in range(7)))
            self._last.update(last)
        yield last


def leave_pid(folder: str) -> None:
    """Leave the id of this process, which shows in which mode the function runs."""
    (Path(folder) / str(os.getpid())).touch()


def result_of(query: str, bids: DataStream, folder: str) -> DataStream:
    """Return the rows of a query."""
    if query == "q17":
        keyed = bids.key_by(lambda row: f"{row[0]} {row[1]}", Types.STRING())
        return keyed.process(Totals(folder), row_type(query))
    if query == "q18":
        keyed = bids.key_by(lambda row: f"{row[1]} {row[0]}", Types.STRING())
        return keyed.process(Last(folder), row_type(query))
    late = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(4))
    timed = bids.assign_timestamps_and_watermarks(late.with_timestamp_assigner(Millis()))
    sessions = timed.key_by(lambda row: row[0], Types.LONG()).window(
        EventTimeSessionWindows.with_gap(Time.seconds(10))
    )
    return sessions.aggregate(Count(), WithSession(folder), Types.LONG(), row_type(query))


def row_type(query: str) -> Any:
    """Return the type of a query's rows."""
    columns = COLUMNS[query]
    return Types.ROW_NAMED(list(columns), [getattr(Types, kind)() for kind in columns.values()])


def run(order: dict[str, Any]) -> float:
    """Run a query; return the seconds from its start to its end."""
    query, rows = order["query"], order["rows"]
    # For this process, which plans the SQL; the cluster has the jars.
    add_jars_to_context_class_loader([Path(jar).as_uri() for jar in order["jars"]])
    configuration = Configuration()
    settings = {
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.execution-mode": "thread",
        **order["options"],
    }
    for name, value in settings.items():
        configuration.set_string(name, value)
    jvm = get_gateway().jvm
    java = jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    no_jars = to_jarray(jvm.String, [])
    remote = java.createRemoteEnvironment(
        HOST, order["rest"], configuration._j_configuration, no_jars
    )
    environment = StreamExecutionEnvironment(remote)
    environment.set_parallelism(order["tasks"])
    sql = StreamTableEnvironment.create(environment)
    for statement in order["tables"]:
        sql.execute_sql(statement)
    started = time.perf_counter()
    result = result_of(query, sql.to_data_stream(sql.sql_query(READ[query])), order["pids"])
    if rows is None:
        discarding = jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink
        result._j_data_stream.sinkTo(discarding())
        environment.execute(query)
    else:
        with result.execute_and_collect() as lines, Path(rows).open("w", encoding="utf-8") as file:
            file.write("\t".join(["kind", *COLUMNS[query]]) + "\n")
            file.writelines("\t".join(["+I", *texts(query, row)]) + "\n" for row in lines)
    return time.perf_counter() - started


def texts(query: str, row: Row) -> Iterator[str]:
    """Yield the values of a row as texts."""
    for name, value in zip(COLUMNS[query], row, strict=True):
        is_time = name in TIMES
        yield str(
            datetime.fromtimestamp(value / 1000, UTC).replace(tzinfo=None) if is_time else value
        )


if __name__ == "__main__":
    print(json.dumps({"seconds": run(json.loads(sys.argv[1]))}))
