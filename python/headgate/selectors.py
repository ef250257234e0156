"""Selectors, which choose the subpartition of each record. A callable can be a selector too.

A record is a whole batch, a bytes record or an object. A selector with ``by_rows=True`` takes each
row of a batch as a record. Selectors by column or by row compute column by column, without the GIL.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headgate._arguments import any_text, check_fields, flag, integer, refuse, text
from headgate._kinds import kind_of
from headgate.errors import SelectorError
from headgate.key_groups import check_max_parallelism, default_max_parallelism


@dataclass(frozen=True, slots=True)
class RoundRobinSelector:
    """Sends each record to the next subpartition in turn; the default.

    It balances load and does not group rows. Source: Flink's RoundRobinChannelSelector.

    >>> RoundRobinSelector(start=2)
    RoundRobinSelector(start=2, by_rows=False)

    Attributes:
        start: subpartition of the first record, modulo the number of subpartitions.
        by_rows: True if each row of a batch is a record.
    """

    start: int = 0
    by_rows: bool = False

    def __post_init__(self) -> None:
        """Refuse a negative start."""
        check_fields(self, start=integer, by_rows=flag)
        if self.start < 0:
            raise SelectorError(f"start={self.start} is negative", remedy="start=0")


@dataclass(frozen=True, slots=True)
class RebalanceSelector:
    """Sends each record to the next subpartition in turn, starting with a random one.

    Unlike :class:`RoundRobinSelector`, producers do not all start with the same consumer. Source:
    Flink's RebalancePartitioner.

    >>> RebalanceSelector(by_rows=True)
    RebalanceSelector(by_rows=True)

    Attributes:
        by_rows: True if each row of a batch is a record.
    """

    by_rows: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self, by_rows=flag)


@dataclass(frozen=True, slots=True)
class RescaleSelector:
    """Sends each record to the next subpartition of this producer's group in turn.

    Each producer writes to few subpartitions. With 2 producers and 6 subpartitions the first
    producer has subpartitions 0 to 2; with 6 producers and 2 subpartitions each producer has one.
    Source: Flink's RescalePartitioner and its pointwise distribution.

    >>> [*RescaleSelector(producer=1, num_producers=2).group(6)]
    [3, 4, 5]
    >>> [*RescaleSelector(producer=4, num_producers=6).group(2)]
    [1]

    Attributes:
        producer: number of this producer, from 0.
        num_producers: number of producers.
        by_rows: True if each row of a batch is a record.
    """

    producer: int = 0
    num_producers: int = 1
    by_rows: bool = False

    def __post_init__(self) -> None:
        """Refuse a producer number outside its range."""
        check_fields(self, producer=integer, num_producers=integer, by_rows=flag)
        if not 0 <= self.producer < self.num_producers:
            raise SelectorError(
                f"producer={self.producer} is not one of {self.num_producers} producers",
                remedy="producer= from 0 to num_producers - 1",
            )

    def group(self, num_subpartitions: int) -> range:
        """Return the subpartitions of this producer, at least one."""
        i, p, n = self.producer, self.num_producers, num_subpartitions
        if p < n:
            return range(_ceil(i * n, p), _ceil((i + 1) * n, p))
        # Subpartition j starts at producer j * p // n.
        j = ((i + 1) * n - 1) // p
        return range(j, j + 1)


@dataclass(frozen=True, slots=True)
class ShuffleSelector:
    """Sends each record to a random subpartition. Source: Flink's ShufflePartitioner.

    >>> ShuffleSelector(seed=42)
    ShuffleSelector(seed=42, by_rows=False)

    Attributes:
        seed: seed of the choices, from 0 to 2**64 - 1; random if None.
        by_rows: True if each row of a batch is a record.
    """

    seed: int | None = None
    by_rows: bool = False

    def __post_init__(self) -> None:
        """Refuse a seed of more than 64 bits."""
        check_fields(self, seed=integer, by_rows=flag)
        if self.seed is not None and not 0 <= self.seed < _SEEDS:
            raise SelectorError(f"seed={self.seed} is not from 0 to 2**64 - 1", remedy="seed=42")


@dataclass(frozen=True, slots=True)
class ForwardSelector:
    """Sends every record to subpartition 0, the producer's only consumer.

    Source: Flink's ForwardPartitioner.

    >>> ForwardSelector()
    ForwardSelector()
    """


@dataclass(frozen=True, slots=True)
class GlobalSelector:
    """Sends every record of every producer to subpartition 0. Source: Flink's GlobalPartitioner.

    >>> GlobalSelector()
    GlobalSelector()
    """


@dataclass(frozen=True, slots=True)
class HashSelector:
    """Sends each row to the subpartition where Spark's ``repartition`` would put it.

    That is ``pmod(murmur3(columns, seed 42), n)``, with the columns in the given order. Nulls do
    not change the hash. Source: Spark's Murmur3Hash expression and HashPartitioning.

    >>> HashSelector("user")
    HashSelector(columns=('user',))
    >>> HashSelector([("address", "city")])
    HashSelector(columns=(('address', 'city'),))

    Attributes:
        columns: names of the key columns: booleans, integers of 8 to 64 bits, float, double,
            string, binary, date, timestamp or decimal. A tuple names a field: the column, its field,
            the field of that, and so on.
    """

    columns: Sequence[str | tuple[str, ...]]

    def __post_init__(self) -> None:
        """Convert a single name to a tuple, and refuse no names."""
        value: Any = self.columns
        columns = (value,) if isinstance(value, str) else value
        if not isinstance(columns, Iterable) or isinstance(columns, (bytes, Mapping)):
            raise refuse(
                "columns",
                value,
                f"is {kind_of(value)}",
                "names of columns",
                'HashSelector(["user"])',
            )
        paths = tuple(columns)
        for path in paths:
            if path and not (
                isinstance(path, tuple) and all(isinstance(name, str) for name in path)
            ):
                any_text("columns", path)
        if not paths or not all(paths):
            raise SelectorError("HashSelector has no columns", remedy='HashSelector(["user"])')
        object.__setattr__(self, "columns", paths)

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """The names as paths: of a column, then of its field, and so on."""
        return [(name,) if isinstance(name, str) else tuple(name) for name in self.columns]


@dataclass(frozen=True, slots=True)
class KeyGroupSelector:
    """Sends each row to the subpartition where Flink's ``keyBy`` would put it.

    Source: Flink's KeyGroupStreamPartitioner.

    >>> KeyGroupSelector("user", max_parallelism=128)
    KeyGroupSelector(column='user', max_parallelism=128)

    Attributes:
        column: name of the key column: boolean, integers of 8 to 64 bits, float, double or string.
            No key may be null.
        max_parallelism: number of key groups, from the number of subpartitions to 32768;
            ``headgate.key_groups.default_max_parallelism`` if None.
    """

    column: str
    max_parallelism: int | None = None

    def __post_init__(self) -> None:
        """Refuse a number of key groups outside its limits."""
        text("column", self.column, "the name of a column")
        check_fields(self, max_parallelism=integer)
        if self.max_parallelism is not None:
            check_max_parallelism(self.max_parallelism)


@dataclass(frozen=True, slots=True)
class KeyedStateSelector:
    """Sends each row to the task of a streaming job that owns its key.

    Unlike :class:`KeyGroupSelector` it takes several columns, of all types that can be keys, and nulls. Source:
    Flink's KeyGroupStreamPartitioner.

    >>> KeyedStateSelector(("user", "day"), max_parallelism=128)
    KeyedStateSelector(columns=('user', 'day'), max_parallelism=128)

    Attributes:
        columns: names of the key columns.
        max_parallelism: number of key groups, from the number of subpartitions to 32768.
    """

    columns: tuple[str, ...]
    max_parallelism: int


@dataclass(frozen=True, slots=True)
class LeastLoadedSelector:
    """Sends each batch to the subpartition with the least load, and of equal ones to the next in turn.

    The load is the number of buffers that the consumer has not read: open, queued, or sent without that their credit came
    back. The writer waits only while all subpartitions are full. Source: Flink's adaptive partition selection.

    >>> LeastLoadedSelector()
    LeastLoadedSelector()
    """


@dataclass(frozen=True, slots=True)
class BroadcastSelector:
    """Sends every record to every subpartition; in memory there is one copy of it.

    >>> BroadcastSelector()
    BroadcastSelector()
    """


BuiltIn: TypeAlias = (
    RoundRobinSelector
    | RebalanceSelector
    | RescaleSelector
    | ShuffleSelector
    | ForwardSelector
    | GlobalSelector
    | HashSelector
    | KeyGroupSelector
    | BroadcastSelector
)
Selector: TypeAlias = BuiltIn | Callable[[Any], Any]
#: Selectors that the native writer computes.
NativeSelector: TypeAlias = BuiltIn | KeyedStateSelector | LeastLoadedSelector

#: Selectors whose choice depends on the records before.
PLACED_BY_ORDER: Final = (RoundRobinSelector, RebalanceSelector, RescaleSelector, ShuffleSelector)

#: Number of seeds.
_SEEDS: Final = 2**64


def native_choice(selector: NativeSelector, num_subpartitions: int) -> tuple[str, tuple[Any, ...]]:
    """Return the kind and the arguments of a selector, for the native writer."""
    n = num_subpartitions
    values: tuple[Any, ...]
    match selector:
        case RoundRobinSelector() | RebalanceSelector():
            start = (
                selector.start % n
                if isinstance(selector, RoundRobinSelector)
                else secrets.randbelow(n)
            )
            kind, values = "round_robin", (start, 0, n, selector.by_rows)
        case RescaleSelector():
            group = selector.group(n)
            kind, values = "round_robin", (0, group.start, group.stop, selector.by_rows)
        case ShuffleSelector():
            seed = secrets.randbelow(_SEEDS) if selector.seed is None else selector.seed
            kind, values = "shuffle", (seed, selector.by_rows)
        case ForwardSelector() | GlobalSelector():
            kind, values = "one", (0,)
        case HashSelector():
            kind, values = "hash", (selector.paths,)
        case KeyGroupSelector():
            groups = selector.max_parallelism or default_max_parallelism(n)
            kind, values = "key_group", (selector.column, check_max_parallelism(groups, n))
        case KeyedStateSelector():
            groups = check_max_parallelism(selector.max_parallelism, n)
            kind, values = "key_group_of_state", (list(selector.columns), groups)
        case LeastLoadedSelector():
            # Writers that all start with the same consumer would give it the most.
            kind, values = "least_loaded", (secrets.randbelow(n),)
        case BroadcastSelector():
            kind, values = "broadcast", ()
    return kind, values


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
