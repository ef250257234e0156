"""The queries of Nexmark, by the public API of ``headgate.stream``: each makes its result from the three streams.

What each one asks is in the SQL of https://github.com/nexmark/nexmark (Apache-2.0); ``benches/nexmark/oracle.py`` has it for
DuckDB. The columns have the published names.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from benches.nexmark.events import Nexmark

from headgate.stream import (
    Aggregate,
    DataStream,
    SessionWindow,
    SlidingWindow,
    Top,
    TumblingWindow,
)


def q0(nexmark: Nexmark) -> DataStream:
    """Bids as they are."""
    return nexmark.bids("auction", "bidder", "price", "dateTime", "extra")


def q1(nexmark: Nexmark) -> DataStream:
    """Prices in euros."""
    bids = nexmark.bids("auction", "bidder", "price", "dateTime", "extra")
    return bids.map(lambda batch: batch.set_column(2, "price", euros(batch["price"])))


def q2(nexmark: Nexmark) -> DataStream:
    """Bids on some auctions."""
    bids = nexmark.bids("auction", "price")
    return bids.filter(lambda batch: batch["auction"].to_numpy() % 123 == 0)


def q3(nexmark: Nexmark) -> DataStream:
    """Auctions of a category by people of some states."""
    people = nexmark.people("id", "name", "city", "state").filter(
        pc.field("state").isin(["OR", "ID", "CA"])
    )
    auctions = nexmark.auctions("id", "seller", "category").filter(pc.field("category") == 10)
    joined = auctions.key_by("seller").join(people.key_by("id"))
    return joined.map(lambda batch: batch.select(["name", "city", "state", "id"]))


def q4(nexmark: Nexmark) -> DataStream:
    """The average price of the auctions of a category, for their highest bids while they ran."""
    auctions = nexmark.auctions("id", "category", "dateTime", "expires")
    bids = nexmark.bids("auction", "price", "dateTime")
    prices = (
        while_open(auctions, bids)
        .key_by("id", "category")
        .aggregate(Aggregate("max", "price", name="final"))
    )
    return prices.key_by("category").aggregate(Aggregate("mean", "final", name="final"))


def q5(nexmark: Nexmark) -> DataStream:
    """The auctions with the most bids in the last ten seconds, every two seconds."""
    return (
        nexmark.bids("auction", "dateTime")
        .key_by("auction")
        .window(
            SlidingWindow("10s", "2s"),
            time="dateTime",
            aggregates=[Aggregate("count", name="num")],
            top=Top(1, by="num", ties=True),
        )
    )


def q6(nexmark: Nexmark) -> DataStream:
    """The average price of a seller's last ten auctions with bids, by their end."""

    def with_place(batch: pa.RecordBatch) -> pa.RecordBatch:
        ends = pc.multiply(batch["expires"].cast(pa.int64()), 1_000_000)
        return batch.add_column(0, "place", pc.add(ends, batch["id"]))

    auctions = nexmark.auctions("id", "seller", "dateTime", "expires")
    bids = nexmark.bids("auction", "price", "dateTime")
    highest = while_open(auctions, bids).key_by("id").top(1, by="price").map(with_place)
    last = highest.key_by("seller").top(10, by="place")
    return last.key_by("seller").aggregate(Aggregate("mean", "price", name="avg_price"))


def q7(nexmark: Nexmark) -> DataStream:
    """The highest bids of each ten seconds."""
    bids = nexmark.bids("auction", "bidder", "price", "dateTime", "extra")
    return bids.window(TumblingWindow("10s"), time="dateTime", top=Top(1, by="price", ties=True))


def q8(nexmark: Nexmark) -> DataStream:
    """People who opened an auction in the ten seconds in which they came."""
    people, auctions = (
        nexmark.people("id", "name", "dateTime"),
        nexmark.auctions("seller", "dateTime"),
    )
    joined = people.key_by("id").join(
        auctions.key_by("seller"), window=TumblingWindow("10s"), time="dateTime"
    )
    rows = joined.map(lambda batch: batch.select(["id", "name", "window_start"]))
    return rows.key_by("id", "window_start").deduplicate()


