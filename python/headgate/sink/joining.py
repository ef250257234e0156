"""Joins the small files of a commit before it is decided, so readers see the joined ones only. Decision: ADR 0053."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import ipc

from headgate.errors import SinkError
from headgate.sink.api import WriterContext
from headgate.sink.failure import failing
from headgate.sink.file_writer import FileWriter
from headgate.sink.layout import staged_path
from headgate.sink.staging import Committable, StagedFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.sink.file_options import FileSinkOptions
    from headgate.sink.storage import Storage

#: Characters of another attempt's name in that of an attempt with joined files.
_PREFIX: Final = 150


def joined(
    sink: FileSinkOptions, storage: Storage, folder: str, staged: list[Committable]
) -> list[Committable]:
    """Return committables in which joined files are in the place of the small ones of each partition.

    The joined files are new ones of an attempt of its own, and no committable has them: after a crash they are removed with
    the others of the checkpoint, and made again.

    Args:
        sink: the options of the sink.
        storage: the sink's folder.
        folder: name of the folder with the staged files of the commit.
        staged: all that the commit makes visible.

    Raises:
        SinkError: a small file is missing or has changed, or a joined one could not be written.
    """
    small: dict[str, list[tuple[Committable, StagedFile]]] = {}
    for committable in staged:
        for file in committable.files:
            if file.rows > 0 and file.bytes < sink.compact_bytes:
                small.setdefault(file.partition, []).append((committable, file))
    groups = {partition: files for partition, files in small.items() if len(files) > 1}
    if not groups:
        return staged
    committables: list[bytes | None] = []
    with ExitStack() as writers:
        by_schema: dict[bytes, FileWriter] = {}
        for partition, files in groups.items():
            begun: set[bytes] = set()
            for committable, file in files:
                schema, batches = _opened(storage, folder, committable, file, sink.format)
                key = schema.serialize().to_pybytes()
                if key not in by_schema:
                    by_schema[key] = writers.enter_context(_writer(sink, storage, staged, schema))
                writer = by_schema[key]
                if key not in begun:
                    begun.add(key)
                    writer.begin(partition)
                with failing(
                    "read", storage.at(staged_path(folder, committable.attempt, file.name))
                ):
                    for batch in batches:
                        writer.write(batch)
        committables += [writer.prepare_commit(staged[0].number) for writer in by_schema.values()]
    gone = {(c.attempt, file.name) for files in groups.values() for c, file in files}
    left = [
        replace(c, files=tuple(file for file in c.files if (c.attempt, file.name) not in gone))
        for c in staged
    ]
    new = [
        Committable.from_bytes(committable)
        for committable in committables
        if committable is not None
    ]
    return [committable for committable in (*left, *new) if committable.files]


def changed(path: str, expected: int, size: int | None) -> SinkError:
    """Return the error for a staged file that is missing or has another size than its committable says."""
    return SinkError(
        f"a staged file is missing or has changed: {path}",
        asked=f"{expected} bytes",
        have="no file" if size is None else f"{size} bytes",
        remedy="give a path that driver and executors share · run the action again",
        details={"path": path},
    )


def _writer(
    sink: FileSinkOptions, storage: Storage, staged: list[Committable], schema: pa.Schema
) -> FileWriter:
    """Return a writer of joined files, as an attempt that is cleaned up with the latest of those that it joins."""
    number = staged[0].number
    context = WriterContext(
        staged[0].job,
        1 + max(committable.index for committable in staged),
        attempt=f"{max(c.attempt for c in staged)[:_PREFIX]}-{secrets.token_hex(8)}",
        restored_checkpoint=number - 1 if number else None,
    )
    # The files have no partition columns.
    return FileWriter(replace(sink, partition_by=(), time_zone=None), storage, context, schema)


def _opened(
    storage: Storage, folder: str, committable: Committable, file: StagedFile, format_: str
) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """Return the columns and rows of a staged file."""
    path = storage.at(staged_path(folder, committable.attempt, file.name))
    with failing("read", path):
        data = storage.read(path)
        if data is None or len(data) != file.bytes:
            raise changed(path, file.bytes, None if data is None else len(data))
        if format_ == "parquet":
            from pyarrow import parquet  # noqa: PLC0415 - slow to import, not needed for Arrow files

            reader = parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
            return reader.schema_arrow, reader.iter_batches()
        batches = ipc.open_file(pa.BufferReader(data))
        return batches.schema, map(batches.get_batch, range(batches.num_record_batches))
