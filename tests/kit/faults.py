"""Faults of the bytes between two processes, drawn from a seed."""

import random
from dataclasses import dataclass

#: Directions: to the process that listens, and to the process that connects.
TO_TARGET, TO_CLIENT = 0, 1

#: Faults that change the bytes on the way.
DAMAGES = ("flip", "drop", "duplicate", "reorder", "splice")
#: Faults that end the connection or one direction of it.
ENDS = ("cut", "reset", "half-close")
#: Faults that only delay bytes.
DELAYS = ("delay", "pause", "throttle", "small windows")
#: Faults after which no byte arrives and the connection stays open.
SILENCES = ("stall", "black hole")
KINDS = DAMAGES + ENDS + DELAYS + SILENCES


@dataclass(frozen=True)
class Fault:
    """One fault in one direction. It strikes the first connection that reaches its offset.

    Attributes:
        kind: one of `KINDS`.
        direction: `TO_TARGET` or `TO_CLIENT`.
        offset: first affected byte, counted per connection.
        length: bytes of the affected range: dropped, duplicated, or replaced by those of the
            connection before. With "reorder", bytes of each of the two swapped ranges.
        bit: number of the flipped bit.
        seconds: delay of each chunk, or duration of the pause.
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
            raise ValueError(f"unknown fault {self.kind!r}; choose from {', '.join(KINDS)}")

    @classmethod
    def random(cls, seed, kinds=KINDS, lengths=(2_000, 200_000)):
        """Draw a fault. The same arguments give the same fault.

        Args:
            seed: any number.
            kinds: kinds to draw from.
            lengths: bytes that pass in each direction without a fault.
        """
        chance = random.Random(seed)
        kind = chance.choice(kinds)
        # Most bytes go to the client, so most errors are possible in that direction.
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
        """Number of bytes that must be collected before the fault can be applied."""
        spans = {"flip": 1, "reorder": 2 * self.length}
        return spans.get(self.kind, self.length) if self.kind in DAMAGES else 0

    def damaged(self, data, other=None):
        """Return the bytes that replace the `span` bytes `data`.

        `other` are the same bytes of the connection before, for a splice.
        """
        if self.kind == "flip":
            return bytes([data[0] ^ (1 << self.bit)])
        if self.kind == "drop":
            return b""
        if self.kind == "duplicate":
            return data + data
        if self.kind == "reorder":
            return data[self.length :] + data[: self.length]
        return data if other is None else other
