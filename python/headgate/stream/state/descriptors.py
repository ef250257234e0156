"""Descriptors of state, under Flink's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal, TypeAlias

import pyarrow as pa

from headgate._arguments import span
from headgate.errors import StateError
from headgate.stream.state.types import check_reduce, check_type

#: A function of two arrays of the same length, which combines the values at each position. It must be
#: associative; the values of a key keep their order.
ReduceFunction: TypeAlias = Callable[[pa.Array, pa.Array], pa.Array]
Reduce: TypeAlias = Literal["sum", "count", "min", "max", "first", "last"] | ReduceFunction

_REDUCES = ("sum", "count", "min", "max", "first", "last")


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """The time to live of state. Expired state is never returned, and no snapshot has it.

    >>> StateTtlConfig("1 hour").millis
    3600000

    Attributes:
        ttl: time to live, at least a millisecond, in processing time: ``"1 hour"``, or a ``timedelta``, which it becomes.
        update_type: ``"on_create_and_write"``: a write starts the time anew;
            ``"on_read_and_write"``: a read does so too.
    """

    ttl: timedelta | str
    update_type: Literal["on_create_and_write", "on_read_and_write"] = "on_create_and_write"

    def __post_init__(self) -> None:
        """Refuse a time that is not positive, and an unknown update type."""
        object.__setattr__(self, "ttl", span("ttl", self.ttl, 1))
        if self.update_type not in ("on_create_and_write", "on_read_and_write"):
            raise StateError(
                f"update_type={self.update_type!r} is not known",
                remedy='update_type="on_create_and_write" · update_type="on_read_and_write"',
            )

    @property
    def millis(self) -> int:
        """The time to live in milliseconds."""
        return span("ttl", self.ttl) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ValueStateDescriptor:
    """One value per key.

    Attributes:
        name: unique in the backend.
        type: Arrow type of the value.
        ttl: None if it never expires.
    """

    name: str
    type: pa.DataType
    ttl: StateTtlConfig | None = None

    def __post_init__(self) -> None:
        """Refuse what is no name, no type or no time to live."""
        _check(self)


@dataclass(frozen=True, slots=True)
class ReducingStateDescriptor:
    """One value per key, into which added values are combined.

    Attributes:
        name: unique in the backend.
        reduce: ``"sum"``, ``"count"``, ``"min"``, ``"max"``, ``"first"``, ``"last"``, or a function of two arrays.
        type: Arrow type of the values and of the result; an integer type for ``"count"``.
        ttl: None if it never expires.
    """

    name: str
    reduce: Reduce
    type: pa.DataType
    ttl: StateTtlConfig | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown reduction, and a type without one."""
        _check(self)
        if not callable(self.reduce) and self.reduce not in _REDUCES:
            raise StateError(
                f"reduce={self.reduce!r} is not known",
                remedy='reduce="sum" · "count" · "min" · "max" · "first" · "last" · a function of two arrays',
            )
        if self.reduce == "count" and not pa.types.is_integer(self.type):
            raise StateError(f"a count of type {self.type}", remedy="type=pa.int64()")
        if not callable(self.reduce):
            check_reduce(self.reduce, self.type, f"state {self.name!r}")


@dataclass(frozen=True, slots=True)
class ListStateDescriptor:
    """A list of values per key.

    Attributes:
        name: unique in the backend.
        type: Arrow type of an element.
        ttl: time to live of each element; None if none expires.
    """

    name: str
    type: pa.DataType
    ttl: StateTtlConfig | None = None

    def __post_init__(self) -> None:
        """Refuse what is no name, no type or no time to live."""
        _check(self)


@dataclass(frozen=True, slots=True)
class MapStateDescriptor:
    """A map per key.

    Attributes:
        name: unique in the backend.
        key_type: Arrow type of the map's keys.
        type: Arrow type of the map's values.
        ttl: time to live of each entry; None if none expires.
    """

    name: str
    key_type: pa.DataType
    type: pa.DataType
    ttl: StateTtlConfig | None = None

    def __post_init__(self) -> None:
        """Refuse what is no name, no type or no time to live."""
        _check(self)
        check_type(self.key_type, f"the map key of state {self.name!r}")


@dataclass(frozen=True, slots=True)
class BroadcastStateDescriptor:
    """One map that is the same in all tasks: see :class:`~headgate.stream.BroadcastProcessFunction`.

    Attributes:
        name: unique in the operator.
        key_type: Arrow type of the keys.
        type: Arrow type of the values.
    """

    name: str
    key_type: pa.DataType
    type: pa.DataType
    #: None: it never expires, since tasks have clocks of their own.
    ttl: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Refuse what is no name or no type."""
        _check(self)
        check_type(self.key_type, f"the key of state {self.name!r}")


@dataclass(frozen=True, slots=True)
class RowStateDescriptor:
    """The rows of one side of a join, by key.

    Attributes:
        name: unique in the backend.
        type: a struct of the columns.
        ttl: time to live of each row; None if none expires.
    """

    name: str
    type: pa.DataType
    ttl: StateTtlConfig | None = None


StateDescriptor: TypeAlias = (
    ValueStateDescriptor
    | ReducingStateDescriptor
    | ListStateDescriptor
    | MapStateDescriptor
    | RowStateDescriptor
    | BroadcastStateDescriptor
)


def _check(descriptor: StateDescriptor) -> None:
    name, ttl = descriptor.name, descriptor.ttl
    if not (name and isinstance(name, str)):
        raise StateError(f"name={name!r} is no name of a state", remedy='"total"')
    check_type(descriptor.type, f"state {name!r}")
    if ttl is not None and not isinstance(ttl, StateTtlConfig):
        raise StateError(
            f"ttl={ttl!r} of state {name!r} is no StateTtlConfig",
            remedy="ttl=StateTtlConfig(timedelta(hours=1))",
        )
