"""Which subpartition gets which row. A callable that gets a batch and returns numbers works too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headgate.errors import SelectorError


@dataclass(frozen=True, slots=True)
class RoundRobinSelector:
    """Each record to the next subpartition in turn; the default.

    A record is a whole batch. Nothing depends on its content, so this is for even load, not for
    grouping. Source: Flink's RoundRobinChannelSelector.

    Attributes:
        start: the subpartition of the first record; taken modulo their number.
    """

    start: int = 0

    def __post_init__(self) -> None:
        """Refuse a negative start."""
        if self.start < 0:
            raise SelectorError(f"start={self.start} is negative", remedy="start=0")


@dataclass(frozen=True, slots=True)
class HashSelector:
    """Each row by the hash of its key columns, exactly where Spark's ``repartition`` puts it.

    ``pmod(murmur3(columns, seed 42), n)``, columns in the given order, nulls left out of the hash.
    Source: Spark's Murmur3Hash expression and HashPartitioning.

    Attributes:
        columns: names of the key columns: booleans, integers of 8 to 64 bits, float, double,
            string, binary, date, timestamp or decimal.
    """

    columns: Sequence[str]

    def __post_init__(self) -> None:
        """Take one name as a list of one."""
        names = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if not names:
            raise SelectorError("HashSelector has no columns", remedy='HashSelector(["user"])')
        object.__setattr__(self, "columns", names)


@dataclass(frozen=True, slots=True)
class BroadcastSelector:
    """Every record to every subpartition; in memory there is one copy of it."""


Selector: TypeAlias = RoundRobinSelector | HashSelector | BroadcastSelector | Callable[[Any], Any]
