"""The source of Nexmark's events: equal to a model that draws one number after another, for any splits and restarts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import OptionError
from headgate.source import Boundedness, NexmarkSource, read
from headgate.source.nexmark import NexmarkSplit, randoms
from headgate.source.registry import source_from_options
from headgate.source.testing import SourceTestBase

START = 1_436_918_400_000
KINDS = ("person", "auction", "bid")
CITIES = "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne"
FIRST = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
LAST = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
ALL_BITS = 2**64 - 1


def turned(word, bits):
    return (word << bits | word >> (64 - bits)) & ALL_BITS


class Draw:
    """Rust's SmallRng, seeded by a number, and its ranges."""

    def __init__(self, seed):
        halves, state = [], seed
        for _ in range(8):
            state = (state * 6364136223846793005 + 11634580027462260723) & ALL_BITS
            mixed, turn = (state >> 18 ^ state) >> 27 & 0xFFFFFFFF, state >> 59
            halves.append((mixed >> turn | mixed << (32 - turn)) & 0xFFFFFFFF)
        self.states = [
            low | high << 32 for low, high in zip(halves[::2], halves[1::2], strict=True)
        ]

    def next(self):
        a, b, c, d = self.states
        drawn = (turned((a + d) & ALL_BITS, 23) + a) & ALL_BITS
        c ^= a
        d ^= b
        self.states = [a ^ d, b ^ c, c ^ (b << 17 & ALL_BITS), turned(d, 45)]
        return drawn

    def below(self, bound, bits=64, zone=None):
        zone = (bound << bits - bound.bit_length()) - 1 if zone is None else zone
        while True:
            high, low = divmod((self.next() >> 64 - bits) * bound, 2**bits)
            if low <= zone:
                return high

    def letters(self, count):
        zone = randoms._LETTER_ZONE
        return "".join(chr(97 + self.below(26, 32, zone)) for _ in range(count))

    def extra(self, average):
        delta = (average + 2) // 5
        return self.letters(average - delta + self.below(2 * delta))

    def price(self):
        exponent = np.float32(self.next() >> 40) * np.float32(2**-24) * np.float32(6)
        return int(float(np.float32(10 ** float(exponent)) * np.float32(100)) + 0.5)


def url(number):
    draw = Draw(number)
    folders = []
    for _ in range(3):
        length = 3 + draw.below(2)
        folders.append(
            "".join("_" if draw.below(13, 32) == 0 else draw.letters(1) for _ in range(length))
        )
    return f"https://www.nexmark.com/{'/'.join(folders)}/item.htm?query=1"