def q9(nexmark: Nexmark) -> DataStream:
    """Each auction with its highest bid while it ran."""
    return while_open(nexmark.auctions(), nexmark.bids()).key_by("id").top(1, by="price")


def q10(nexmark: Nexmark) -> DataStream:
    """Bids with day and minute, by which the sink makes folders."""

    def with_minute(batch: pa.RecordBatch) -> pa.RecordBatch:
        times = batch["dateTime"]
        day, minute = formatted(times, "day", "%Y-%m-%d"), formatted(times, "minute", "%H:%M")
        return batch.append_column("dt", day).append_column("hm", minute)

    return nexmark.bids("auction", "bidder", "price", "dateTime", "extra").map(with_minute)


def q11(nexmark: Nexmark) -> DataStream:
    """Bids of each bidder in a session."""
    return (
        nexmark.bids("bidder", "dateTime")
        .key_by("bidder")
        .window(
            SessionWindow("10s"), time="dateTime", aggregates=[Aggregate("count", name="bid_count")]
        )
    )


def q12(nexmark: Nexmark) -> DataStream:
    """Bids of each bidder in ten seconds of the clock."""
    bids = nexmark.bids("bidder").key_by("bidder")
    return bids.window(TumblingWindow("10s"), aggregates=[Aggregate("count", name="bid_count")])


def q13(nexmark: Nexmark) -> DataStream:
    """Bids with a value of a bounded table."""
    key, value = pa.array(range(10_000)), pa.array([str(number) for number in range(10_000)])

    def joined(batch: pa.RecordBatch) -> pa.RecordBatch:
        at = pc.index_in(pa.array(batch["auction"].to_numpy() % 10_000), value_set=key)
        return batch.append_column("value", value.take(at)).filter(at.is_valid())

    return nexmark.bids("auction", "bidder", "price", "dateTime").map(joined)


def q14(nexmark: Nexmark) -> DataStream:
    """Dear bids, with the part of the day and a count of letters by a function."""

    def computed(batch: pa.RecordBatch) -> pa.RecordBatch:
        price = euros(batch["price"])
        dear = pc.and_(pc.greater(price, Decimal(1_000_000)), pc.less(price, Decimal(50_000_000)))
        rows = batch.set_column(2, "price", price).filter(dear)
        hour = pc.hour(rows["dateTime"])
        is_day = pc.and_(pc.greater_equal(hour, 8), pc.less_equal(hour, 18))
        is_night = pc.or_(pc.less_equal(hour, 6), pc.greater_equal(hour, 20))
        part = pc.if_else(is_day, "dayTime", pc.if_else(is_night, "nightTime", "otherTime"))
        rows = rows.append_column("bidTimeType", part)
        return rows.append_column("c_counts", pc.count_substring(rows["extra"], "c"))

    return nexmark.bids("auction", "bidder", "price", "dateTime", "extra").map(computed)


def q15(nexmark: Nexmark) -> DataStream:
    """Bids, bidders and auctions of each day, by ranks of the price."""
    bids = nexmark.bids("auction", "bidder", "price", "dateTime")
    return bids.window(TumblingWindow("1 day"), time="dateTime", aggregates=[*BIDS, *PARTIES])


def q16(nexmark: Nexmark) -> DataStream:
    """The same of each channel, with the last time."""
    bids = nexmark.bids("auction", "bidder", "price", "channel", "dateTime").key_by("channel")
    aggregates = [Aggregate("max", "dateTime", name="last"), *BIDS, *PARTIES]
    return bids.window(TumblingWindow("1 day"), time="dateTime", aggregates=aggregates)


def q17(nexmark: Nexmark) -> DataStream:
    """Bids and prices of each auction and day."""
    bids = nexmark.bids("auction", "price", "dateTime").map(
        lambda batch: batch.append_column("day", formatted(batch["dateTime"], "day", "%Y-%m-%d"))
    )
    prices = [Aggregate(kind, "price") for kind in ("min", "max", "mean", "sum")]
    return bids.key_by("auction", "day").aggregate(*BIDS, *prices)


def q18(nexmark: Nexmark) -> DataStream:
    """The last bid of each bidder on each auction."""
    return nexmark.bids().key_by("bidder", "auction").keep_last(by="dateTime")


