"""Keys that are forgotten with all their state when no row of theirs has come for a time. Source: Flink's state TTL.

Flink lets each value expire alone. Here a key has one time, so that no aggregate of it outlives another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakMethod

import numpy as np
import pyarrow as pa

from headgate.stream.state.descriptors import ValueStateDescriptor
from headgate.stream.state.lists import ListState
from headgate.stream.state.maps import MapState
from headgate.stream.state.states import SingleValue

if TYPE_CHECKING:
    from headgate.stream.state.backend import KeyedStateBackend
    from headgate.stream.state.descriptors import StateTtlConfig
    from headgate.stream.state.table import Mask, Slots

#: Name of the state: True for a key of which rows have come, with the time of the last ones.
_TIMES: Final = "times of keys"


def key_lives(backend: KeyedStateBackend, ttl: StateTtlConfig | None) -> KeyLives | None:
    """Return the times of the keys, when all other states are declared; None if they are never forgotten."""
    if ttl is not None:
        return KeyLives(backend, ttl)
    if _TIMES in backend.states:
        # A checkpoint has times, which would be wrong for a later job with a time to live.
        column = backend.get_state(ValueStateDescriptor(_TIMES, pa.bool_())).column
        column.drop(np.flatnonzero(column.present))
    return None


class KeyLives:
    """The times of all keys of an operator.

    Args:
        backend: with all other states of the operator.
        ttl: the time.
    """

    def __init__(self, backend: KeyedStateBackend, ttl: StateTtlConfig) -> None:
        self._backend = backend
        self._states = [
            state
            for name, state in backend.states.items()
            if name != _TIMES and isinstance(state, (SingleValue, ListState, MapState))
        ]
        self._times = backend.get_state(ValueStateDescriptor(_TIMES, pa.bool_(), ttl))
        column = self._times.column
        column.drop_expired = WeakMethod(self._drop)
        # Keys of a checkpoint from before there was a time live since now.
        there = np.zeros(backend.space.capacity, np.bool_)
        for state in self._states:
            if state.space is backend.space:  # a map has one of its entries
                there |= state.present[: len(there)]
        slots = np.flatnonzero(there & ~column.present[: len(there)])
        column.put(slots, pa.array(np.ones(len(slots), np.bool_)))

    def touch(self) -> None:
        """Forget what the keys of the current batch had if their time is over; it begins anew."""
        batch, column = self._backend.current.batch, self._times.column
        over = batch.slots[column.present[batch.slots] & ~column.alive(batch.slots)]
        if len(over):
            column.expired += len(over)
            self._drop(over)
            self._backend.current.set(batch)
        column.put(batch.slots, pa.array(np.ones(len(batch.slots), np.bool_)))

    def end(self, where: Mask) -> None:
        """Forget the times of some keys of the current batch, of which nothing is left."""
        self._times.column.drop(self._backend.current.batch.slots[where])

    def expire(self) -> None:
        """Forget all keys whose time is over, before a snapshot."""
        self._times.column.expire()

    def _drop(self, slots: Slots) -> None:
        self._backend.set_slots(slots)
        for state in self._states:
            state.clear()
        self._backend.current.set(None)
        self._times.column.drop(slots)
