"""The people, auctions and bids of Nexmark, each from its event's number.

The rules are those of https://github.com/nexmark/nexmark (Apache-2.0): of 50 events the first is a person, the next three
are auctions, the rest are bids. Strings have the lengths of the crate ``nexmark`` 0.2, whose draws these are.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.source.nexmark.randoms import Randoms

PERIOD: Final = 50
AUCTIONS: Final = 3

_FIRST_ID: Final = 1000
_ACTIVE_PEOPLE: Final = 1000
_AUCTIONS_IN_FLIGHT: Final = 100
#: Sellers, bidders and auctions may be that many ids ahead of the last one.
_LEAD: Final = 10
#: Of so many people, or auctions, one is hot.
_HOT: Final = 100
_FIRST_CATEGORY: Final = 10
_CATEGORIES: Final = 5
_CHANNELS: Final = 10_000
#: Average bytes of the rows.
_PERSON_SIZE, _AUCTION_SIZE, _BID_SIZE = 200, 500, 100

_FIRST_NAMES: Final = [
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
_LAST_NAMES: Final = [
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
]
_CITIES: Final = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
_HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")

Ints = NDArray[np.int64]


class Clock:
    """Event times.

    Args:
        start: time of the event 0, in ms since 1970.
        rate: events in a second.
    """

    def __init__(self, start: int, rate: Fraction) -> None:
        self._start = start
        self._per, self._of = 1000 * rate.denominator, rate.numerator

    def times(self, events: Ints) -> Ints:
        """Return ms since 1970, rounded down."""
        return self._start + events * self._per // self._of


def columns(kind: str, events: Ints, clock: Clock) -> list[pa.Array]:
    """Return the columns of a kind, for events of this kind."""
    return _KINDS[kind](events, clock)


def people(events: Ints, clock: Clock) -> list[pa.Array]:
    """Return the columns of the people with these event numbers."""
    draw = Randoms(events)
    first, last = draw.below32(len(_FIRST_NAMES)), draw.below32(len(_LAST_NAMES))
    name = _names().take(pa.array(first * len(_LAST_NAMES) + last))
    email = _texts([draw.letters(7), "@", draw.letters(5), ".com"])
    digits = [_four_digits().take(pa.array(draw.below32(10_000))) for _ in range(4)]
    card = pc.binary_join_element_wise(*digits, " ")
    city = pa.array(_CITIES).take(pa.array(draw.below32(len(_CITIES))))
    state = pa.array(_STATES).take(pa.array(draw.below32(len(_STATES))))
    sizes = sum(
        pc.binary_length(text).to_numpy().astype(np.int64)
        for text in (name, email, card, city, state)
    )
    extra = _extra(draw, _PERSON_SIZE - 8 - sizes)
    ids = _FIRST_ID + _last_person(events)
    return [pa.array(ids), name, email, card, city, state, _times(clock.times(events)), extra]


def auctions(events: Ints, clock: Clock) -> list[pa.Array]:
    """Return the columns of the auctions with these event numbers."""
    draw = Randoms(events)
    item, description = _texts([draw.letters(20)]), _texts([draw.letters(100)])
    initial = _price(draw)
    reserve = initial + _price(draw)
    time = clock.times(events)
    horizon = clock.times(events + _AUCTIONS_IN_FLIGHT * PERIOD // AUCTIONS) - time
    expires = time + 1 + draw.below(np.maximum(2 * horizon, 1).astype(np.uint64))
    newest = _last_person(events)
    seller = _choose(draw, 4, newest // _HOT * _HOT, newest + 1, _ACTIVE_PEOPLE)
    category = _FIRST_CATEGORY + draw.below(_CATEGORIES)
    sizes = np.full(len(events), 8 + 20 + 100 + 5 * 8)
    extra = _extra(draw, _AUCTION_SIZE - sizes)
    numbers = [pa.array(_FIRST_ID + _last_auction(events)), item, description]
    prices = [pa.array(initial), pa.array(reserve), _times(time), _times(expires)]
    return [*numbers, *prices, pa.array(_FIRST_ID + seller), pa.array(category), extra]


def bids(events: Ints, clock: Clock) -> list[pa.Array]:
    """Return the columns of the bids with these event numbers."""
    draw = Randoms(events)
    newest = _last_auction(events)
    auction = _choose(draw, 2, newest // _HOT * _HOT, newest, _AUCTIONS_IN_FLIGHT, extra=1)
    person = _last_person(events)
    bidder = _choose(draw, 4, person // _HOT * _HOT + 1, person + 1, _ACTIVE_PEOPLE)
    price = _price(draw)
    hot = draw.below(2) > 0
    place = np.empty(len(events), np.int64)
    place[hot] = draw.below(len(_HOT_CHANNELS), np.flatnonzero(hot))
    rest = np.flatnonzero(~hot)
    place[rest] = len(_HOT_CHANNELS) + draw.below32(_CHANNELS, rest)
    channel, url = (texts.take(pa.array(place)) for texts in _channels())
    extra = _extra(draw, np.full(len(events), _BID_SIZE - 4 * 8))
    ids = [pa.array(_FIRST_ID + auction), pa.array(_FIRST_ID + bidder), pa.array(price)]
    return [*ids, channel, url, _times(clock.times(events)), extra]


def _last_person(events: Ints) -> Ints:
    """Return the newest person's number."""
    return events // PERIOD


