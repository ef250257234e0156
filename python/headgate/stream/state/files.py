"""Files of a snapshot: Arrow IPC files with a checksum, and a manifest that is written last."""

from __future__ import annotations

import base64
import re
import secrets
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from headgate._sealed import seal, unseal
from headgate.errors import SnapshotError
from headgate.stream.state.locations import below, storage_of

MANIFEST: Final = ".manifest"
#: Bytes of batches after which a file ends.
FILE_BYTES: Final = 1 << 26
#: Files that are read while the rows of one are stored.
_READ_AHEAD: Final = 2
#: Names of files that a snapshot may consist of, and that are deleted with it.
_MANIFEST_NAME: Final = re.compile(r"(\d{10})\.manifest", re.ASCII)
_CHUNK_NAME: Final = re.compile(r"\d{10}-\d+-[0-9a-f]{16}\.arrow", re.ASCII)
#: Version of the manifest.
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class ChunkFile:
    """A file with changed rows of one state.

    Attributes:
        name: file name in the folder of the snapshot.
        size: bytes.
        crc32: checksum of all bytes.
        rows: number of rows.
        first_group: lowest key group of a row.
        last_group: highest key group of a row.
    """

    name: str
    size: int
    crc32: int
    rows: int
    first_group: int
    last_group: int


