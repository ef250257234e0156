"""A Parquet or Arrow IPC file that is being written; batches are gathered into groups."""

from __future__ import annotations

import contextlib
import zlib
from typing import Any, Final, Literal, get_args

import pyarrow as pa
from pyarrow import ipc

from headgate.errors import OptionError
from headgate.sink.failure import FAULTS

Format = Literal["parquet", "arrow"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)

#: The compressions of each format, the default first.
COMPRESSIONS: Final[dict[str, tuple[str, ...]]] = {
    "parquet": ("snappy", "zstd", "gzip", "brotli", "lz4", "none"),
    "arrow": ("none", "lz4", "zstd"),
}

#: Limits of a row group or batch, large enough to be read fast.
_GROUP_BYTES: Final = 32 << 20
_GROUP_ROWS: Final = 1 << 20


class Checksummed:
    """A stream that computes a checksum of all bytes on their way.

    Args:
        stream: takes the bytes; owned by this object.
    """

    def __init__(self, stream: Any) -> None:
        self.crc32 = 0
        self._stream = stream

    def write(self, data: Any) -> int:
        """Write bytes; return their number."""
        self.crc32 = zlib.crc32(data, self.crc32)
        return int(self._stream.write(data))

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return int(self._stream.tell())

    def flush(self) -> None:
        """Do nothing: closing writes all."""

    @property
    def closed(self) -> bool:
        """True once it is closed."""
        return bool(self._stream.closed)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class RecordFile:
    """An open file.

    Args:
        stream: takes the bytes; owned by this object.
        schema: the schema of all batches.
        file_format: ``"parquet"`` or ``"arrow"``.
        compression: one of :data:`COMPRESSIONS`.

    Raises:
        pa.ArrowException: the format cannot hold a type of the schema.
    """

    def __init__(self, stream: Any, schema: pa.Schema, file_format: str, compression: str) -> None:
        self.rows = 0
        self._stream = stream
        self._schema = schema
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        try:
            self._encoder = _encoder(stream, schema, file_format, compression)
        except BaseException:
            self._stream.close()
            raise

    @property
    def crc32(self) -> int | None:
        """The checksum of the bytes so far; None if the stream computes none."""
        return self._stream.crc32 if isinstance(self._stream, Checksummed) else None

    @property
    def bytes(self) -> int:
        """Written bytes, plus the bytes in memory of pending batches."""
        return int(self._stream.tell()) + self._pending_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        self.rows += batch.num_rows
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        self._pending_rows += batch.num_rows
        if self._pending_bytes >= _GROUP_BYTES or self._pending_rows >= _GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Encode the pending batches."""
        if self._pending_rows:
            table = pa.Table.from_batches(self._pending, schema=self._schema)
            self._encoder.write_table(table.combine_chunks())
        self._pending.clear()
        self._pending_bytes = self._pending_rows = 0

    def finish(self) -> int:
        """Finish and close the file; return its size in bytes."""
        self.flush()
        self._encoder.close()
        size = int(self._stream.tell())
        self._stream.close()
        return size

    def discard(self) -> None:
        """Close the file without finishing it."""
        self._pending.clear()
        for part in (self._encoder, self._stream):
            # The caller deletes the file, and has reported an error already.
            with contextlib.suppress(*FAULTS):
                part.close()


def compression_of(file_format: str, asked: str | None) -> str:
    """Return the compression to use.

    Raises:
        OptionError: the format or this build of pyarrow does not support it.
    """
    known = COMPRESSIONS[file_format]
    if asked is None:
        return known[0]
    if asked not in known or (asked != "none" and not pa.Codec.is_available(_codec(asked))):
        raise OptionError(
            f"compression={asked!r} is not supported by {file_format} files",
            remedy=" · ".join(f"compression={name!r}" for name in known),
        )
    return asked


def _codec(compression: str) -> str:
    return "lz4_raw" if compression == "lz4" else compression


def _encoder(stream: Any, schema: pa.Schema, file_format: str, compression: str) -> Any:
    if file_format == "arrow":
        options = ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
        return ipc.new_file(stream, schema, options=options)
    from pyarrow import parquet  # noqa: PLC0415 - slow to import, not needed for Arrow files

    # Readers that verify the checksums of pages see damage on the disk.
    return parquet.ParquetWriter(stream, schema, compression=compression, write_page_checksum=True)
