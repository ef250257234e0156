"""Results of calls since the last checkpoint, in files beside it. Decision: ADR 0060.

A file is a row of records: a length, a checksum, and rows in Arrow's IPC format. A process that is killed leaves at most a last
record that is not whole, which is not read.
"""

from __future__ import annotations

import logging
import re
import zlib
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.stream.state.files import SnapshotFolder

_LOG: Final = logging.getLogger("headgate.stream")
#: Bytes of the rows, and their crc32.
_HEAD: Final = Struct("<QI")
#: Names of files: the checkpoint behind whose barrier the results are.
_NAME: Final = re.compile(r"(\d{10})-calls\.journal", re.ASCII)
#: Folders of tasks: stage, index, operator.
_TASK: Final = re.compile(r"\d+-\d+-(.*)", re.ASCII)


class CallJournal:
    """Writes the results of one task, and reads those of all tasks of its operator.

    Files are not synced: they outlive a process, and not always a machine. They go with the next complete checkpoint, or with
    the folder of their attempt.

    Args:
        folder: of the snapshots of this task in this attempt, on a local file system.
        checkpoint: what the task continues from; 0 for none.
    """

    def __init__(self, folder: SnapshotFolder, checkpoint: int) -> None:
        self._folder = folder
        self._restored = self._checkpoint = checkpoint
        self._file: Any = None
        #: True if a file could not be written: there is none before the next checkpoint.
        self._has_failed = False

    def append(self, rows: pa.RecordBatch) -> None:
        """Write results. If that cannot be, they may be paid for again, and the log says so."""
        if self._has_failed:
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        content = sink.getvalue()
        try:
            if self._file is None:
                self._folder.storage.make_folder(self._folder.path, parents=True)
                self._file = self._folder.storage.open_output(self._path(self._checkpoint))
            # In one write, so that the file has no record without its rows.
            self._file.write(_HEAD.pack(content.size, zlib.crc32(content)) + content.to_pybytes())
            self._file.flush()
        except OSError as error:
            self._fail(error)

    def begin(self, checkpoint: int) -> None:
        """Write what follows to a new file, since a snapshot has all results so far."""
        self.close()
        self._checkpoint, self._has_failed = checkpoint, False

    def complete(self, checkpoint: int) -> None:
        """Delete what a complete checkpoint has; what cannot be deleted is tried again after the next one."""
        with suppress(SnapshotError):
            for name in self._folder.names():
                match = _NAME.fullmatch(name)
                if match and int(match[1]) < checkpoint:
                    self._folder.delete(name)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the results of all attempts that no snapshot has which this task continues from.

        Raises:
            SnapshotError: a folder or a file cannot be read.
        """
        tasks, _, task = self._folder.path.rpartition("/")
        root, of_operator = tasks.rpartition("/")[0], _operator(task)
        storage = self._folder.storage
        try:
            for entry in storage.list(root, recursive=True):
                parts = entry.path.split("/")
                match = _NAME.fullmatch(parts[-1])
                is_ours = entry.is_file and match and _operator(parts[-2]) == of_operator
                if is_ours and match and int(match[1]) >= self._restored:
                    yield from _records(storage.read(entry.path) or b"")
        except OSError as error:
            raise SnapshotError(
                f"the journals of calls in {root} cannot be read: {error}"
            ) from error

    def close(self) -> None:
        """Close the file; an error is that of its last results, and no other one's."""
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._has_failed = True
        _LOG.warning("results of calls are in no journal until the next checkpoint: %s", error)

    def _path(self, checkpoint: int) -> str:
        return f"{self._folder.path}/{checkpoint:010d}-calls.journal"


def _operator(task: str) -> str:
    match = _TASK.fullmatch(task)
    return match[1] if match else ""


def _records(content: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all whole records."""
    start = 0
    while start + _HEAD.size <= len(content):
        size, crc32 = _HEAD.unpack_from(content, start)
        start += _HEAD.size
        record = memoryview(content)[start : start + size]
        if len(record) < size or zlib.crc32(record) != crc32:
            return
        yield from pa.ipc.open_stream(pa.py_buffer(record))
        start += size
