"""A snapshot of a backend: frozen by the operator's thread, written by any other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from headgate.errors import SnapshotError, StateError
from headgate.stream.state.column import STAMP
from headgate.stream.state.files import (
    FILE_BYTES,
    ChunkFile,
    Manifest,
    SnapshotFolder,
    StateFiles,
)

if TYPE_CHECKING:
    from headgate.stream.state.column import Rows
    from headgate.stream.state.keys import KeySpace, Scope
    from headgate.stream.state.table import Slots

#: Rows that tell how large the others are.
_MEASURED: Final = 1 << 12
#: Slots that are put in order of their key groups at once, which takes 12 bytes of each.
_SORTED: Final = 1 << 22
#: Rows of the first batch of a state, and most rows of any. A batch has at most so many times the rows of the one before.
_FIRST_ROWS: Final = 1 << 4
_BATCH_ROWS: Final = 1 << 16
_GROWTH: Final = 4
#: Bytes of a batch, as far as its rows are as large as those before it: one of 2 GiB of strings cannot be made.
_BATCH_BYTES: Final = 1 << 25
#: Rows of which fewer in files are not worth writing all anew.
_FEW_ROWS: Final = 1 << 16
#: Bytes of files of which fewer are not worth writing all anew.
_FEW_BYTES: Final = 1 << 26
#: Most files beside those of the oldest snapshot: each manifest names all, and a restore opens all.
_MOST_FILES: Final = 256


class FrozenRows(Protocol):
    """The rows of a state at one moment."""

    space: KeySpace
    #: The slots whose rows the snapshot has.
    slots: Slots

    def read(self, slots: Slots) -> Rows:
        """Return rows of some of the slots. Any thread may call it."""

    def release(self) -> None:
        """Free the copies."""


@dataclass(frozen=True, slots=True)
class Part:
    """A state's part of a snapshot.

    Attributes:
        state: its name, kind and types, and files of older snapshots that belong to this one.
        frozen: the rows to be written.
    """

    state: StateFiles
    frozen: FrozenRows


class Snapshot:
    """A snapshot that is not written yet. The backend continues to change.

    Args:
        number: number of the snapshot.
        scope: keys and key groups of the task.
        namespace: the columns beside the key columns.
        parts: one part per state.
        watermarks: see :class:`Manifest`.
    """

    def __init__(
        self,
        number: int,
        scope: Scope,
        namespace: pa.Schema,
        parts: Sequence[Part],
        watermarks: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.number = number
        self.manifest: Manifest | None = None
        self._scope = scope
        self._namespace = namespace
        self._parts = parts
        self._watermarks = watermarks
        self._begun = False
        self._cancelled = False
        for part in parts:
            part.frozen.space.pins.add(part.frozen)

    @property
    def num_rows(self) -> int:
        """Number of rows that this snapshot writes: those that changed, and keys that are gone."""
        return sum(len(part.frozen.slots) for part in self._parts)

    @property
    def builds_on(self) -> set[str]:
        """Names of the files of earlier snapshots that belong to this one."""
        return {file.name for part in self._parts for file in part.state.files}

    def write(self, folder: SnapshotFolder) -> Manifest:
        """Write the changed rows, and then the manifest. Any thread may call it, once.

        Raises:
            SnapshotError: a file could not be written. Abort the snapshot then.
            StateError: the snapshot was written or aborted before, or is aborted meanwhile.
        """
        if self._begun or self._cancelled:
            raise StateError(f"snapshot {self.number} was written or aborted before")
        self._begun = True
        written: list[ChunkFile] = []
        try:
            manifest = self._write_all(folder, written)
        except BaseException:
            # Nobody else would delete them before the attempt is over.
            with suppress(SnapshotError):
                for file in written:
                    folder.delete(file.name)
            raise
        self.manifest = manifest
        return manifest

    def cancel(self) -> None:
        """Free the copies; a thread that writes the snapshot fails."""
        self._cancelled = True
        self._release()

    def _release(self) -> None:
        for part in self._parts:
            part.frozen.release()
            part.frozen.space.pins.discard(part.frozen)

    def _write_all(self, folder: SnapshotFolder, written: list[ChunkFile]) -> Manifest:
        """Write the files, which it adds to a list, and then the manifest."""
        states: list[StateFiles] = []
        try:
            for at, part in enumerate(self._parts):
                state, before = part.state, len(written)
                for file in folder.write_chunks(f"{self.number:010d}-{at}", self._batches(part)):
                    written.append(file)  # noqa: PERF402 - also if the next one fails
                files = (*state.files, *written[before:])
                states.append(StateFiles(state.name, state.kind, state.types, files))
        finally:
            self._release()
        self._check_not_cancelled()
        scope = self._scope
        manifest = Manifest(
            self.number,
            scope.key_schema,
            self._namespace,
            scope.key_groups,
            scope.max_parallelism,
            tuple(states),
            self._watermarks,
        )
        # From here on a manifest may name them, also if an error says that it was not written.
        written.clear()
        folder.write_manifest(manifest)
        return manifest

    def _batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        for batch in _batches(part.frozen):
            self._check_not_cancelled()
            yield batch

    def _check_not_cancelled(self) -> None:
        # Rows that are read after the copies were freed are not those of the snapshot.
        if self._cancelled:
            raise StateError(f"snapshot {self.number} was aborted while it was written")


def _batches(frozen: FrozenRows) -> Iterator[pa.RecordBatch]:
    """Yield the rows as their slots lie, which is quick to read; those of several files by key group, so that a file has few."""
    sizes = _Sizes()
    some, rest = frozen.slots[:_MEASURED], frozen.slots[_MEASURED:]
    yield from _in_turn(frozen, some, sizes)
    if sizes.bytes * len(rest) <= FILE_BYTES * sizes.rows:
        yield from _in_turn(frozen, rest, sizes)
        return
    for first in range(0, len(rest), _SORTED):
        block = rest[first : first + _SORTED]
        # Numbers of 16 bits are sorted by their digits, in a third of the time. There are at most 32,768 groups.
        groups = frozen.space.groups(block).astype(np.int16)
        yield from _in_turn(frozen, block[np.argsort(groups, kind="stable")], sizes)


class _Sizes:
    """How large the rows of a state are, and how many make the next batch."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.next = _FIRST_ROWS

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        most = min(_BATCH_ROWS, _GROWTH * batch.num_rows)
        self.next = min(most, max(1, _BATCH_BYTES * batch.num_rows // batch.nbytes))


def _in_turn(frozen: FrozenRows, slots: Slots, sizes: _Sizes) -> Iterator[pa.RecordBatch]:
    at = 0
    while at < len(slots):
        batch = _batch(frozen, slots[at : at + sizes.next])
        yield batch
        at += batch.num_rows
        sizes.add(batch)


def _batch(frozen: FrozenRows, slots: Slots) -> pa.RecordBatch:
    """Return the rows of slots."""
    rows = frozen.read(slots)
    columns = frozen.space.keys(slots)
    keys = len(frozen.space.scope.key_schema)
    arrays = {
        "group": pa.array(frozen.space.groups(slots), pa.int32()),
        "present": pa.array(rows.present),
    }
    if rows.stamps is not None:
        arrays[STAMP] = pa.array(rows.stamps, pa.int64())
    arrays["key"] = columns.select(range(keys)).to_struct_array()
    if len(frozen.space.extra):
        arrays["extra"] = columns.select(range(keys, columns.num_columns)).to_struct_array()
    if rows.values is not None:
        arrays["value"] = rows.values
    return pa.RecordBatch.from_pydict(arrays)


def columns_of(rows: pa.RecordBatch) -> list[pa.Array]:
    """Return the key columns of rows of a file, with those beside the key."""
    names = [name for name in ("key", "extra") if name in rows.schema.names]
    return [column for name in names for column in rows[name].flatten()]


def files_in(files: Sequence[ChunkFile], groups: range) -> list[ChunkFile]:
    """Return the files that may have rows of key groups."""
    return [f for f in files if f.first_group < groups.stop and f.last_group >= groups.start]


def oldest(files: Sequence[ChunkFile]) -> list[ChunkFile]:
    """Return the files of the oldest snapshot: it had each row once."""
    return [file for file in files if file.name.split("-")[0] == files[0].name.split("-")[0]]


def rows_in(file: ChunkFile, groups: range) -> int:
    """Return about how many rows of a file are of key groups, of which it has some."""
    common = min(file.last_group + 1, groups.stop) - max(file.first_group, groups.start)
    return file.rows * common // (file.last_group + 1 - file.first_group)


def are_worn(files: Sequence[ChunkFile], present: int) -> bool:
    """Return True if the files have so much more than the rows that are there that all are to be written anew.

    Every row of a file is read by a restore, also those that later files replace.
    """
    if sum(file.rows for file in files) > 2 * present + _FEW_ROWS:
        return True
    # Few rows may be large. Those of the oldest snapshot say how large.
    first = oldest(files)
    if len(files) - len(first) >= _MOST_FILES:
        return True
    rows, size = sum(file.rows for file in first), sum(file.size for file in first)
    live = size * present // max(1, rows)
    return sum(file.size for file in files) > 2 * live + _FEW_BYTES