def event(number, rate=10_000, start=START):
    """Return the kind and the row of an event, as the published generator makes it."""
    time, draw = start + number * 1000 // rate, Draw(number)
    epoch, place = divmod(number, 50)
    if place == 0:
        first, last = draw.below(11, 32), draw.below(9, 32)
        row = {
            "id": 1000 + epoch,
            "name": f"{FIRST[first]} {LAST[last]}",
            "emailAddress": f"{draw.letters(7)}@{draw.letters(5)}.com",
            "creditCard": " ".join(f"{draw.below(10_000, 32):04}" for _ in range(4)),
            "city": CITIES.split(",")[draw.below(10, 32)],
            "state": ("AZ", "CA", "ID", "OR", "WA", "WY")[draw.below(6, 32)],
        }
        size = 8 + sum(len(value) for value in row.values() if isinstance(value, str))
        return "person", {**row, "dateTime": time, "extra": draw.extra(200 - size)}
    auction = epoch * 3 + min(place - 1, 2)
    people = epoch + 1
    active = min(people, 1000)
    if place < 4:
        row = {
            "id": 1000 + auction,
            "itemName": draw.letters(20),
            "description": draw.letters(100),
            "initialBid": draw.price(),
        }
        row |= {"reserve": row["initialBid"] + draw.price(), "dateTime": time}
        horizon = start + (number + 100 * 50 // 3) * 1000 // rate - time
        row["expires"] = time + 1 + draw.below(max(2 * horizon, 1))
        hot = draw.below(4) > 0
        row["seller"] = 1000 + (
            epoch // 100 * 100 if hot else people - active + draw.below(active + 10)
        )
        row["category"] = 10 + draw.below(5)
        return "auction", {**row, "extra": draw.extra(500 - 168)}
    hot = draw.below(2) > 0
    oldest = max(0, auction - 100)
    chosen = auction // 100 * 100 if hot else oldest + draw.below(auction - oldest + 11)
    hot = draw.below(4) > 0
    bidder = epoch // 100 * 100 + 1 if hot else people - active + draw.below(active + 10)
    price = draw.price()
    if draw.below(2) > 0:
        channel = draw.below(4)
        texts = (("Google", "Facebook", "Baidu", "Apple")[channel], url(channel))
    else:
        channel = draw.below(10_000, 32)
        has_number = Draw(channel).below(10, 32) > 0
        low = int(f"{channel:032b}"[::-1], 2)
        number = abs(low - 2**32 if low >= 2**31 else low)
        texts = (
            f"channel-{channel}",
            url(channel) + (f"&channel_id={number}" if has_number else ""),
        )
    row = {"auction": 1000 + chosen, "bidder": 1000 + bidder, "price": price}
    row |= {"channel": texts[0], "url": texts[1]}
    return "bid", {**row, "dateTime": time, "extra": draw.extra(68)}


def of_kind(kind, numbers, **options):
    """Return the model's rows of a kind as a table."""
    rows = [row for type_, row in (event(n, **options) for n in numbers) if type_ == kind]
    schema = NexmarkSource(kind).schema
    columns = {name: [row[name] for row in rows] for name in schema.names}
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def table(source, number=0, splits=1, start=START, position=0):
    """Return the rows of a split as a table."""
    split = NexmarkSplit(number, splits, start, position)
    batches = [batch for batch, *_ in source.open_split(split, 1)]
    return pa.Table.from_batches(batches, source.schema)


class TestPeople(SourceTestBase):
    num_splits = 3

    def create_source(self):
        return NexmarkSource("person", 500, splits=3, batch_size=2)

    def expected_records(self):
        return of_kind("person", range(0, 500, 50))


class TestBids(SourceTestBase):
    num_splits = 3

    def create_source(self):
        return NexmarkSource("bid", 60, rate=40_000, start_time=START, splits=3, batch_size=7)

    def expected_records(self):
        return of_kind("bid", range(60), rate=40_000)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=15)
