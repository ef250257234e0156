"""Columns of fixed width by slot, and consistent copies of them while they change.

A snapshot freezes slots. From then on, the first write to a chunk of slots copies the chunk, and so
does the thread that writes the snapshot when it reaches a chunk that nobody has written to. So the
operator waits for the copy of the chunks that it touches only. Decision: ADR 0033.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headgate.stream.state.memory import ALL_IN_MEMORY, StateMemory, want, want_runs

Slots = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Slots per chunk, the unit of copying; a power of two.
CHUNK: Final = 1 << 12
_SHIFT: Final = CHUNK.bit_length() - 1


class SlotTable:
    """Named columns, all as long as the capacity, a multiple of :data:`CHUNK`."""

    def __init__(self, memory: StateMemory = ALL_IN_MEMORY) -> None:
        self.capacity = 0
        self.memory = memory
        self._columns: dict[str, npt.NDArray[Any]] = {}
        self._frozen: list[Frozen] = []
        self._lock = threading.Lock()

    def add(self, name: str, dtype: npt.DTypeLike) -> None:
        """Add a column of zeros."""
        with self._lock:
            self._columns[name] = self.memory.zeros(self.capacity, dtype)

    def __contains__(self, name: str) -> bool:
        """Return True if there is a column of this name."""
        return name in self._columns

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return the column itself: write to it only after :meth:`touch`."""
        return self._columns[name]

    def rows(self, slots: Slots) -> dict[str, npt.NDArray[Any]]:
        """Return the values of all columns for some slots."""
        self.want(slots)
        return {name: column[slots] for name, column in self._columns.items()}

    def want(self, slots: Slots) -> None:
        """Announce a read of slots: those in files are read at once, and not one after another."""
        for column in self._columns.values():
            want(self.memory, column, slots)

    def grow(self, slots: int) -> None:
        """Make room for slots below a number."""
        if slots <= self.capacity:
            return
        capacity = max(CHUNK, 1 << (slots - 1).bit_length())
        with self._lock:
            for name, column in self._columns.items():
                self._columns[name] = self.memory.wider(column, capacity)
            self.capacity = capacity

    def touch(self, slots: Slots) -> None:
        """Keep the old values of slots for the snapshots that still need them."""
        self.want(slots)
        if self._frozen:
            with self._lock:
                for frozen in self._frozen:
                    frozen.save(self._columns, slots)

    def freeze(self, slots: Slots) -> Frozen:
        """Return the rows of slots as they are now; release the result when it is read."""
        frozen = Frozen(self, slots)
        with self._lock:
            self._frozen.append(frozen)
        return frozen

    def read(self, frozen: Frozen, slots: Slots) -> dict[str, npt.NDArray[Any]]:
        """Return the frozen rows of some of its slots. Any thread may call it."""
        with self._lock:
            frozen.save(self._columns, slots)
            # Without slots there may be no copy.
            columns = frozen.copies if len(slots) else dict(self._columns)
        return {name: column[slots] for name, column in columns.items()}

    def release(self, frozen: Frozen) -> None:
        """Forget a frozen state."""
        with self._lock:
            if frozen in self._frozen:
                self._frozen.remove(frozen)


class Frozen:
    """The rows of some slots at one moment."""

    def __init__(self, table: SlotTable, slots: Slots) -> None:
        self.slots = slots
        self._memory = table.memory
        #: Chunks that hold frozen slots and are not copied yet.
        self._pending = np.zeros(table.capacity >> _SHIFT, np.bool_)
        self._pending[slots >> _SHIFT] = True
        #: Copies of the columns; memory is taken when a chunk is copied.
        self.copies: dict[str, npt.NDArray[Any]] = {}

    def save(self, columns: dict[str, npt.NDArray[Any]], slots: Slots) -> None:
        """Copy the chunks of some slots if they are not copied yet."""
        chunks = slots >> _SHIFT
        touched = np.zeros(len(self._pending), np.bool_)
        touched[chunks[chunks < len(touched)]] = True
        chunks = np.flatnonzero(touched & self._pending)
        if not len(chunks):
            return
        for name, column in columns.items():
            copy = self.copies.get(name)
            if copy is None:
                size = len(self._pending) << _SHIFT
                copy = self.copies[name] = self._memory.zeros(size, column.dtype)
            want_runs(column, chunks << _SHIFT, CHUNK)
            live = column[: len(copy)].reshape(-1, CHUNK)
            copy.reshape(-1, CHUNK)[chunks] = live[chunks]
        self._pending[chunks] = False


