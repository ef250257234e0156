"""The rows of a file that are deleted: as bits on their way, as a mask where the file is read."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc


def encoded(mask: pa.BooleanArray) -> str:
    """Return a mask of the rows that are kept as text; "" if it keeps all."""
    if mask.true_count == len(mask):
        return ""
    whole = pa.concat_arrays([mask, pa.array([], pa.bool_())])  # begins at the first bit
    bits = whole.buffers()[1].to_pybytes()[: (len(mask) + 7) // 8]
    return f"{len(mask)}:{base64.b64encode(zlib.compress(bits)).decode()}"


def decoded(text: str) -> pa.BooleanArray | None:
    """Return the mask of such a text; None if all rows are kept."""
    if not text:
        return None
    rows, _, data = text.partition(":")
    bits = zlib.decompress(base64.b64decode(data))
    return pa.BooleanArray.from_buffers(pa.bool_(), int(rows), [None, pa.py_buffer(bits)])


def kept_without(deleted: Iterable[int], rows: int) -> pa.BooleanArray:
    """Return the mask of a file's rows without those at the given positions."""
    bits = bytearray(b"\xff" * ((rows + 7) // 8))
    for position in deleted:
        bits[position >> 3] &= ~(1 << (position & 7))
    return pa.BooleanArray.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bytes(bits))])


def without_deleted(
    batch: pa.RecordBatch, of_file: pa.BooleanArray | None, first: int
) -> pa.RecordBatch:
    """Return a batch without its deleted rows.

    Args:
        batch: rows of a file.
        of_file: the mask of the file's rows; a row after its end is kept.
        first: the place of the batch's first row in the file.
    """
    if of_file is None or first >= len(of_file):
        return batch
    mask = of_file.slice(first, batch.num_rows)
    if mask.true_count == len(mask):
        return batch
    if len(mask) < batch.num_rows:
        mask = pa.concat_arrays([mask, pc.is_valid(pa.repeat(0, batch.num_rows - len(mask)))])
    return batch.filter(mask)
