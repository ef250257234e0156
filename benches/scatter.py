"""Scatter rows into 16 parts by the hash of a key, on one core, against polars' partition_by.

Ours is all of ``RecordWriter.emit()``: hash, gather into pages, queue. On the same core a reader takes the
pages, makes record batches of them and drops them, so memory stays bounded at a few segments. Polars computes
``hash(key) % 16`` and keeps all 16 frames; it gets the rows whole and, as we do, in batches, and the ratio is
against the faster of the two. For 2,000 parts the same pool of 64 MiB has segments of 16 KiB, since each part
needs one and the reader needs some; the reader combines them into batches as large as those of 16 parts. That
run is compared with ours into 16 parts.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benches import harness

import headgate as hg

ROWS = 4_000_000
BATCH_ROWS = 65_536
PARTS, MANY = 16, 2000
SEGMENT, MANY_SEGMENT = 256 << 10, 16 << 10


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    rows = ROWS // 40 if options.quick else ROWS
    with one_core():
        for name, strings, goal in (("scatter", False, 3.0), ("scatter_string", True, 2.0)):
            table = rows_of(rows, strings=strings)
            columns = ", ".join(str(field.type) for field in table.schema)
            harness.compare(
                name,
                f"{rows:,} rows ({columns}) into {PARTS} parts by a hash of the first, one core; "
                f"Headgate and 'batches' in batches of {BATCH_ROWS:,} rows",
                {
                    "headgate": partial(headgate, table),
                    "polars whole": partial(polars, table, len(table)),
                    "polars batches": partial(polars, table, BATCH_ROWS),
                },
                [harness.Ratio(name, ("polars whole", "polars batches"), "headgate", goal)],
                turns=options.turns,
                size=table.nbytes,
                quick=options.quick,
            )
        table = rows_of(rows, strings=False)
        harness.compare(
            "scatter_2000",
            f"{rows:,} rows of 4 columns of 8 bytes into {MANY:,} parts and into {PARTS}, one core, "
            f"64 MiB; segments of {MANY_SEGMENT >> 10} KiB for {MANY:,} parts, batches of "
            f"{SEGMENT >> 10} KiB for the reader of both",
            {
                f"{PARTS} parts": partial(headgate, table),
                f"{MANY:,} parts": partial(headgate, table, MANY, MANY_SEGMENT, SEGMENT),
            },
            [harness.Ratio("scatter_2000", f"{PARTS} parts", f"{MANY:,} parts", goal=0.5)],
            turns=options.turns,
            size=table.nbytes,
            quick=options.quick,
        )


def rows_of(rows: int, *, strings: bool) -> pa.Table:
    """Return rows with random keys; the string column has 6 to 12 bytes a row."""
    random = np.random.default_rng(42)
    columns = {
        "key": random.integers(0, 1 << 40, rows),
        "i": np.arange(rows),
        "x": random.random(rows),
        "y": random.random(rows),
    }
    if strings:
        columns["name"] = pc.cast(pa.array(random.integers(100_000, 1 << 39, rows)), pa.string())
    return pa.table(columns).combine_chunks()


@contextmanager
def one_core() -> Iterator[None]:
    """Pin this thread and those that it starts to one core; limit polars to one thread."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def headgate(
    table: pa.Table, parts: int = PARTS, segment_size: int = SEGMENT, batch_bytes: int = 0
) -> float:
    batches = table.to_batches(BATCH_ROWS)
    with hg.ShuffleEnvironment(segment_size=segment_size) as env:
        partition = env.create_result_partition(parts)
        selector = hg.HashSelector("key")
        writer = hg.RecordWriter(partition, table.schema, selector=selector)
        gate = env.create_input_gate(map(partition.address, range(parts)))
        drained = []
        drain = threading.Thread(
            target=lambda: drained.append(
                sum(b.num_rows for b in hg.RecordReader(gate, batch_bytes=batch_bytes))
            )
        )
        started = time.perf_counter()
        drain.start()
        with writer:
            for batch in batches:
                writer.emit(batch)
        drain.join()
        seconds = time.perf_counter() - started
    if drained != [len(table)]:
        raise AssertionError(f"{drained} rows came out of {len(table)}")
    return seconds


def polars(table: pa.Table, batch_rows: int, parts: int = PARTS) -> float:
    import polars as pl

    if pl.thread_pool_size() != 1:
        raise AssertionError("polars has started with more than one thread")
    frames = [pl.from_arrow(batch) for batch in table.to_batches(batch_rows)]
    part = (pl.col("key").hash() % parts).cast(pl.UInt32).alias("part")
    started = time.perf_counter()
    found = [frame.with_columns(part).partition_by("part", include_key=False) for frame in frames]
    seconds = time.perf_counter() - started
    if sum(frame.height for frames in found for frame in frames) != len(table):
        raise AssertionError("rows are missing")
    return seconds
