"""The events of the Nexmark benchmark: people who open auctions and bid in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from typing import Final, Literal, Self, cast, get_args

import pyarrow as pa

from headgate.errors import PackageNotFound
from headgate.source.arguments import Texts, refuse, whole_number
from headgate.source.numbers import is_rate
from headgate.source.striped import MOST_SPLITS, Stripe, StripedSource

Kind = Literal["person", "auction", "bid"]

#: Of so many events, these places are of a kind: the first one, and their number.
PERIOD: Final = 50
PLACES: Final[dict[str, tuple[int, int]]] = {"person": (0, 1), "auction": (1, 3), "bid": (4, 46)}
#: Events in a second; times have a resolution of 1 ms.
_LEAST_RATE, _MOST_RATE = 0.001, 1_000_000_000
#: In ms since 1970, so that all later event times are valid too.
_LATEST_START: Final = 2**48
#: Midnight of 2015-07-15 in UTC, as in Apache Beam's Nexmark.
_START: Final = 1_436_918_400_000
_OPTIONS: Final = ("kind", "events", "rate", "eventRate", "startTime", "splits", "batchSize")

_TIME: Final = pa.timestamp("ms")
SCHEMAS: Final[dict[str, pa.Schema]] = {
    kind: pa.schema([pa.field(name, type_, nullable=False) for name, type_ in columns.items()])
    for kind, columns in {
        "person": {
            "id": pa.int64(),
            **dict.fromkeys(("name", "emailAddress", "creditCard", "city", "state"), pa.string()),
            "dateTime": _TIME,
            "extra": pa.string(),
        },
        "auction": {
            "id": pa.int64(),
            "itemName": pa.string(),
            "description": pa.string(),
            "initialBid": pa.int64(),
            "reserve": pa.int64(),
            "dateTime": _TIME,
            "expires": _TIME,
            "seller": pa.int64(),
            "category": pa.int64(),
            "extra": pa.string(),
        },
        "bid": {
            "auction": pa.int64(),
            "bidder": pa.int64(),
            "price": pa.int64(),
            "channel": pa.string(),
            "url": pa.string(),
            "dateTime": _TIME,
            "extra": pa.string(),
        },
    }.items()
}


@dataclass(frozen=True, slots=True)
class NexmarkSplit(Stripe):
    """Every ``splits``-th row of a kind."""

    kind = "nexmark"


class NexmarkSource(StripedSource[NexmarkSplit]):
    """The people, auctions or bids of the Nexmark benchmark, as rows for queries and for load.

    Of 50 events the first is a person, the next three are auctions, the others are bids. Sources of the three kinds with equal
    arguments have the rows of the same events: a bid's ``auction`` and ``bidder``, and an auction's ``seller``, are mostly
    ids of earlier rows. Half of the bids are for one of the last hundred auctions, three in four are of one bidder, and so
    on: rules, names and columns are those of https://github.com/nexmark/nexmark, and texts and numbers are drawn as in
    the crate ``nexmark`` 0.2. The number of an event decides on its row, so a restart, another number of splits or another
    machine gives the same rows.

    The event ``n`` has the time ``start_time + n / event_rate``, rounded down to ms, in the column ``dateTime``; times of
    a split only grow. No value is null. A split is every n-th row, and a checkpoint has its position. All splits are given
    out at the start.

    Args:
        kind: ``"person"``, ``"auction"`` or ``"bid"``.
        events: number of events of all kinds; None for a source that runs until it is stopped.
        rate: limit on the events of all kinds in a second, over all readers together; None for as many as can be. Lost
            time is not caught up.
        event_rate: events of all kinds in a second of event time; by default ``rate``, or 10,000 without one.
        start_time: event time of the first event, in ms since 1970; None for the time of the start.
        splits: number of splits; by default one per reader. It limits the readers that a restart
            with a higher parallelism can use.
        batch_size: rows in a batch, at most; with a rate a batch has at most the rows of 0.1 s.

    Raises:
        OptionError: an argument is outside its limits.
        PackageNotFound: numpy is not installed.
    """

    split_type = NexmarkSplit
    never_waits = True

    def __init__(
        self,
        kind: Kind,
        events: int | None = None,
        *,
        rate: float | None = None,
        event_rate: float | None = None,
        start_time: int | None = _START,
        splits: int | None = None,
        batch_size: int = 16_384,
    ) -> None:
        if kind not in get_args(Kind):
            raise refuse("kind", kind, "is no kind of event", " · ".join(get_args(Kind)))
        for name, value in (("rate", rate), ("event_rate", event_rate)):
            if value is not None and not (is_rate(value) and _LEAST_RATE <= value <= _MOST_RATE):
                allowed = f"a number from {_LEAST_RATE} to {_MOST_RATE:,}"
                raise refuse(name, value, "is no rate of events", allowed)
        self._kind = kind
        self._first, self._places = PLACES[kind]
        self._events = None if events is None else whole_number("events", events, 0)
        self._event_rate = Fraction(event_rate or rate or 10_000).limit_denominator(1000)
        super().__init__(
            None
            if start_time is None
            else whole_number("start_time", start_time, 0, _LATEST_START),
            None if splits is None else whole_number("splits", splits, 1, MOST_SPLITS),
            whole_number("batch_size", batch_size, 1, 2**20),
            None if rate is None else rate * self._places / PERIOD,
        )
        if find_spec("numpy") is None:
            raise PackageNotFound(
                "NexmarkSource needs numpy, which is not installed",
                asked="NexmarkSource",
                remedy='pip install "headgate[stream]" · pip install numpy',
            )

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source of ``kind`` and, optionally, the other arguments.

        Raises:
            OptionError: an option is unknown, missing or malformed.
        """
        texts = Texts(cls.__name__, options, _OPTIONS)
        return cls(
            cast("Kind", texts.text("kind")),
            texts.integer("events"),
            rate=texts.number("rate"),
            event_rate=texts.number("eventRate"),
            start_time=texts.integer("startTime", _START),
            splits=texts.integer("splits"),
            batch_size=texts.integer("batchSize", 16_384),
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the kind."""
        return SCHEMAS[self._kind]

    @property
    def name(self) -> str:
        """The kind, such as ``NexmarkSource(bid)``."""
        return f"NexmarkSource({self._kind})"

    @property
    def rows(self) -> int | None:
        """The number of rows; None for a source that has no end."""
        if self._events is None:
            return None
        periods, rest = divmod(self._events, PERIOD)
        return periods * self._places + min(max(0, rest - self._first), self._places)

    def _rows_of(self, split: NexmarkSplit, position: int, end: int) -> tuple[pa.RecordBatch, int]:
        """Return rows of the kind."""
        # numpy is slow to import, and only readers need it.
        import numpy as np  # noqa: PLC0415

        from headgate.source.nexmark.events import Clock, columns  # noqa: PLC0415

        clock = Clock(split.start, self._event_rate)
        rows = np.arange(position, end) * split.splits + split.number
        events = rows // self._places * PERIOD + self._first + rows % self._places
        batch = pa.RecordBatch.from_arrays(columns(self._kind, events, clock), schema=self.schema)
        return batch, int(clock.times(events[-1:])[0])
