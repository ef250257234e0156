"""Keyed state of one task: what a batch's keys are, and the state of each key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate._kinds import kind_of
from headgate.errors import SnapshotError, StateError
from headgate.key_groups import check_max_parallelism
from headgate.stream.state.broadcast import BroadcastState
from headgate.stream.state.column import STAMP, Clock, Rows
from headgate.stream.state.current import CurrentBatch
from headgate.stream.state.descriptors import (
    BroadcastStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    RowStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headgate.stream.state.files import ChunkFile, Manifest, SnapshotFolder, StateFiles
from headgate.stream.state.keys import Batch, KeySpace, Scope
from headgate.stream.state.lists import ListState
from headgate.stream.state.maps import MAP_KEY, MapState
from headgate.stream.state.memory import ALL_IN_MEMORY, StateMemory
from headgate.stream.state.rows import RowState
from headgate.stream.state.snapshot import (
    Part,
    Snapshot,
    are_worn,
    columns_of,
    files_in,
    oldest,
    rows_in,
)
from headgate.stream.state.states import ReducingState, ValueState
from headgate.stream.state.timers import NO_WATERMARK, Timers
from headgate.stream.state.types import no_rows

if TYPE_CHECKING:
    from headgate.stream.state.table import Slots

State: TypeAlias = (
    ValueState | ReducingState | ListState | MapState | RowState | BroadcastState | Timers
)
#: Names of the states that are timers.
EVENT_TIMERS: Final = "event timers"
PROCESSING_TIMERS: Final = "processing timers"
#: Marks of a state in a snapshot, as metadata of its types.
Marks: TypeAlias = "dict[bytes, bytes]"
#: The reduction; and there if the state was declared before :meth:`KeyedStateBackend.opened`.
_REDUCE: Final = b"reduce"
_EARLY: Final = b"early"


def wall_clock() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class KeyedStateBackend:
    """Keyed state, read and written for a batch of keys at a time. Decision: ADR 0033.

    One thread uses it, the operator's. Other threads may write its snapshots.

    Args:
        key_schema: the key columns, of any types that Arrow can compare and Headgate can hash.
        key_groups: the groups that this task owns; all if None.
        max_parallelism: number of key groups, from 1 to 32768.
        namespace: columns that tell state of one key apart, such as a window. They follow the key columns in
            :meth:`set_keys`, and play no part in the key group.
        clock: the processing time in milliseconds since 1970.
        memory: where the state is.

    Raises:
        UnsupportedTypeError: a key column of a type that cannot be a key.
        SelectorError: a number of key groups outside its limits.
    """

    def __init__(
        self,
        key_schema: pa.Schema,
        *,
        key_groups: range | None = None,
        max_parallelism: int = 128,
        namespace: pa.Schema | None = None,
        clock: Clock = wall_clock,
        memory: StateMemory = ALL_IN_MEMORY,
    ) -> None:
        groups = range(check_max_parallelism(max_parallelism)) if key_groups is None else key_groups
        self.scope = Scope(key_schema.remove_metadata(), groups, max_parallelism, memory)
        self.space = KeySpace(self.scope, namespace)
        self.clock = clock
        self.current = CurrentBatch()
        self.states: dict[str, State] = {}
        #: Marks of each state in a snapshot, beside its types; those of restored states count until they are declared.
        self._marks: dict[str, Marks] = {}
        #: Names of states that were declared.
        self._declared: set[str] = set()
        #: True once the operator's ``open`` is over.
        self.is_open = False
        #: By key group, up to which its windows are closed, in ms; snapshots have it. Tasks whose watermarks differ at
        #: a checkpoint may become one.
        self.watermarks = np.full(max_parallelism, NO_WATERMARK)
        self._no_keys = no_rows(self.space.schema)
        self._last_number = -1
        #: Snapshots that are not completed.
        self._pending: dict[int, Snapshot] = {}
        #: Files of each state in the last completed snapshot.
        self._base: dict[str, tuple[ChunkFile, ...]] = {}

    def set_keys(self, columns: Any) -> None:
        """Set the keys that all states are about, until the next call.

        Args:
            columns: the key columns of a batch, by position: a record batch, a struct array or arrays. Nulls
                are keys too.

        Raises:
            SchemaMismatchError: columns that are not those of the key schema.
            StateError: a key of a key group that another task owns.
        """
        columns = self.space.checked(columns)
        self.current.set(None)
        self.current.set(self.space.resolve(columns))

    def set_slots(self, slots: Slots) -> None:
        """Set the keys that all states are about to those of slots, each there once; without the keys themselves."""
        numbers = np.arange(len(slots))
        self.current.set(Batch(self._no_keys, numbers, slots, numbers))

    @property
    def keys(self) -> pa.RecordBatch:
        """The distinct keys of the batch, in the order of their first rows."""
        return self.current.batch.keys

    @property
    def rows(self) -> pa.Int64Array:
        """For each row of the batch, the position of its key in :attr:`keys`."""
        return pa.array(self.current.batch.rows)

    @property
    def num_expired_values(self) -> int:
        """Number of values, elements and entries that are gone since their time to live was over."""
        return sum(state.expired for state in self.states.values())

    @property
    def size(self) -> dict[str, int]:
        """The number of ``keys``, and the bytes of their state in large blocks. Any thread may ask.

        A key counts once for each namespace, also if its state is gone and its place is not free yet. The bytes are those of
        all that has the same memory.
        """
        usage = self.scope.memory.usage
        return {
            "keys": self.space.num_keys,
            "bytes_in_memory": usage.in_memory,
            "bytes_in_files": usage.in_files,
        }

    @overload
    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState: ...
    @overload
    def get_state(self, descriptor: ReducingStateDescriptor) -> ReducingState: ...
    @overload
    def get_state(self, descriptor: ListStateDescriptor) -> ListState: ...
    @overload
    def get_state(self, descriptor: MapStateDescriptor) -> MapState: ...
    @overload
    def get_state(self, descriptor: RowStateDescriptor) -> RowState: ...
    @overload
    def get_state(self, descriptor: BroadcastStateDescriptor) -> BroadcastState: ...
    def get_state(self, descriptor: StateDescriptor) -> State:
        """Return the state of a name; declare it if it is new.

        A restored state gets its time to live and its reduction from here. If its type is a struct, the
        declared type may have more fields.

        Raises:
            StateError: the name has state of another kind or reduction.
            SchemaMismatchError: the name has state of another type.
        """
        state_class = _STATE_CLASSES.get(type(descriptor))
        if state_class is None:
            raise StateError(
                f"get_state() of {kind_of(descriptor)}",
                remedy='get_state(ValueStateDescriptor("count", pa.int64())), or that of another kind',
            )
        state = self.states.get(descriptor.name)
        if state is None:
            state = self._create(state_class, descriptor.name, _types_of(descriptor))
        elif not isinstance(state, state_class):
            raise StateError(
                f"state {descriptor.name!r} is declared as {state_class.kind}",
                have=f"a {state.kind} state of this name",
                remedy="another name · the descriptor of the other kind",
            )
        state.declare(descriptor)
        self._marks[descriptor.name] = self._marked(descriptor)
        self._declared.add(descriptor.name)
        return state

    def has_declared(self, name: str) -> bool:
        """Return True if :meth:`get_state` was called for the name; what was only restored does not count."""
        return name in self._declared

    def opened(self, *, allow_dropped: bool) -> None:
        """End the time in which the same states are declared each time: that of the operator's ``open``.

        Args:
            allow_dropped: True to drop restored states that were declared there by the job that took the snapshot, and
                are not declared now.

        Raises:
            StateError: there are such states.
        """
        self.is_open = True
        early = {name for name, marks in self._marks.items() if marks.get(_EARLY)}
        dropped = early - self._declared
        if dropped and not allow_dropped:
            raise StateError(
                f"the checkpoint has state that the function does not declare: {', '.join(sorted(dropped))}",
                have=", ".join(sorted(self._declared)) or "no state",
                remedy="the names of states as before · allow_dropped_state=True",
            )
        for name in dropped:
            self.states.pop(name).close()
            del self._marks[name]

    @property
    def event_timers(self) -> Timers:
        """Timers in event time: ``advance`` them to each watermark."""
        return self._timers(EVENT_TIMERS)

    @property
    def processing_timers(self) -> Timers:
        """Timers in processing time: ``advance`` them to the clock's time."""
        return self._timers(PROCESSING_TIMERS)

    def snapshot(self, number: int, *, savepoint: bool = False) -> Snapshot:
        """Freeze all state, without copying it; :meth:`Snapshot.write` writes it.

        The snapshot has the rows that changed since the last completed one, and names the files of earlier
        snapshots for the others. When more rows or bytes were written than twice those that are there, or 256 files, it
        has all.

        Args:
            number: greater than that of every snapshot before.
            savepoint: True if it has all rows, and no later snapshot builds on it. It is not completed.

        Raises:
            StateError: the number is not greater.
        """
        if number <= self._last_number:
            raise StateError(
                f"snapshot {number} follows snapshot {self._last_number}",
                remedy=f"a number from {self._last_number + 1}",
            )
        self._last_number = number
        parts = [self._part(state, number, savepoint=savepoint) for state in self.states.values()]
        snapshot = Snapshot(number, self.scope, self.space.extra, parts, self._runs())
        if not savepoint:
            self._pending[number] = snapshot
        return snapshot

    def complete(self, number: int) -> None:
        """Let later snapshots build on a written one; earlier ones that are not completed are aborted.

        Raises:
            StateError: the snapshot is not known, or not written.
        """
        snapshot = self._pending.get(number)
        if snapshot is None or snapshot.manifest is None:
            raise StateError(f"snapshot {number} was not written by this backend")
        self._base = {state.name: state.files for state in snapshot.manifest.states}
        for state in self.states.values():
            state.changes.complete(number, state.present)
        for earlier in [n for n in self._pending if n <= number]:
            self._pending.pop(earlier).cancel()

    def abort(self, number: int) -> None:
        """Give up a snapshot: the next one has its changes too. One that is not known is no error."""
        snapshot = self._pending.pop(number, None)
        if snapshot is not None:
            snapshot.cancel()
            for state in self.states.values():
                state.changes.abort(number)

    def close(self) -> None:
        """Free all state, whoever refers to it still. A snapshot that is being written has what it needs."""
        self.current.set(None)
        for state in self.states.values():
            state.close()
        self.space.close()
        self.states, self._pending = {}, {}

    @property
    def files_in_flight(self) -> set[str]:
        """Names of the older files that snapshots which are not completed build on. Any thread may ask."""
        return {name for snapshot in list(self._pending.values()) for name in snapshot.builds_on}

    @classmethod
    def restore(
        cls,
        snapshots: Sequence[tuple[SnapshotFolder, int]],
        *,
        key_groups: range | None = None,
        clock: Clock = wall_clock,
        memory: StateMemory = ALL_IN_MEMORY,
    ) -> Self:
        """Return a backend with the state of snapshots, as far as it is of the task's key groups.

        The parallelism may be another than that of the snapshots. State that is not declared afterwards is kept.

        Args:
            snapshots: folder and number of each task's snapshot, at least one.
            key_groups: the groups of the new task; all if None.
            clock: the processing time in milliseconds since 1970.
            memory: where the state is.

        Raises:
            SnapshotError: a file is missing or damaged, or no snapshot has one of the key groups.
            StateError: the snapshots are not of one operator.
        """
        manifests = [(folder, folder.read_manifest(number)) for folder, number in snapshots]
        first = _checked([manifest for _, manifest in manifests], key_groups)
        backend = cls(
            first.key_schema,
            key_groups=key_groups,
            max_parallelism=first.max_parallelism,
            namespace=first.namespace,
            clock=clock,
            memory=memory,
        )
        for at, (folder, manifest) in enumerate(manifests):
            for stored in manifest.states:
                # All tasks had the same.
                if not at or stored.kind != BroadcastState.kind:
                    backend._load(folder, stored)
            for group, watermark in manifest.watermarks:
                backend.watermarks[group : manifest.key_groups.stop] = watermark
        backend._last_number = max(manifest.snapshot for _, manifest in manifests)
        return backend

    def _runs(self) -> tuple[tuple[int, int], ...]:
        """Return the watermarks as a manifest has them."""
        of_task = self.scope.key_groups
        watermarks = self.watermarks[of_task.start : of_task.stop]
        first = np.flatnonzero(np.diff(watermarks, prepend=NO_WATERMARK))
        return tuple((of_task.start + int(at), int(watermarks[at])) for at in first)

    def _marked(self, descriptor: StateDescriptor) -> Marks:
        """Return what a snapshot says of a state that is declared.

        Raises:
            StateError: the snapshot that was restored says that the state was reduced in another way.
        """
        name, marks = descriptor.name, {} if self.is_open else {_EARLY: b"yes"}
        if isinstance(descriptor, ReducingStateDescriptor):
            reduce = descriptor.reduce
            marks[_REDUCE] = b"a function" if callable(reduce) else reduce.encode()
            before = self._marks.get(name, {}).get(_REDUCE, marks[_REDUCE])
            if before != marks[_REDUCE]:
                raise StateError(
                    f"state {name!r} is declared with the reduction {marks[_REDUCE].decode()}",
                    have=f"{before.decode()}, of the values in the checkpoint",
                    remedy="the reduction as before · another name",
                )
        return marks

    def _timers(self, name: str) -> Timers:
        timers = self.states.get(name)
        if timers is None:
            timers = self._create(Timers, name, pa.schema([("value", pa.int64())]))
        if not isinstance(timers, Timers):
            raise StateError(f"the state {name!r} has the name of timers", remedy="another name")
        return timers

    def _create(self, state_class: type[State], name: str, types: pa.Schema) -> State:
        state = state_class.create(name, types, self.space, self.current, self.clock)
        self.states[name] = state
        return state

    def _part(self, state: State, number: int, *, savepoint: bool) -> Part:
        files = () if savepoint else self._base.get(state.name, ())
        worn = are_worn(files, int(state.present.sum()))
        full = savepoint or state.name not in self._base or worn
        frozen = state.freeze(None if savepoint else number, full=full)
        types = state.types.with_metadata(self._marks.get(state.name))
        stored = StateFiles(state.name, state.kind, types, () if full else files)
        return Part(stored, frozen)

    def _load(self, folder: SnapshotFolder, stored: StateFiles) -> None:
        state = self.states.get(stored.name)
        if state is None:
            (state_class,) = (
                c for c in (*_STATE_CLASSES.values(), Timers) if c.kind == stored.kind
            )
            state = self._create(state_class, stored.name, stored.types)
            self._marks[stored.name] = stored.types.metadata or {}
        elif (state.kind, state.types) != (stored.kind, stored.types):
            raise StateError(
                f"state {stored.name!r} is {stored.kind} of {stored.types.types} in {folder.path}",
                have=f"{state.kind} of {state.types.types} in another snapshot",
                remedy="restore snapshots of one operator, with the same number",
            )
        groups = state.space.scope.key_groups
        files = files_in(stored.files, groups)
        state.space.reserve(sum(rows_in(file, groups) for file in oldest(files)))
        # A failure ends the threads that read.
        with closing(folder.read_chunks(files)) as chunks:
            for file, chunk in zip(files, chunks, strict=True):
                # One copy, so that no value keeps the whole file in memory.
                rows = _rows_of(chunk, file, groups).combine_chunks()
                for batch in rows.to_batches():
                    _load_rows(state, batch)


