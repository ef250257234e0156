"""Spark's second way: queries by key with ``transformWithStateInPandas``, state in RocksDB.

The rows of a key in a micro-batch come as frames; each processor reads them all, and returns a frame. Files are in the order of event
times, so no row is late.
"""

# ruff: noqa: N802, N803 - Spark calls these methods, and names their arguments

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, functions
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

GAP = pd.Timedelta("10s")
#: Milliseconds of a window of the clock.
TEN = 10_000
COUNTED = "bidder long, bid_count long, window_start timestamp, window_end timestamp"
TOTALS = (
    "total_bids long, rank1_bids long, rank2_bids long, rank3_bids long, min_price long, max_price long, "
    "mean_price double, sum_price long"
)
BID = "auction long, bidder long, price long, channel string, url string, dateTime timestamp, extra string"


class Sessions(StatefulProcessor):
    """q11: counts of sessions; a timer ends the last one of a bidder."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.open = handle.getValueState("open", "bid_count long, first timestamp, last timestamp")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        times = pd.concat([frame["dateTime"] for frame in rows]).sort_values()
        number = (times.diff() > GAP).cumsum()
        sessions = times.groupby(number).agg(["size", "min", "max"]).to_numpy().tolist()
        if self.open.exists():
            count, first, last = self.open.get()
            self.handle.deleteTimer(ending(last))
            if sessions[0][1] - pd.Timestamp(last) <= GAP:
                sessions[0] = [sessions[0][0] + count, pd.Timestamp(first), sessions[0][2]]
            else:
                sessions.insert(0, [count, pd.Timestamp(first), pd.Timestamp(last)])
        count, first, last = sessions.pop()
        self.open.update((count, first, last))
        self.handle.registerTimer(ending(last))
        if sessions:
            yield counted(key, sessions)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        session = self.open.get()
        self.open.clear()
        yield counted(key, [session])


class Windows(StatefulProcessor):
    """q12: counts of ten seconds of the clock; a timer ends each."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.counts = handle.getMapState("counts", "ends long", "bid_count long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        ends = timerValues.getCurrentProcessingTimeInMs() // TEN * TEN + TEN
        before = self.counts.getValue((ends,)) if self.counts.containsKey((ends,)) else None
        if before is None:
            self.handle.registerTimer(ends)
        count = sum(len(frame) for frame in rows)
        self.counts.updateValue((ends,), (count + (before[0] if before else 0),))
        yield from ()

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        ends = expiredTimerInfo.getExpiryTimeInMs()
        (count,) = self.counts.getValue((ends,))
        self.counts.removeKey((ends,))
        start, end = (pd.Timestamp(time, unit="ms") for time in (ends - TEN, ends))
        yield pd.DataFrame(
            {"bidder": [key[0]], "bid_count": count, "window_start": start, "window_end": end}
        )


class Totals(StatefulProcessor):
    """q17: bids and prices of an auction and day."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.totals = handle.getValueState("totals", TOTALS)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        price = pd.concat([frame["price"] for frame in rows])
        counts = [len(price), int((price < 10_000).sum()), 0, int((price >= 1_000_000).sum())]
        counts[2] = counts[0] - counts[1] - counts[3]
        low, high, total = int(price.min()), int(price.max()), int(price.sum())
        if self.totals.exists():
            *before, least, most, _, sum_before = self.totals.get()
            counts = [a + b for a, b in zip(counts, before, strict=True)]
            low, high, total = min(low, least), max(high, most), total + sum_before
        values = (*counts, low, high, total / counts[0], total)
        self.totals.update(values)
        names = ["auction", "day", *(column.split()[0] for column in TOTALS.split(", "))]
        yield pd.DataFrame([(*key, *values)], columns=names)


class Last(StatefulProcessor):
    """q18: the last bid of a bidder on an auction."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.bid = handle.getValueState("bid", BID)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        bids = pd.concat(list(rows))
        last = bids.iloc[[bids["dateTime"].argmax()]]
        if self.bid.exists():
            before = self.bid.get()
            if pd.Timestamp(before[5]) > last["dateTime"].iloc[0]:
                last = pd.DataFrame([before], columns=last.columns)
        self.bid.update(tuple(last.iloc[0].tolist()))
        yield last


#: Query -> its keys, processor, columns and mode of time.
QUERIES = {
    "q11": (["bidder"], Sessions, COUNTED, "EventTime"),
    "q12": (["bidder"], Windows, COUNTED, "ProcessingTime"),
    "q17": (["auction", "day"], Totals, f"auction long, day string, {TOTALS}", "None"),
    "q18": (["bidder", "auction"], Last, BID, "None"),
}


def result(query: str, bids: DataFrame) -> DataFrame:
    """Return the rows of a query."""
    keys, processor, columns, time_mode = QUERIES[query]
    if query == "q17":
        day = functions.date_format("dateTime", "yyyy-MM-dd")
        bids = bids.select("auction", "price", day.alias("day"))
    elif query == "q11":
        bids = bids.select("bidder", "dateTime")
    elif query == "q12":
        bids = bids.select("bidder")
    return bids.groupBy(*keys).transformWithStateInPandas(
        processor(), outputStructType=columns, outputMode="Update", timeMode=time_mode
    )


def ending(last: Any) -> int:
    """Return the time after which no bid belongs to a session, in ms since 1970."""
    return (pd.Timestamp(last) + GAP).value // 1_000_000 + 1


def counted(key: Any, sessions: list[Any]) -> pd.DataFrame:
    """Return the rows of sessions of a bidder."""
    rows = [
        (key[0], n, pd.Timestamp(first), pd.Timestamp(last) + GAP) for n, first, last in sessions
    ]
    return pd.DataFrame(rows, columns=["bidder", "bid_count", "window_start", "window_end"])
