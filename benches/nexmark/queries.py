"""The queries of Nexmark, by the public API of ``headgate.stream``: each makes its result from the three streams.

What each one asks is in the SQL of https://github.com/nexmark/nexmark (Apache-2.0); ``benches/nexmark/oracle.py`` has it for
DuckDB. The columns have the published names.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from benches.nexmark.events import Nexmark

from headgate.stream import Aggregate, DataStream, SessionWindow


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
        price, hour = euros(batch["price"]), pc.hour(batch["dateTime"])
        is_day = pc.and_(pc.greater_equal(hour, 8), pc.less_equal(hour, 18))
        is_night = pc.or_(pc.less_equal(hour, 6), pc.greater_equal(hour, 20))
        part = pc.if_else(is_day, "dayTime", pc.if_else(is_night, "nightTime", "otherTime"))
        rows = batch.set_column(2, "price", price).append_column("bidTimeType", part)
        rows = rows.append_column("c_counts", pc.count_substring(batch["extra"], "c"))
        dear = pc.greater(price, Decimal("1000000.000"))
        return rows.filter(pc.and_(dear, pc.less(price, Decimal("50000000.000"))))

    return nexmark.bids("auction", "bidder", "price", "dateTime", "extra").map(computed)


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
#: Columns by which the sink of a query makes folders.
FOLDERS = {"q10": ("dt", "hm")}