def _rows_of(rows: pa.Table, file: ChunkFile, groups: range) -> pa.Table:
    """Return the rows of a file that are of key groups."""
    if file.first_group >= groups.start and file.last_group < groups.stop:
        return rows
    group = rows["group"]
    return rows.filter(pc.and_(pc.greater_equal(group, groups.start), pc.less(group, groups.stop)))


def _load_rows(state: State, rows: pa.RecordBatch) -> None:
    columns = state.space.checked(columns_of(rows))
    batch = state.space.resolve(columns)
    values = rows["value"] if "value" in rows.schema.names else None
    present = np.asarray(rows["present"].to_numpy(zero_copy_only=False))
    stamps = np.asarray(rows[STAMP].to_numpy()) if STAMP in rows.schema.names else None
    state.load(batch.row_slots, Rows(present, stamps, values))


def _checked(manifests: Sequence[Manifest], key_groups: range | None) -> Manifest:
    """Return the first of manifests that are of one operator and have all key groups."""
    if not manifests:
        raise StateError("there is no snapshot to restore", remedy="one snapshot per task")
    first = manifests[0]
    for other in manifests[1:]:
        if (other.key_schema, other.namespace, other.max_parallelism) != (
            first.key_schema,
            first.namespace,
            first.max_parallelism,
        ):
            raise StateError(
                "the snapshots have different keys or numbers of key groups",
                remedy="restore snapshots of one operator",
            )
    wanted = np.zeros(first.max_parallelism, np.int64)
    for manifest in manifests:
        wanted[manifest.key_groups.start : manifest.key_groups.stop] += 1
    mine = range(first.max_parallelism) if key_groups is None else key_groups
    wrong = [group for group in mine if wanted[group] != 1]
    if wrong:
        raise SnapshotError(
            f"key group {wrong[0]} is in {wanted[wrong[0]]} of the snapshots",
            remedy="restore the snapshots of all tasks, each once",
        )
    return first


def _types_of(descriptor: StateDescriptor) -> pa.Schema:
    value = pa.field("value", descriptor.type)
    if isinstance(descriptor, (MapStateDescriptor, BroadcastStateDescriptor)):
        return pa.schema([pa.field(MAP_KEY, descriptor.key_type), value])
    return pa.schema([value])


_STATE_CLASSES: Final[dict[type[StateDescriptor], type[State]]] = {
    ValueStateDescriptor: ValueState,
    ReducingStateDescriptor: ReducingState,
    ListStateDescriptor: ListState,
    MapStateDescriptor: MapState,
    RowStateDescriptor: RowState,
    BroadcastStateDescriptor: BroadcastState,
}
