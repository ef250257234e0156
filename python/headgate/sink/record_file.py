"""A file that is being written; batches are gathered into groups."""

from __future__ import annotations

import contextlib
import zlib
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import ipc

from headgate.errors import UnsupportedTypeError
from headgate.sink.failure import FAULTS

if TYPE_CHECKING:
    from headgate.sink.encoding import Encoding

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
        encoding: of the file.

    Raises:
        UnsupportedTypeError: the format cannot hold a type of the schema.
    """

    def __init__(self, stream: Any, schema: pa.Schema, encoding: Encoding) -> None:
        self.rows = 0
        self._stream = stream
        self._schema = schema
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        try:
            self._encoder = _encoder(stream, schema, encoding)
        except BaseException as error:
            self._stream.close()
            if not isinstance(error, pa.ArrowNotImplementedError):
                raise
            raise UnsupportedTypeError(
                f"{encoding.format} files cannot hold a column: {error}",
                have=", ".join(f"{field.name}: {field.type}" for field in schema),
            ) from error

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


def _encoder(stream: Any, schema: pa.Schema, encoding: Encoding) -> Any:
    kind, codec = encoding.format, encoding.compression
    if kind == "arrow":
        settings = ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
        return ipc.new_file(stream, schema, options=settings)
    if kind == "parquet":
        from pyarrow import parquet  # noqa: PLC0415 - slow to import, not needed for Arrow files

        # Readers that verify the checksums of pages see damage on the disk.
        return parquet.ParquetWriter(stream, schema, compression=codec, write_page_checksum=True)
    from headgate.sink.text_files import ENCODERS  # noqa: PLC0415 - needed for text only

    return ENCODERS[kind](stream, schema, encoding)
