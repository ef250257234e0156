"""The cost per batch of entering and leaving Python, whatever the batch holds, against pyarrow's handover.

One thread. ``emit`` of a batch without rows does everything that is done once per batch and scatters
nothing; ``next`` reads queued pages of one row in the same process. Pyarrow hands the same batch to itself
through Arrow's C data interface, schema included: about 7 microseconds on a quiet machine. The goal for
either of ours is 5.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from benches import harness

import headgate as hg

#: Pages queued for the reader; each takes a segment of the pool.
BATCHES = 8_000
SEGMENT = 4 << 10


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    number = BATCHES // (16 if options.quick else 1)
    harness.compare(
        "overhead",
        f"{number:,} batches of 4 columns, without rows for emit and of one row for next, one thread",
        {
            "pyarrow to itself": partial(pyarrow, number),
            "emit": partial(emit, number),
            "next": partial(read, number),
        },
        [
            harness.Ratio("overhead_emit", "pyarrow to itself", "emit", goal=1.4),
            harness.Ratio("overhead_next", "pyarrow to itself", "next", goal=1.4),
        ],
        turns=options.turns,
        size=number * batch_of(1).nbytes,
        quick=options.quick,
    )


def batch_of(rows: int) -> pa.RecordBatch:
    numbers = np.arange(rows)
    return pa.record_batch({"key": numbers, "i": numbers, "x": numbers * 0.5, "y": numbers * 0.25})


def environment(number: int) -> hg.ShuffleEnvironment:
    """An environment whose pool holds this many pages for one reader."""
    return hg.ShuffleEnvironment(
        memory=2 * number * SEGMENT,
        segment_size=SEGMENT,
        buffer_timeout=-1,
        max_buffers_per_channel=number + 1,
        floating_buffers_per_gate=number + 1,
    )


def pyarrow(number: int) -> float:
    batch = batch_of(1)
    started = time.perf_counter()
    for _ in range(number):
        pa.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__())
    return time.perf_counter() - started


def emit(number: int) -> float:
    batch = batch_of(0)
    with environment(1000) as env:
        partition = env.create_result_partition(1, schema=batch.schema)
        writer = hg.RecordWriter(partition)
        started = time.perf_counter()
        for _ in range(number):
            writer.emit(batch)
        seconds = time.perf_counter() - started
        writer.finish()
    return seconds


def read(number: int) -> float:
    batch = batch_of(1)
    with environment(number) as env:
        partition = env.create_result_partition(1, schema=batch.schema)
        with hg.RecordWriter(partition) as writer:
            for _ in range(number):
                writer.emit(batch)
                writer.flush()
        reader = hg.RecordReader(env.create_input_gate([partition.address(0)]))
        rows = 0
        started = time.perf_counter()
        for received in reader:
            rows += received.num_rows
        seconds = time.perf_counter() - started
    if rows != number:
        raise AssertionError(f"{rows} rows came out of {number}")
    return seconds
