"""The rows of staged Arrow files, for committers that read them again."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc

from headgate.errors import SinkError
from headgate.sink.failure import failing
from headgate.sink.layout import folder_name, staged_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.sink.staging import Committable
    from headgate.sink.storage import Storage


def staged_rows(storage: Storage, committable: Committable) -> Iterator[pa.RecordBatch]:
    """Yield the rows that an attempt has staged, in their order.

    Raises:
        SinkError: a file is missing, or has not the checksum that the checkpoint has of it.
    """
    for file in committable.files:
        folder = folder_name(committable.job, committable.number)
        path = storage.at(staged_path(folder, committable.attempt, file.name))
        with failing("read", path):
            data = storage.read(path)
            # A committable without a checksum is none of such a sink's.
            if data is None or zlib.crc32(data) != file.crc32:
                raise SinkError(
                    f"staged rows are missing or have changed: {path}",
                    asked=f"{file.bytes} bytes with the checksum {file.crc32}",
                    have="no file" if data is None else f"{len(data)} bytes with another one",
                    remedy="give a staging folder that all tasks and the coordinator share",
                    details={"path": path},
                )
            reader = ipc.open_file(pa.BufferReader(data))
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
