"""A blocking partition that is written, kept in a file and mapped, against a pipelined one, in one process.

One thread writes batches of 256 KiB (four columns of 8 bytes). The kept partition is read by the same thread, once it is
written and kept; the pipelined one is read meanwhile, by another thread. The clock runs from the first batch written to
the last one read. The reader looks at no value. Large batches are not copied into pages, so those of the pipelined
partition are then references, while the kept ones are written to the file and verified. In other runs, "summed", it adds up
every column, and in "by key" the rows go to 16 subpartitions by a hash, as in an exchange: both kinds copy them into pages.
The sums of all are compared with those written before anything is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
from benches import harness
from benches.loopback import ROW_BYTES, batch_of, checked, rows_of

import headgate as hg

BATCH = 256 << 10
BATCHES = 1_600
SUBPARTITIONS = 16

Use = Callable[[pa.RecordBatch], float]


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    number = BATCHES // (20 if options.quick else 1)
    batch = batch_of(BATCH)
    right = number * summed(batch)
    for kind in (by_kept, by_pipelined):
        for parts in (1, SUBPARTITIONS):
            if kind(batch, number, summed, parts)[0] != right:
                raise AssertionError(f"{kind.__name__} into {parts}: the sum is not {right}")
    harness.compare(
        "kept",
        f"{number:,} batches of {BATCH >> 10} KiB, one process",
        {
            "kept": partial(run, by_kept, batch, number, rows_of),
            "pipelined": partial(run, by_pipelined, batch, number, rows_of),
            "kept, summed": partial(run, by_kept, batch, number, rows_summed),
            "pipelined, summed": partial(run, by_pipelined, batch, number, rows_summed),
            "kept, by key": partial(run, by_kept, batch, number, rows_of, SUBPARTITIONS),
            "pipelined, by key": partial(run, by_pipelined, batch, number, rows_of, SUBPARTITIONS),
        },
        [
            harness.Ratio("kept_pipelined", "pipelined", "kept", goal=0.5),
            harness.Ratio("kept_pipelined_summed", "pipelined, summed", "kept, summed"),
            harness.Ratio("kept_pipelined_keyed", "pipelined, by key", "kept, by key", goal=0.5),
        ],
        turns=options.turns,
        size=number * BATCH,
        quick=options.quick,
    )


def summed(batch: pa.RecordBatch) -> float:
    return sum(pc.sum(column).as_py() for column in batch.columns)


def rows_summed(batch: pa.RecordBatch) -> int:
    summed(batch)
    return batch.num_rows


def run(kind: Callable, batch: pa.RecordBatch, number: int, use: Use, parts: int = 1) -> float:
    rows, seconds = kind(batch, number, use, parts)
    return checked(rows * ROW_BYTES, number * BATCH, seconds)


def by_kept(batch: pa.RecordBatch, number: int, use: Use, parts: int) -> tuple[float, float]:
    """Return the sum of ``use`` of each batch, and seconds."""
    with (
        TemporaryDirectory() as folder,
        hg.ShuffleEnvironment(temp_directories=[folder]) as env,
    ):
        partition = env.create_result_partition(parts, kind="blocking", schema=batch.schema)
        started = time.perf_counter()
        write(partition, batch, number, parts)
        gate = env.create_input_gate(sealed=False, schema=batch.schema)
        for kept in partition.keep(Path(folder) / "kept"):
            gate.add_kept_channel(kept)
        gate.seal()
        return read(gate, use), time.perf_counter() - started


def by_pipelined(batch: pa.RecordBatch, number: int, use: Use, parts: int) -> tuple[float, float]:
    with hg.ShuffleEnvironment() as env, ThreadPoolExecutor(1) as other:
        partition = env.create_result_partition(parts, schema=batch.schema)
        addresses = [partition.address(part) for part in range(parts)]
        started = time.perf_counter()
        reading = other.submit(read, env.create_input_gate(addresses), use)
        write(partition, batch, number, parts)
        return reading.result(), time.perf_counter() - started


def write(partition: hg.ResultPartition, batch: pa.RecordBatch, number: int, parts: int) -> None:
    selector = hg.HashSelector(["key"]) if parts > 1 else None
    with hg.RecordWriter(partition, selector=selector) as writer:
        for _ in range(number):
            writer.emit(batch)


def read(gate: hg.InputGate, use: Use) -> float:
    return sum(use(part) for part in hg.RecordReader(gate))
