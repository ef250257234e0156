"""Rows in flight at a checkpoint: a file per task, and the rows that a restored task handles first.

The rows on the way from one task to another are in two files: those that the receiver had not handled, and behind them
those that the sender had not sent. A row may be cut between the two.
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.checkpoints import CheckpointBarrier, decode_channel_state
from headgate.environment import ShuffleEnvironment
from headgate.stream.state.files import SnapshotFolder
from headgate.stream.state.groups import key_groups_of
from headgate.stream.state.locations import below, split_path
from headgate.writer import RecordWriter

#: Bytes of the pool in which rows are encoded, beside the rows.
_LEAST_MEMORY: Final = 4 << 20
#: Most buffers of the options: nobody reads them, so the writer must not wait.
_MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A task's rows in flight.

    Attributes:
        inputs: channels of its gate with their bytes.
        outputs: edges, their subpartitions and the bytes of these.
    """

    inputs: Sequence[tuple[int, bytes]] = ()
    outputs: Sequence[tuple[int, int, bytes]] = ()

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(map(len, self._parts))

    @property
    def _parts(self) -> list[bytes]:
        return [part for _, part in self.inputs] + [part for _, _, part in self.outputs]

    def write(self, folder: SnapshotFolder, checkpoint: int) -> dict[str, Any] | None:
        """Write the rows to a file, and return what a checkpoint has of it; None without rows.

        Raises:
            SnapshotError: the file cannot be written.
        """
        if not self.size:
            return None
        offset, inputs, outputs = 0, [], []
        for channel, part in self.inputs:
            inputs.append([channel, offset, len(part)])
            offset += len(part)
        for edge, subpartition, part in self.outputs:
            outputs.append([edge, subpartition, offset, len(part)])
            offset += len(part)
        content = b"".join(self._parts)
        name = f"{checkpoint:010d}-{secrets.token_hex(8)}.channels"
        folder.write(name, content)
        file = [below(folder.uri, name), len(content), zlib.crc32(content)]
        return {"file": file, "inputs": inputs, "outputs": outputs}


def is_channels(name: str) -> bool:
    """Return True for a name of a file of rows in flight."""
    return re.fullmatch(r"\d{10}-[0-9a-f]{16}\.channels", name, re.ASCII) is not None


def encoded(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return rows as a channel has them on the way, for :func:`headgate.decode_channel_state`."""
    size = sum(batch.nbytes for batch in batches)
    with ShuffleEnvironment(
        memory=_LEAST_MEMORY + 4 * size, max_buffers_per_channel=_MOST, max_overdraft_buffers=_MOST
    ) as environment:
        schema = batches[0].schema
        partition = environment.create_result_partition(1, schema=schema)
        writer = RecordWriter(partition, schema)
        for batch in batches:
            writer.emit(batch)
        # A barrier that overtakes all of them: they are its output's part.
        writer.broadcast_barrier(CheckpointBarrier(1, 0, "unaligned"))
        return b"".join(part for _, part in writer.take_channel_state(1) or ())


@dataclass(frozen=True, slots=True)
class InFlight:
    """Rows that were on their way to a restored task, or to others that it replaces.

    Attributes:
        parts: for each pair of a receiver and a sender the ``operator`` that the rows are for; ``keys``: key columns, if only
            rows of the task's key groups are its own, empty if all are; and ``files`` with size, checksum, offset and
            length, the receiver's first.
    """

    parts: Sequence[Mapping[str, Any]]

    def rows(
        self, schemas: Mapping[str, pa.Schema], groups: range, max_parallelism: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield operators and their rows, in the order of each pair.

        Args:
            schemas: of the rows, by operator.
            groups: the task's key groups.
            max_parallelism: number of key groups.

        Raises:
            SnapshotError: a file is missing or damaged.
            IntegrityError: the bytes in it are damaged.
        """
        contents: dict[str, bytes] = {}
        for part in self.parts:
            operator, keys = part["operator"], part["keys"]
            data = b"".join(_read(contents, *file) for file in part["files"])
            for batch in decode_channel_state(data, schemas[operator]):
                rows = _rows_of(batch, keys, groups, max_parallelism) if keys else batch
                if rows.num_rows:
                    yield operator, rows


def _rows_of(
    batch: pa.RecordBatch, keys: Sequence[str], groups: range, max_parallelism: int
) -> pa.RecordBatch:
    row_groups = key_groups_of(batch.select(list(keys)), max_parallelism)
    mine = (row_groups >= groups.start) & (row_groups < groups.stop)
    return batch if bool(np.all(mine)) else batch.filter(pa.array(mine))


def _read(
    contents: dict[str, bytes], path: str, size: int, crc32: int, offset: int, length: int
) -> bytes:
    content = contents.get(path)
    if content is None:
        folder, name = split_path(path)
        content = SnapshotFolder(folder).read_whole(name, size, crc32).to_pybytes()
        contents[path] = content
    return content[offset : offset + length]
