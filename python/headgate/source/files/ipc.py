"""Arrow IPC files (Feather 2): a split is one or more adjacent record batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import ipc

from headgate.source.files.format import FileFormat, Planning, SplitRead, grouped, sliced, split_of

if TYPE_CHECKING:
    from headgate.source.files.listing import Files
    from headgate.source.files.split import FileSplit, ListedFile

_MAGIC: Final = b"ARROW1"
#: Place of recordBatches in the table Footer (File.fbs), after version, schema and dictionaries.
_RECORD_BATCHES_SLOT: Final = 3
#: struct Block { offset: long; metaDataLength: int; bodyLength: long }, padded to 24 bytes.
_BLOCK: Final = struct.Struct("<qi4xq")


class ArrowFormat(FileFormat):
    """Reads record batches by their numbers; unwanted columns are not read."""

    name = "arrow"

    def schema(self, files: Files, file: ListedFile) -> pa.Schema:
        """Return the schema in the footer."""
        with files.filesystem.open_input_file(file.path) as opened:
            return ipc.open_file(opened).schema

    def plan(self, files: Files, file: ListedFile, planning: Planning) -> list[FileSplit]:
        """Return splits of adjacent record batches."""
        with files.filesystem.open_input_file(file.path) as opened:
            ipc.open_file(opened)  # Raises a clear error for other files.
            sizes = batch_sizes(opened, file.size)
        return [
            split_of(file, self.name, start, end, size)
            for start, end, size in grouped(sizes, planning.limit())
        ]

    def read(self, read: SplitRead) -> Iterator[pa.RecordBatch]:
        """Yield the batches, with large ones in slices."""
        split = read.split
        with read.files.filesystem.open_input_file(split.path) as opened:
            schema = ipc.open_file(opened).schema
            names = set(read.wanted.names)
            places = [place for place, name in enumerate(schema.names) if name in names]
            options = ipc.IpcReadOptions(use_threads=False, included_fields=places or [0])
            if len(places) == len(schema):
                options = ipc.IpcReadOptions(use_threads=False)
            reader = ipc.open_file(opened, options=options)
            batches = (reader.get_batch(place) for place in range(split.start, split.end))
            yield from sliced(batches, split.position, read.batch_rows)


def batch_sizes(opened: Any, file_size: int) -> list[int]:
    """Return the bytes of each record batch in an Arrow IPC file, from its footer.

    The footer is a flatbuffer, and pyarrow does not expose the sizes in it. Each table starts with
    the signed offset *back* to its vtable, whose entries are the offsets of the fields.

    Args:
        opened: the file, open for random access.
        file_size: in bytes.

    Raises:
        ValueError: the file has no such footer.
    """
    end = bytes(opened.read_at(10, file_size - 10))
    if end[4:] != _MAGIC:
        raise ValueError("not an Arrow IPC file: it does not end with ARROW1")
    length = int.from_bytes(end[:4], "little")
    footer = bytes(opened.read_at(length, file_size - 10 - length))
    (table,) = struct.unpack_from("<I", footer, 0)
    (back,) = struct.unpack_from("<i", footer, table)
    vtable = table - back
    (vtable_size,) = struct.unpack_from("<H", footer, vtable)
    slot = 4 + 2 * _RECORD_BATCHES_SLOT
    if slot >= vtable_size:
        return []
    (field,) = struct.unpack_from("<H", footer, vtable + slot)
    if field == 0:
        return []
    at = table + field
    vector = at + struct.unpack_from("<I", footer, at)[0]
    (count,) = struct.unpack_from("<I", footer, vector)
    blocks = _BLOCK.iter_unpack(footer[vector + 4 : vector + 4 + count * _BLOCK.size])
    return [metadata + body for _, metadata, body in blocks]
