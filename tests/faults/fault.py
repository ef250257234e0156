"""What may happen to the bytes between two processes, drawn from a seed."""

import random
from dataclasses import dataclass

#: Towards who listens, and towards who has connected.
TO_TARGET, TO_CLIENT = 0, 1

#: They change the bytes: what arrives is not what was sent.
DAMAGES = ("flip", "drop", "duplicate", "reorder", "splice")
#: They end the connection, or one direction of it, in the middle.
ENDS = ("cut", "reset", "half-close")
#: They only take time.
DELAYS = ("delay", "pause", "throttle", "small windows")
#: Nothing arrives any more, and nobody is told.
SILENCES = ("stall", "black hole")
KINDS = DAMAGES + ENDS + DELAYS + SILENCES


@dataclass(frozen=True)
class Fault:
    """One fault of one direction; it strikes the first connection whose bytes come that far.

    Attributes:
        kind: one of `KINDS`.
        direction: `TO_TARGET` or `TO_CLIENT`.
        offset: the first byte that it concerns, counted per connection.
        length: bytes of a range: of each of the two that are reordered, of the one that is
            dropped, duplicated, or spliced in from the connection before.
        bit: which one of the byte is flipped.
        seconds: of a delay of each chunk, or of the one pause.
        rate: bytes per second of a throttle.
    """

    kind: str
    direction: int = TO_CLIENT
    offset: int = 0
    length: int = 0
    bit: int = 0
    seconds: float = 0.0
    rate: int = 0

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"no fault is called {self.kind!r}; there are {', '.join(KINDS)}")

    @classmethod
    def random(cls, seed, kinds=KINDS, lengths=(2_000, 200_000)):
        """Draw a fault; the same arguments give the same one.

        Args:
            seed: any number.
            kinds: those to draw from.
            lengths: bytes that pass in each direction when nothing happens.
        """
        chance = random.Random(seed)
        kind = chance.choice(kinds)
        # Most bytes go to the client, and most mistakes are possible there.
        direction = chance.choice([TO_CLIENT, TO_CLIENT, TO_TARGET])
        return cls(
            kind,
            direction,
            offset=chance.randrange(lengths[direction]),
            length=chance.choice([1, 4, 35, 500, 5_000]),
            bit=chance.randrange(8),
            seconds=chance.choice([0.001, 0.02, 0.2]),
            rate=chance.choice([100_000, 1_000_000]),
        )

    @property
    def span(self):
        """Bytes that must be there before it can happen."""
        spans = {"flip": 1, "reorder": 2 * self.length}
        return spans.get(self.kind, self.length) if self.kind in DAMAGES else 0

    def damaged(self, data, other=None):
        """Return what arrives in place of `span` bytes; `other` are those of the splice."""
        if self.kind == "flip":
            return bytes([data[0] ^ (1 << self.bit)])
        if self.kind == "drop":
            return b""
        if self.kind == "duplicate":
            return data + data
        if self.kind == "reorder":
            return data[self.length :] + data[: self.length]
        return data if other is None else other
