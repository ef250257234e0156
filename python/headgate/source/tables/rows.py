"""The rows of a file that are deleted: as bits on their way, as a mask where the file is read."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc


def encoded(kept: pa.BooleanArray) -> str:
    """Return a mask of the rows that are kept as text; "" if it keeps all."""
    if kept.true_count == len(kept):
        return ""
    whole = pa.concat_arrays([kept, pa.array([], pa.bool_())])  # begins at the first bit
    bits = whole.buffers()[1].to_pybytes()[: (len(kept) + 7) // 8]
    return f"{len(kept)}:{base64.b64encode(zlib.compress(bits)).decode()}"


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
    batch: pa.RecordBatch, kept: pa.BooleanArray | None, first: int
) -> pa.RecordBatch:
    """Return a batch without its deleted rows.

    Args:
        batch: rows of a file.
        kept: the mask of the file; a row after its end is kept.
        first: the place of the batch's first row in the file.
    """
    if kept is None or first >= len(kept):
        return batch
    mask = kept.slice(first, batch.num_rows)
    if mask.true_count == len(mask):
        return batch
    if len(mask) < batch.num_rows:
        mask = pa.concat_arrays([mask, pc.is_valid(pa.repeat(0, batch.num_rows - len(mask)))])
    return batch.filter(mask)