class Changes:
    """Slots that changed since the last completed snapshot, and slots that some snapshot has."""

    def __init__(self, memory: StateMemory = ALL_IN_MEMORY) -> None:
        self._memory = memory
        self.dirty: Mask = np.zeros(0, np.bool_)
        #: True for slots with a row in a file, which a later snapshot must delete if it is gone.
        self.saved: Mask = np.zeros(0, np.bool_)
        #: Of each snapshot that is not completed: slots that it has, and slots that it says are gone.
        self._snapshots: dict[int, tuple[Mask, Slots]] = {}

    def grow(self, capacity: int) -> None:
        """Make room for slots below a number."""
        self.dirty = self._memory.wider(self.dirty, capacity)
        self.saved = self._memory.wider(self.saved, capacity)

    def mark(self, slots: Slots) -> None:
        """Mark slots as changed."""
        self.dirty[slots] = True

    def take(self, snapshot: int, present: Mask, *, full: bool) -> Slots:
        """Return the slots of a snapshot, and begin to collect changes for the next one.

        A slot of the result that is not present is one whose key is to be deleted.

        Args:
            snapshot: number of the snapshot.
            present: True for slots with a value, one per slot.
            full: True if the snapshot has all slots, so that nothing is to be deleted.
        """
        mask: Mask = self._memory.wider(self.dirty, len(self.dirty))
        for earlier, _ in self._snapshots.values():
            mask[: len(earlier)] |= earlier
        gone = self.saved & ~present
        if full:
            mask |= present
        else:
            gone &= mask
        self._snapshots[snapshot] = mask, np.flatnonzero(gone)
        self.dirty = self._memory.zeros(len(self.dirty), np.bool_)
        self.saved |= mask & present
        return np.flatnonzero(mask & present if full else (mask & present) | gone)

    def complete(self, snapshot: int, present: Mask) -> None:
        """Forget the changes that a completed snapshot has; earlier ones are included."""
        if snapshot not in self._snapshots:
            return
        _, gone = self._snapshots[snapshot]
        self._snapshots = {n: parts for n, parts in self._snapshots.items() if n > snapshot}
        touched = self.dirty.copy()
        for later, _ in self._snapshots.values():
            touched[: len(later)] |= later
        self.saved[gone[~touched[gone] & ~present[gone]]] = False

    def abort(self, snapshot: int) -> None:
        """Give the changes of a snapshot that failed to the next one."""
        mask, _ = self._snapshots.pop(snapshot, (self.dirty[:0], None))
        self.dirty[: len(mask)] |= mask


def distinct(numbers: Slots) -> Slots:
    """Return each number once, in order: by a sort, which takes a tenth of the time of numpy's hashes or less."""
    ordered = np.sort(numbers)
    is_new = np.ones(len(ordered), np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def are_among(numbers: Slots, others: Slots) -> Mask:
    """Return True for each number that is among others; see :func:`distinct`."""
    others = np.sort(others)
    at = np.searchsorted(others, numbers)
    inside: Mask = at < len(others)
    inside[inside] = others[at[inside]] == numbers[inside]
    return inside


def ranges(starts: Slots, lengths: Slots) -> Slots:
    """Return the numbers from each start on, as many as its length."""
    before = np.cumsum(lengths) - lengths
    numbers: Slots = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return numbers