@dataclass(frozen=True, slots=True)
class StateFiles:
    """A state in a manifest.

    Attributes:
        name: name of the state.
        kind: such as ``"value"``.
        types: further types of the kind and the type of the values, as fields.
        files: the oldest first; a later row of a key replaces earlier ones.
    """

    name: str
    kind: str
    types: pa.Schema
    files: tuple[ChunkFile, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything in one task's snapshot.

    Attributes:
        snapshot: number of the snapshot.
        key_schema: the key columns.
        namespace: columns beside the keys by which state is kept, such as a window.
        key_groups: the groups of the task.
        max_parallelism: number of all groups.
        states: all states.
        watermarks: up to which windows are closed, in ms: the first group of each run of groups with one watermark.
    """

    snapshot: int
    key_schema: pa.Schema
    namespace: pa.Schema
    key_groups: range
    max_parallelism: int
    states: tuple[StateFiles, ...]
    watermarks: tuple[tuple[int, int], ...] = ()

    @property
    def names(self) -> set[str]:
        """Names of all chunk files."""
        return {file.name for state in self.states for file in state.files}

    def to_bytes(self) -> bytes:
        """Return the manifest as sealed JSON."""
        states = [
            {
                "name": state.name,
                "kind": state.kind,
                "types": _text_of(state.types),
                "files": [asdict(file) for file in state.files],
            }
            for state in self.states
        ]
        fields = {
            "format": _FORMAT,
            "snapshot": self.snapshot,
            "key_schema": _text_of(self.key_schema),
            "namespace": _text_of(self.namespace),
            "key_groups": [self.key_groups.start, self.key_groups.stop],
            "max_parallelism": self.max_parallelism,
            "states": states,
            "watermarks": self.watermarks,
        }
        return seal(fields).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Return what :meth:`to_bytes` wrote.

        Raises:
            ValueError: the bytes are no manifest, or have changed.
        """
        fields = unseal(data)
        if fields.get("format") != _FORMAT:
            raise ValueError(f"it has format {fields.get('format')}; this Headgate knows {_FORMAT}")
        states = tuple(
            StateFiles(
                state["name"],
                state["kind"],
                _schema_of(state["types"]),
                tuple(map(_chunk_file, state["files"])),
            )
            for state in fields["states"]
        )
        return cls(
            fields["snapshot"],
            _schema_of(fields["key_schema"]),
            _schema_of(fields["namespace"]),
            range(*fields["key_groups"]),
            fields["max_parallelism"],
            states,
            tuple((group, watermark) for group, watermark in fields.get("watermarks", ())),
        )


class SnapshotFolder:
    """The folder in which one task keeps its snapshots.

    Args:
        path: the folder, in the file system if one is given, else a path or URI. It is made with the first file.
        filesystem: any file system of pyarrow.
    """

    def __init__(self, path: str, filesystem: fs.FileSystem | None = None) -> None:
        #: The path or URI that opens this folder again.
        self.uri = below(path, "")
        self.storage, self.path = storage_of(path, filesystem)

    def write_chunks(self, prefix: str, batches: Iterable[pa.RecordBatch]) -> Iterator[ChunkFile]:
        """Write batches with a column ``group`` to one file or more."""
        open_file: _Chunk | None = None
        for batch in batches:
            if open_file is None:
                open_file = _Chunk(batch.schema)
            open_file.add(batch)
            if open_file.bytes >= FILE_BYTES:
                yield self._finish(prefix, open_file)
                open_file = None
        if open_file is not None:
            yield self._finish(prefix, open_file)

    def read_chunk(self, file: ChunkFile) -> pa.Table:
        """Return the rows of a file.

        Raises:
            SnapshotError: the file is missing, or its bytes are not those that were written.
        """
        return pa.ipc.open_file(self.read_whole(file.name, file.size, file.crc32)).read_all()

    def read_chunks(self, files: Sequence[ChunkFile]) -> Generator[pa.Table]:
        """Yield the rows of files in turn; other threads read the next ones meanwhile.

        Raises:
            SnapshotError: see :meth:`read_chunk`.
        """
        if len(files) < 2:
            yield from map(self.read_chunk, files)
            return
        with ThreadPoolExecutor(_READ_AHEAD, "headgate-restore") as pool:
            reads: deque[Future[pa.Table]] = deque()
            for file in files:
                reads.append(pool.submit(self.read_chunk, file))
                if len(reads) > _READ_AHEAD:
                    yield reads.popleft().result()
            while reads:
                yield reads.popleft().result()

    def read_whole(self, name: str, size: int, crc32: int) -> pa.Buffer:
        """Return the content of a file that was written with this size and checksum.

        Raises:
            SnapshotError: the file is missing, or its bytes are not those that were written.
        """
        data = self.read(name)
        if (data.size, actual := zlib.crc32(data)) != (size, crc32):
            raise SnapshotError(
                f"{self.path}/{name} is damaged",
                asked=f"{size} bytes, crc32 {crc32:08x}",
                have=f"{data.size} bytes, crc32 {actual:08x}",
            )
        return data

    def write_manifest(self, manifest: Manifest) -> None:
        """Write a manifest; from then on the snapshot can be read."""
        name = manifest_name(manifest.snapshot)
        partial = f"{name}.{secrets.token_hex(4)}.partial"
        self.write(partial, manifest.to_bytes())
        try:
            self.storage.move(f"{self.path}/{partial}", f"{self.path}/{name}")
        except OSError as error:
            raise _failed(f"{self.path}/{name} cannot be written", error) from error

    def read_manifest(self, snapshot: int) -> Manifest:
        """Return the manifest of a snapshot.

        Raises:
            SnapshotError: there is none, or it is damaged.
        """
        name = manifest_name(snapshot)
        try:
            manifest = Manifest.from_bytes(self.read(name).to_pybytes())
        except (ValueError, KeyError, TypeError, pa.ArrowInvalid) as error:
            raise SnapshotError(f"{self.path}/{name} is no manifest: {error}") from error
        if manifest.snapshot != snapshot:
            raise SnapshotError(
                f"{self.path}/{name} is the manifest of snapshot {manifest.snapshot}"
            )
        return manifest

    def snapshots(self) -> list[int]:
        """Return the numbers of all snapshots with a manifest, in order."""
        return sorted(
            int(match[1]) for name in self.names() if (match := _MANIFEST_NAME.fullmatch(name))
        )

    def names(self) -> list[str]:
        """Return the names of all files in the folder."""
        return sorted(path.rpartition("/")[2] for path in self.files())

    def files(self, *, recursive: bool = False) -> list[str]:
        """Return the paths of all files in the folder, and in those below it if asked to.

        Raises:
            SnapshotError: it cannot be listed.
        """
        try:
            entries = self.storage.list(self.path, recursive=recursive)
        except OSError as error:
            raise _failed(f"{self.path} cannot be listed", error) from error
        return [entry.path for entry in entries if entry.is_file]

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone already is no error."""
        try:
            self.storage.delete_file(f"{self.path}/{name}")
        except OSError as error:
            raise _failed(f"{self.path}/{name} cannot be deleted", error) from error

    def _finish(self, prefix: str, chunk: _Chunk) -> ChunkFile:
        data = chunk.finish()
        # A name of its own: after a restart, a snapshot of the same number must not replace files of an older one.
        name = f"{prefix}-{secrets.token_hex(8)}.arrow"
        self.write(name, data)
        first, last = chunk.groups
        return ChunkFile(name, data.size, zlib.crc32(data), chunk.rows, first, last)

    def write(self, name: str, data: Any) -> None:
        """Write a file of any content.

        Raises:
            SnapshotError: it cannot be written.
        """
        try:
            self.storage.make_folder(self.path, parents=True)
            with self.storage.open_output(f"{self.path}/{name}") as stream:
                stream.write(data)
        except OSError as error:
            with suppress(SnapshotError):  # nobody knows the name of what was begun
                self.delete(name)
            raise _failed(f"{self.path}/{name} cannot be written", error) from error

    def read(self, name: str) -> pa.Buffer:
        """Return the content of a file.

        Raises:
            SnapshotError: it cannot be read.
        """
        try:
            content = self.storage.read(f"{self.path}/{name}")
            if content is None:
                raise FileNotFoundError("there is no such file")
        except OSError as error:
            raise _failed(f"{self.path}/{name} cannot be read", error) from error
        return pa.py_buffer(content)


def _failed(problem: str, error: Exception) -> SnapshotError:
    return SnapshotError(f"{problem}: {error}", remedy=getattr(error, "remedy", ""))


def manifest_name(snapshot: int) -> str:
    """Return the name of a snapshot's manifest."""
    return f"{snapshot:010d}{MANIFEST}"


class _Chunk:
    """A chunk file in memory."""

    def __init__(self, schema: pa.Schema) -> None:
        self._stream = pa.BufferOutputStream()
        self._writer = pa.ipc.new_file(self._stream, schema)
        self.bytes = 0
        self.rows = 0
        self.groups = (0, 0)

    def add(self, batch: pa.RecordBatch) -> None:
        groups = batch["group"].to_numpy()
        first, last = int(groups.min()), int(groups.max())
        if self.rows:
            first, last = min(first, self.groups[0]), max(last, self.groups[1])
        self.groups = first, last
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        self._writer.write_batch(batch)

    def finish(self) -> pa.Buffer:
        self._writer.close()
        return self._stream.getvalue()


def _chunk_file(fields: dict[str, Any]) -> ChunkFile:
    file = ChunkFile(**fields)
    # The files that a manifest names are deleted with it.
    if not _CHUNK_NAME.fullmatch(file.name):
        raise ValueError(f"{file.name} is no name of a file of a snapshot")
    return file


def _text_of(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