def _last_auction(events: Ints) -> Ints:
    """Return the newest auction's number, for events that are no people."""
    return events // PERIOD * AUCTIONS + np.minimum(events % PERIOD, AUCTIONS) - 1


def _choose(
    draw: Randoms, ratio: int, hot: Ints, newest: Ints, active: int, *, extra: int = 0
) -> Ints:
    """Return the hot number, but for one event in ``ratio`` a number among the active ones."""
    chosen = hot.copy()
    rows = np.flatnonzero(draw.below(ratio) == 0)
    latest = newest[rows]
    number = np.minimum(latest, active)
    among = (number + _LEAD + extra).astype(np.uint64)
    chosen[rows] = latest - number + draw.below(among, rows)
    return chosen


def _price(draw: Randoms) -> Ints:
    """Return cents from 100 to 100 million, evenly by their logarithm."""
    exponent = (draw.fraction() * np.float32(6)).astype(np.float64)
    price = np.power(10.0, exponent).astype(np.float32) * np.float32(100)
    return np.floor(price.astype(np.float64) + 0.5).astype(np.int64)


def _extra(draw: Randoms, average: Ints) -> pa.Array:
    """Return texts of these average lengths, 20 % more or less."""
    delta = (average + 2) // 5
    lengths = average - delta + draw.below((2 * delta).astype(np.uint64))
    letters = draw.letters(int(lengths.max(initial=0)))
    mask = np.arange(len(letters)) < lengths[:, None]
    return _strings(letters.T[mask], lengths)


def _texts(parts: list[NDArray[np.uint8] | str]) -> pa.Array:
    """Return texts of one length, joined from letters and constants."""
    count = max(part.shape[1] for part in parts if not isinstance(part, str))
    columns = [
        np.repeat(np.frombuffer(part.encode(), np.uint8)[:, None], count, axis=1)
        if isinstance(part, str)
        else part
        for part in parts
    ]
    text = np.concatenate(columns)
    return _strings(np.ascontiguousarray(text.T).reshape(-1), np.full(count, len(text)))


def _strings(letters: NDArray[np.uint8], lengths: Ints) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = (pa.py_buffer(offsets), pa.py_buffer(letters))
    return pa.StringArray.from_buffers(len(lengths), *buffers)


def _times(times: Ints) -> pa.Array:
    return pa.array(times).cast(pa.timestamp("ms"))


@cache
def _names() -> pa.Array:
    return pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])


@cache
def _four_digits() -> pa.Array:
    return pa.array([f"{number:04}" for number in range(10_000)])


@cache
def _channels() -> tuple[pa.Array, pa.Array]:
    """Return the names and URLs of the hot channels, and after them of all others."""
    numbers = np.arange(_CHANNELS)
    draw = Randoms(numbers)
    folders = [_folders(draw) for _ in range(3)]
    base = [
        f"https://www.nexmark.com/{'/'.join(w)}/item.htm?query=1"
        for w in zip(*folders, strict=True)
    ]
    has_number = Randoms(numbers).below32(10) > 0
    urls = [
        f"{url}&channel_id={abs(_reversed_bits(number))}" if has_number[number] else url
        for number, url in enumerate(base)
    ]
    channels = [*_HOT_CHANNELS, *(f"channel-{number}" for number in numbers)]
    return pa.array(channels), pa.array([*base[: len(_HOT_CHANNELS)], *urls])


def _folders(draw: Randoms) -> list[str]:
    """Return a word of three or four letters for each event; some letters are underscores."""
    lengths = 3 + draw.below(2)
    letters = np.full((len(lengths), 4), " ", "U1")
    for place in range(4):
        rows = np.flatnonzero(lengths > place)
        letter = np.full(len(rows), "_")
        plain = draw.below32(13, rows) != 0
        letter[plain] = draw.letters(1, rows[plain]).view("S1")[0].astype("U1")
        letters[rows, place] = letter
    return ["".join(word).strip() for word in letters]


def _reversed_bits(number: int) -> int:
    """Return a number of 32 bits with a sign, whose bits are in the opposite order."""
    reverse = int(f"{number:032b}"[::-1], 2)
    return reverse - 2**32 if reverse >= 2**31 else reverse


_KINDS: Final[dict[str, Callable[[Ints, Clock], list[pa.Array]]]] = {
    "person": people,
    "auction": auctions,
    "bid": bids,
}
