"""Bytewax's side of the bench: one process of a dataflow, in Bytewax's own environment. Its argument is JSON.

A query is written for one row at a time. Those with state by key have a second way, ``batches``: each batch of rows is grouped
by pyarrow first, so that only one row for each key of the batch goes through the dataflow.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

#: Rows may be four seconds late, and the processes that read the two files so much apart.
GAP, LATE = timedelta(seconds=10), timedelta(seconds=60)
#: A watermark is moved by rows alone: on a busy machine the clock would make rows late.
NOW = datetime(2015, 7, 15, tzinfo=UTC)
EURO = Decimal("0.908")
HOT = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
CHANNEL = re.compile(r"(?:&|^)channel_id=([^&]*)")


class Half(StatefulSourcePartition):
    """A file of bids."""

    def __init__(
        self, path: str, columns: list[str], batch_rows: int, position: int, *, batches: bool
    ) -> None:
        self._batches = pq.ParquetFile(path).iter_batches(batch_rows, columns=columns)
        self._as_they_are = batches
        self._position = position
        for _ in range(position):
            next(self._batches)

    def next_batch(self) -> list[Any]:
        batch = next(self._batches)
        self._position += 1
        return [batch] if self._as_they_are else list(zip(*batch.to_pydict().values(), strict=True))

    def snapshot(self) -> int:
        return self._position


class Bids(FixedPartitionedSource):
    """Two files, each read by one worker."""

    def __init__(self, events: str, columns: list[str], batch_rows: int, *, batches: bool) -> None:
        self._events, self._columns, self._batches = events, columns, batches
        self._batch_rows = batch_rows

    def list_parts(self) -> list[str]:
        return ["0", "1"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Half:
        path = f"{self._events}/halves/bid/{for_part}.parquet"
        return Half(path, self._columns, self._batch_rows, resume_state or 0, batches=self._batches)


class Rows(StatelessSinkPartition):
    """Writes rows as lines, or drops them."""

    def __init__(self, path: str | None) -> None:
        self._file = None
        if path is not None:
            self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - close() closes it

    def write_batch(self, items: list[Any]) -> None:
        if self._file is not None:
            self._file.writelines(json.dumps(item, default=str) + "\n" for item in items)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Sink(DynamicSink):
    def __init__(self, path: str | None) -> None:
        self._path = path

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Rows:
        return Rows(None if self._path is None else f"{self._path}/{worker_index}.json")


def dear(row: Any) -> Any:
    auction, bidder, price, time, extra = row
    euros = EURO * price
    if not 1_000_000 < euros < 50_000_000:
        return None
    hour = time.hour
    part = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
    return auction, bidder, euros, part, time, extra, extra.count("c")


def channel(row: Any) -> Any:
    number = HOT.get(row[3].lower())
    if number is None:
        match = CHANNEL.search(row[4])
        if match is None:
            return None
        number = match.group(1)
    return (*row[:4], number)


def rank(price: int) -> int:
    return 0 if price < 10_000 else 1 if price < 1_000_000 else 2


def of_row(row: Any) -> Any:
    """Return the key of q17, and what a row adds to its value."""
    auction, price, time = row
    counts = [0, 0, 0]
    counts[rank(price)] = 1
    return f"{auction} {time:%Y-%m-%d}", (1, *counts, price, price, price)


def of_batch(batch: pa.RecordBatch) -> Any:
    """Return the same of each key of a batch."""
    price, time = batch["price"], pc.floor_temporal(batch["dateTime"], unit="day")
    ranks = [pc.less(price, 10_000), None, pc.greater_equal(price, 1_000_000)]
    ranks[1] = pc.and_not(pc.invert(ranks[0]), ranks[2])
    columns = {"auction": batch["auction"], "day": time, "price": price}
    table = pa.table(
        {**columns, **{f"r{n}": where.cast(pa.int64()) for n, where in enumerate(ranks)}}
    )
    sums = [(f"r{n}", "sum") for n in range(3)]
    aggregates = [("price", "count"), *sums, ("price", "min"), ("price", "max"), ("price", "sum")]
    groups = table.group_by(["auction", "day"]).aggregate(aggregates)
    names = ["auction", "day", *(f"{column}_{kind}" for column, kind in aggregates)]
    for auction, day, *values in zip(*(groups[name].to_pylist() for name in names), strict=True):
        yield f"{auction} {day:%Y-%m-%d}", tuple(values)


def totals(state: Any, added: Any) -> Any:
    if state is not None:
        *counts, low, high, total = (a + b for a, b in zip(state, added, strict=True))
        added = (*counts, min(state[4], added[4]), max(state[5], added[5]), total)
        del low, high
    return added, added


def with_totals(item: Any) -> Any:
    key, (count, *ranks, low, high, total) = item
    auction, day = key.split(" ")
    return (auction, day, count, *ranks, low, high, total / count, total)


def last_of_batch(batch: pa.RecordBatch) -> Any:
    """Return the last bid of each bidder and auction in a batch."""
    rows = batch.append_column("row", pa.array(range(batch.num_rows)))
    keys = pa.table(rows).sort_by("dateTime").group_by(["bidder", "auction"], use_threads=False)
    taken = batch.take(keys.aggregate([("row", "last")])["row_last"].combine_chunks())
    return [(f"{r[1]} {r[0]}", r) for r in zip(*taken.to_pydict().values(), strict=True)]


def latest(state: Any, row: Any) -> Any:
    row = row if state is None or row[5] >= state[5] else state
    return row, row


def longer(session: Any, row: Any) -> Any:
    """Return the count, first and last time of a session with one more bid."""
    time = row[1]
    count, first, last = session or (0, time, time)
    return count + 1, min(first, time), max(last, time)


def merged(session: Any, other: Any) -> Any:
    return session[0] + other[0], min(session[1], other[1]), max(session[2], other[2])


def of_session(item: Any) -> Any:
    bidder, (_, (count, first, last)) = item
    return int(bidder), count, first.replace(tzinfo=None), (last + GAP).replace(tzinfo=None)


def flow_of(query: str, way: str, events: str, rows: str | None, batch_rows: int) -> Dataflow:
    """Return the dataflow of a query."""
    columns = ["auction", "bidder", "price", "channel", "url", "dateTime", "extra"]
    columns = {
        "q2": ["auction", "price"],
        "q11": ["bidder", "dateTime"],
        "q14": ["auction", "bidder", "price", "dateTime", "extra"],
        "q17": ["auction", "price", "dateTime"],
        "q21": columns[:5],
        "q22": columns[:5],
    }.get(query, columns)
    flow = Dataflow(query)
    bids = op.input("bids", flow, Bids(events, columns, batch_rows, batches=way == "batches"))
    if query == "q2":
        result = op.filter("some", bids, lambda row: row[0] % 123 == 0)
    elif query == "q11":
        clock = win.EventClock(lambda row: row[1], LATE, lambda: NOW, lambda _: None)
        keyed = op.map(
            "keys", bids, lambda row: (str(row[0]), (row[0], row[1].replace(tzinfo=UTC)))
        )
        sessions = win.fold_window(
            "sessions",
            keyed,
            clock,
            win.SessionWindower(GAP),
            lambda: None,
            longer,
            merged,
            ordered=False,
        )
        result = op.map("rows", sessions.down, of_session)
    elif query == "q14":
        result = op.filter_map("dear", bids, dear)
    elif query == "q21":
        result = op.filter_map("channel", bids, channel)
    elif query == "q22":
        result = op.map("folders", bids, lambda row: (*row[:4], *row[4].split("/")[3:6]))
    elif query == "q17":
        keyed = (
            op.map("keys", bids, of_row) if way == "rows" else op.flat_map("keys", bids, of_batch)
        )
        result = op.map("totals", op.stateful_map("sum", keyed, totals), with_totals)
    else:
        keyed = (
            op.map("keys", bids, lambda row: (f"{row[1]} {row[0]}", row))
            if way == "rows"
            else op.flat_map("keys", bids, last_of_batch)
        )
        result = op.map("rows", op.stateful_map("last", keyed, latest), lambda item: item[1])
    op.output("out", result, Sink(rows))
    return flow


def main() -> None:
    order = json.loads(sys.argv[1])
    folder = Path(order["folder"])
    if order["process"] == 0:
        init_db_dir(folder, 1)
    flow = flow_of(
        order["query"], order["way"], order["events"], order["rows"], order["batch_rows"]
    )
    cluster_main(
        flow,
        order["addresses"],
        order["process"],
        epoch_interval=timedelta(seconds=10),
        recovery_config=RecoveryConfig(str(folder)),
    )


if __name__ == "__main__":
    main()
