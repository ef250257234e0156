"""The last result of each window that may still change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headgate import _native
from headgate.stream.state.descriptors import ValueStateDescriptor
from headgate.stream.windows.aggregates import WINDOW_END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.stream.state.backend import KeyedStateBackend

_NAME: Final = "emitted results"


class EmittedResults:
    """Keeps the last results of windows, for updates that say what they replace.

    Args:
        backend: of the windows.
        columns: of a result, without keys and window.
        lateness: time after the end of a window in which it may change, in ms.
    """

    def __init__(
        self, backend: KeyedStateBackend, columns: Sequence[pa.Field], lateness: int
    ) -> None:
        self._backend, self._lateness = backend, lateness
        self._type = pa.struct(list(columns))
        self._state = backend.get_state(ValueStateDescriptor(_NAME, self._type))
        #: Slots of windows by the watermark after which they do not change any more.
        self._ends = _native.TimeQueue(backend.scope.memory.native)
        slots = np.flatnonzero(self._state.column.present)
        self._push(backend.space.keys(slots)[WINDOW_END].to_numpy(), slots)

    def replaced(
        self,
        keys: Sequence[pa.Array],
        starts: pa.Array,
        ends: pa.Array,
        results: Sequence[pa.Array],
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Keep results of different windows.

        Args:
            keys: key columns of the windows.
            starts: their starts, int64.
            ends: their ends, int64.
            results: the other columns.

        Returns:
            Booleans that say which windows had a result, and the columns of those results.
        """
        self._backend.set_keys([*keys, starts, ends])
        before = self._state.get()
        self._state.put(pa.StructArray.from_arrays(list(results), fields=list(self._type)))
        had = before.is_valid()
        new = np.flatnonzero(~np.asarray(had.to_numpy(zero_copy_only=False)))
        slots = self._backend.current.batch.slots
        self._push(ends.to_numpy()[new], slots[new])
        return had, before.flatten()

    def forget(self, watermark: int) -> None:
        """Forget the results of windows that do not change any more."""
        _, slots = self._ends.pop(watermark)
        self._state.column.drop(slots.to_numpy())

    def _push(self, ends: np.ndarray, slots: np.ndarray) -> None:
        times = ends - 1 + self._lateness
        self._ends.push(pa.array(times, pa.int64()), pa.array(slots, pa.int64()))
