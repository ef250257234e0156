"""Values that windows keep of their rows: the state of each, and how those of several panes become one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from headgate.stream.state.descriptors import MapStateDescriptor, ReducingStateDescriptor
from headgate.stream.state.keys import Batch
from headgate.stream.state.reducing import Reduction
from headgate.stream.windows.distinct import elements, unions
from headgate.stream.windows.hyperloglog import MergedSketches
from headgate.stream.windows.top import TopRows

if TYPE_CHECKING:
    from headgate.stream.state.backend import KeyedStateBackend
    from headgate.stream.state.descriptors import Reduce
    from headgate.stream.state.table import Slots
    from headgate.stream.windows.aggregates import Accumulator

_SKETCHES: Final = MergedSketches()


class PaneState(Protocol):
    """The state of one accumulator, of the current keys of its backend."""

    def add(self, values: pa.Array) -> None:
        """Add a value per row; null adds nothing."""

    def get(self) -> pa.Array:
        """Return the value of each distinct key; null if there is none."""

    def clear(self, *, where: Any = None) -> None:
        """Remove the value of each distinct key, or of some: booleans, one per distinct key."""


def declared(backend: KeyedStateBackend, item: Accumulator, *, counts: bool = False) -> PaneState:
    """Declare the state of an accumulator.

    Args:
        backend: of the operator.
        item: the accumulator.
        counts: True for the number of distinct values in place of the values.
    """
    if item.reduce == "distinct":
        return DistinctNumber(backend, item) if counts else DistinctState(backend, item)
    if isinstance(item.reduce, TopRows):
        return _Tops(backend, item, item.reduce)
    return backend.get_state(ReducingStateDescriptor(item.name, _reduce(item), item.type))


def combined(item: Accumulator, groups: Slots, values: pa.Array, count: int) -> pa.Array:
    """Return the values of each of so many groups as one; null for a group without values.

    Args:
        item: the accumulator.
        groups: for each value, the number of its group.
        values: of the accumulator's type.
        count: number of groups.
    """
    if item.reduce == "distinct":
        return unions(groups, values, count)
    if values.null_count:
        valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
        groups, values = groups[valid], values.drop_null()
    present, reduced = Reduction(_reduce(item), item.type, item.name).of_groups(groups, values)
    if len(present) == count:
        return reduced
    place = np.full(count, -1)
    place[present] = np.arange(len(present))
    return reduced.take(pa.array(place, mask=place < 0))


def _reduce(item: Accumulator) -> Reduce:
    if item.reduce == "distinct":
        raise AssertionError("sets of values are no reduction")
    return _SKETCHES if item.reduce == "sketch" else item.reduce


class _Tops:
    """Lists of first rows: those of a batch are found before they meet the state, which few of them do."""

    def __init__(self, backend: KeyedStateBackend, item: Accumulator, rows: TopRows) -> None:
        self._state = backend.get_state(ReducingStateDescriptor(item.name, rows, item.type))
        self._current, self._rows = backend.current, rows

    def add(self, values: pa.ListArray) -> None:
        batch = self._current.batch
        keys, lists = self._rows.of_groups(batch.rows, values)
        self._current.set(replace(batch, rows=keys))
        self._state.add(lists)
        self._current.set(batch)

    def get(self) -> pa.Array:
        return self._state.get()

    def clear(self, *, where: Any = None) -> None:
        self._state.clear(where=where)


class DistinctState:
    """Sets of distinct values: a row adds to the index of them only what is new."""

    def __init__(self, backend: KeyedStateBackend, item: Accumulator) -> None:
        of = item.type.value_type
        self._state = backend.get_state(MapStateDescriptor(item.name, of, pa.bool_()))
        self._current = backend.current

    def add(self, lists: pa.ListArray) -> None:
        """Add the values of a list per row."""
        owners, values = elements(lists)
        rows = batch = self._current.batch
        if len(owners) != len(lists) or (owners[1:] == owners[:-1]).any():
            columns = batch.columns.take(pa.array(owners))
            rows = Batch(columns, batch.rows[owners], batch.slots, batch.first)
        self._current.set(rows)
        self._state.put(values, np.ones(len(values), np.bool_))
        self._current.set(batch)

    def get(self) -> pa.Array:
        """Return the values of each distinct key as a list."""
        maps = self._state.items()
        return pa.ListArray.from_arrays(maps.offsets, maps.keys)

    def clear(self, *, where: Any = None) -> None:
        """Remove the values of each distinct key, or of some."""
        self._state.clear(where=where)


class DistinctNumber(DistinctState):
    """Sets of distinct values, of which only the number counts."""

    def get(self) -> pa.Array:
        """Return the number of values of each distinct key."""
        return pa.array(self._state.lengths())