@given(first=st.integers(0, 2**40), rate=st.integers(1, 10**6), size=st.integers(1, 90))
def test_rows_equal_those_of_the_model_wherever_they_are(kind, first, rate, size):
    source = NexmarkSource(kind, first + 120, event_rate=rate, batch_size=size)
    places = {"person": 1, "auction": 3, "bid": 46}[kind]
    position = first // 50 * places
    start = 10**12
    expected = of_kind(kind, range(first // 50 * 50, first + 120), rate=rate, start=start)
    assert table(source, start=start, position=position) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_splits_batches_and_restarts_change_no_row(kind):
    source = NexmarkSource(kind, 30_003)
    whole = table(source)
    assert whole.num_rows == source.rows
    parts = [table(NexmarkSource(kind, 30_003, batch_size=100), n, 4) for n in range(4)]
    again = [table(source, 3, 4, position=100)]
    order = [(name, "ascending") for name in ("dateTime", "extra")]
    assert pa.concat_tables(parts).sort_by(order) == whole.sort_by(order)
    assert again[0] == parts[3].slice(100)


def test_rejected_letters_move_all_after_them(monkeypatch):
    monkeypatch.setattr(randoms, "_LETTER_ZONE", 2**32 - 2**27)
    rows = table(NexmarkSource("bid", 400))
    assert rows["extra"].to_pylist() == of_kind("bid", range(400))["extra"].to_pylist()


def test_the_first_event_is_that_of_the_published_crate():
    row = table(NexmarkSource("person", 1)).to_pylist()[0]
    assert row["name"] == "Vicky Noris"
    assert row["emailAddress"] == "yplkvgz@qbxfg.com"
    assert row["creditCard"] == "7878 5821 1864 2539"
    assert (row["city"], row["state"]) == ("Cheyenne", "AZ")
    assert row["extra"].startswith("lwaiyhjhrkaruidlsjilvqccyedttedeynpqmackqbwvklwuyypztn")


def test_ratios_sizes_and_prices_are_those_of_the_benchmark():
    people, auctions, bids = (table(NexmarkSource(kind, 100_000)) for kind in KINDS)
    assert [t.num_rows for t in (people, auctions, bids)] == [2000, 6000, 92_000]
    assert people["id"].to_pylist() == list(range(1000, 3000))
    assert auctions["id"].to_pylist() == list(range(1000, 7000))
    hot = pc.equal(
        pc.subtract(bids["auction"], pc.multiply(pc.divide(bids["auction"], 100), 100)), 0
    )
    assert pc.mean(hot).as_py() == pytest.approx(0.5, abs=0.02)
    exists = pc.is_in(bids["auction"], auctions["id"].combine_chunks())
    assert pc.mean(exists).as_py() > 0.9
    popular = pc.is_in(bids["channel"], pa.array(["Google", "Facebook", "Baidu", "Apple"]))
    assert pc.mean(popular).as_py() == pytest.approx(0.5, abs=0.02)
    assert pc.min(bids["price"]).as_py() >= 100
    assert pc.max(bids["price"]).as_py() <= 10**8
    assert pc.approximate_median(bids["price"]).as_py() == pytest.approx(10**5, rel=0.1)
    for rows, size in ((people, 200), (auctions, 500), (bids, 100)):
        texts = [rows[f.name] for f in rows.schema if pa.types.is_string(f.type)]
        texts = [t for t in texts if t is not rows["channel"]] if rows is bids else texts
        length = sum(pc.mean(pc.binary_length(text)).as_py() for text in texts)
        numbers = 8 * (rows.num_columns - len(texts))
        assert length + numbers == pytest.approx(size, rel=0.1) or rows is bids
    waits = pc.subtract(auctions["expires"].cast("int64"), auctions["dateTime"].cast("int64"))
    assert pc.mean(waits).as_py() == pytest.approx(167, rel=0.05)


def test_a_rate_sets_event_times_and_the_pace():
    source = NexmarkSource("bid", rate=1000, splits=4)
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    assert source.has_endless_splits
    split = NexmarkSplit(0, 4, START)
    batch, end, latest = source.next_rows(split, 0)
    assert batch.num_rows == end == 23  # the 92 bids of 0.1 s, of which a split has a quarter
    assert latest == batch["dateTime"].cast("int64")[-1].as_py() == START + 96
    pace = source.pace_of(2)(split)
    pace.took(23)
    assert 0.08 < pace.delay() <= 0.1
    assert NexmarkSource("bid").pace_of(2) is None


def test_a_source_without_a_start_time_starts_now():
    split = NexmarkSource("bid", 10, start_time=None).first_splits(1)[0]
    assert split.start > 1_700_000_000_000


def test_options_are_the_arguments():
    options = {"source": "nexmark", "kind": "auction", "events": "100", "eventrate": "10"}
    source = source_from_options({**options, "startTime": "5", "splits": "1", "batchSize": "2"})
    with read(source) as rows:
        assert [batch.num_rows for batch in rows] == [2, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("car",), {}, "kind='car'"),
        (("bid", -1), {}, "events=-1"),
        (("bid",), {"rate": 0}, "rate=0"),
        (("bid",), {"event_rate": 1e-9}, "event_rate=1e-09"),
        (("bid",), {"start_time": -1}, "start_time=-1"),
        (("bid",), {"splits": 0}, "splits=0"),
        (("bid",), {"batch_size": 0}, "batch_size=0"),
    ],
)
def test_mistakes_are_named(arguments, options, message):
    with pytest.raises(OptionError, match=message):
        NexmarkSource(*arguments, **options)
