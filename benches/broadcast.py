"""Broadcast to 16 subpartitions against broadcast to one, by bytes delivered per second, in one process.

``broadcast_emit`` writes one page for all subpartitions, in one segment that is free again once the last
reader has dropped it. One thread writes; one thread reads all channels and looks at no value. The single
subpartition gets the same number of bytes in all, so its writer gathers sixteen times as many rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from benches import harness

import headgate as hg

ROWS = 8192
ROW_BYTES = 32
BATCHES = 16_384
READERS = 16


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    batches = BATCHES // (64 if options.quick else 1)
    numbers = np.arange(ROWS)
    batch = pa.record_batch({"key": numbers, "i": numbers, "x": numbers * 0.5, "y": numbers * 0.25})
    harness.compare(
        "broadcast",
        f"{batches:,} batches of {ROWS * ROW_BYTES >> 10} KiB delivered: each emitted to 1 "
        f"subpartition, or every {READERS}th to {READERS}",
        {
            "to 1": partial(broadcast, batch, batches, 1),
            f"to {READERS}": partial(broadcast, batch, batches // READERS, READERS),
        },
        [harness.Ratio("broadcast", "to 1", f"to {READERS}", goal=0.5)],
        turns=options.turns,
        size=batches * ROWS * ROW_BYTES,
        quick=options.quick,
    )


def broadcast(batch: pa.RecordBatch, emits: int, subpartitions: int) -> float:
    with hg.ShuffleEnvironment() as env:
        output = env.create_result_partition(subpartitions, schema=batch.schema)
        gate = env.create_input_gate(map(output.address, range(subpartitions)))
        read = []
        reader = threading.Thread(
            target=lambda: read.append(sum(part.num_rows for part in hg.RecordReader(gate)))
        )
        started = time.perf_counter()
        reader.start()
        with hg.RecordWriter(output) as writer:
            for _ in range(emits):
                writer.broadcast_emit(batch)
        reader.join()
        seconds = time.perf_counter() - started
    if read != [emits * subpartitions * ROWS]:
        raise AssertionError(f"{read} rows were read of {emits * subpartitions * ROWS}")
    return seconds