def q19(nexmark: Nexmark) -> DataStream:
    """The ten highest bids on each auction."""
    return nexmark.bids().key_by("auction").top(10, by="price", rank="rank_number")


def q20(nexmark: Nexmark) -> DataStream:
    """Bids with their auctions, of one category."""
    auctions = nexmark.auctions().filter(pc.field("category") == 10)
    bids = nexmark.bids("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
    return bids.key_by("auction").join(auctions.key_by("id"), suffixes=("", "_auction"))


def q21(nexmark: Nexmark) -> DataStream:
    """The number of the channel, by its name or from the URL."""
    known = pa.array(["apple", "google", "facebook", "baidu"])

    def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
        place = pc.index_in(pc.utf8_lower(batch["channel"]), value_set=known)
        of_url = pc.extract_regex(batch["url"], "(?:&|^)channel_id=(?P<id>[^&]*)")
        number = pc.coalesce(place.cast(pa.string()), pc.struct_field(of_url, "id"))
        return (
            batch.drop_columns("url").append_column("channel_id", number).filter(number.is_valid())
        )

    return nexmark.bids("auction", "bidder", "price", "channel", "url").map(numbered)


def q22(nexmark: Nexmark) -> DataStream:
    """The first folders of the URL."""

    def folders(batch: pa.RecordBatch) -> pa.RecordBatch:
        parts, rows = pc.split_pattern(batch["url"], "/"), batch.drop_columns("url")
        for number in (1, 2, 3):
            rows = rows.append_column(f"dir{number}", pc.list_element(parts, number + 2))
        return rows

    return nexmark.bids("auction", "bidder", "price", "channel", "url").map(folders)


def q23(nexmark: Nexmark) -> DataStream:
    """Bids with their bidder, and with each auction that the bidder opened."""
    bids = nexmark.bids("bidder", "price", "channel", "url", "extra").key_by("bidder")
    people = nexmark.people("id", "name", "emailAddress", "creditCard", "city", "state", "extra")
    of_people = bids.join(people.key_by("id"), suffixes=("", "_person"))
    return of_people.key_by("bidder").join(
        nexmark.auctions().key_by("seller"), suffixes=("", "_auction")
    )


#: Numbers of bids, bidders and auctions, of all prices and of three ranks of prices.
RANKS = {
    "total": None,
    "rank1": pc.field("price") < 10_000,
    "rank2": (pc.field("price") >= 10_000) & (pc.field("price") < 1_000_000),
    "rank3": pc.field("price") >= 1_000_000,
}
BIDS = [Aggregate("count", where=where, name=f"{rank}_bids") for rank, where in RANKS.items()]
PARTIES = [
    Aggregate("count_distinct", column, where=where, name=f"{rank}_{column}s")
    for column in ("bidder", "auction")
    for rank, where in RANKS.items()
]


def while_open(auctions: DataStream, bids: DataStream) -> DataStream:
    """Return auctions with the bids from their start to their end."""
    return auctions.key_by("id").join(
        bids.key_by("auction"),
        within=("0s", pc.field("expires")),
        time="dateTime",
        suffixes=("", "_bid"),
    )


def euros(price: pa.Array) -> pa.Array:
    """Return prices in euros, with three digits after the point."""
    return pc.multiply(price.cast(pa.decimal128(19)), pa.scalar(Decimal("0.908")))


def formatted(times: pa.Array, unit: str, form: str) -> pa.Array:
    """Return the day or minute of times as text."""
    units = pc.floor_temporal(times, unit=unit).dictionary_encode()
    return pc.strftime(units.dictionary, format=form).take(units.indices)


QUERIES = {
    name: query for name, query in list(globals().items()) if name[0] == "q" and name[1:].isdigit()
}
#: Of a result that is updated, the columns that name a row.
KEYS = {
    "q4": ("category",),
    "q6": ("seller",),
    "q9": ("id",),
    "q17": ("auction", "day"),
    "q18": ("bidder", "auction"),
    "q19": ("auction", "rank_number"),
}
#: Columns by which the sink of a query makes folders.
FOLDERS = {"q10": ("dt", "hm")}
