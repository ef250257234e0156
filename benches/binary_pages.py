"""The exchange as one would write it in plain PySpark: Spark's own shuffle carries Arrow pages as binary values.

A producer groups the rows of each batch by a hash of the key, and yields one row for each partition that has any:
its number, and an Arrow IPC stream. The page, and not each of its rows, passes through the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

Batches = Iterator[pa.RecordBatch]


def exchange(
    df: DataFrame,
    key: str,
    partitions: int,
    map: Callable[[Batches], Batches],  # noqa: A002 - named as in headgate's exchange()
    reduce: Callable[[Batches], Batches],
) -> DataFrame:
    """Return the rows of ``df``, partitioned by an integer key; both functions keep its columns."""
    pages = df.mapInArrow(
        lambda batches: pages_of(map(batches), key, partitions), "partition int, page binary"
    )
    # Before Spark 4.1, two partitions may share a task.
    place = getattr(pages, "repartitionById", pages.repartition)
    placed = place(partitions, "partition")
    return placed.mapInArrow(lambda batches: reduce(rows_of(batches)), df.schema)


def pages_of(batches: Batches, key: str, partitions: int) -> Batches:
    factor, shift = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    for batch in batches:
        hashes = batch[key].to_numpy().astype(np.uint64) * factor >> shift
        # numpy sorts numbers of 16 bits fastest.
        parts = (hashes % np.uint64(partitions)).astype(np.uint16)
        order = np.argsort(parts, kind="stable")
        grouped = batch.take(pa.array(order))
        numbers, starts = np.unique(parts[order], return_index=True)
        sink, offsets = pa.BufferOutputStream(), [0]
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(grouped.slice(start, end - start))
            offsets.append(sink.tell())
        lengths = pa.py_buffer(np.array(offsets, np.int32))
        pages = pa.Array.from_buffers(pa.binary(), len(numbers), [None, lengths, sink.getvalue()])
        yield pa.record_batch({"partition": numbers.astype(np.int32), "page": pages})


def rows_of(batches: Batches) -> Batches:
    for batch in batches:
        for page in batch["page"]:
            yield from pa.ipc.open_stream(page.as_buffer())
