"""Resident memory against the budget: a skewed key, wide rows, a slow reader.

Two processes with a pool of 64 MiB each, over TCP. The measure is the largest growth of either process, at its
peak, since just before it created its environment; that includes pool, connection and allocator. A process
may use 64 MiB beside its budget; the ratio is the budget and those 64 MiB over the growth.
"""

from __future__ import annotations

import multiprocessing
import secrets
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
from benches import harness

import headgate as hg

HOST = "127.0.0.1"
BUDGET = 64 << 20
BESIDE = 64 << 20
TOTAL = 2 << 30
PARTS = 16
WIDE = 10 << 10
#: Seconds that the slow reader sleeps after each batch; it gets an eighth of the rows.
PAUSE, SLOWER = 0.002, 8


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    total = TOTAL // (64 if options.quick else 1)
    cases: dict[str, Callable[[], int]] = {
        "skewed key, 90 % in one part": lambda: grown(skewed, total, 0.0),
        "wide rows of 10 KiB": lambda: grown(wide, total, 0.0),
        "slow reader": lambda: grown(even, total // SLOWER, PAUSE),
    }
    sizes = {name: [case() for _ in range(options.turns)] for name, case in cases.items()}
    what = (
        f"growth of resident memory, the worse of two processes; {total >> 20:,} MiB over TCP into "
        f"{PARTS} parts, pools of {BUDGET >> 20} MiB"
    )
    harness.compare_memory("memory", what, sizes, BUDGET + BESIDE, quick=options.quick)


def grown(make: Callable[[], pa.RecordBatch], total: int, pause: float) -> int:
    """Send ``total`` bytes; return the larger growth of the two processes, in bytes."""
    context = multiprocessing.get_context("spawn")
    writer, its_end = context.Pipe()
    reader, other_end = context.Pipe()
    processes = (
        context.Process(target=write, args=(its_end, make, total), daemon=True),
        context.Process(target=read, args=(other_end, pause), daemon=True),
    )
    for process in processes:
        process.start()
    reader.send(writer.recv())
    rows, growth = zip(writer.recv(), reader.recv(), strict=True)
    for process in processes:
        process.join()
    if rows[0] != rows[1]:
        raise AssertionError(f"{rows[1]} rows came of {rows[0]}")
    return max(growth)


def write(orders: Connection, make: Callable[[], pa.RecordBatch], total: int) -> None:
    batch = make()
    batches = max(1, total // batch.nbytes)
    secret = secrets.token_bytes(32)
    before = resident("VmRSS")
    with hg.ShuffleEnvironment(memory=BUDGET, listen=f"{HOST}:0", secret=secret) as env:
        partition = env.create_result_partition(PARTS, schema=batch.schema)
        orders.send((secret, [partition.address(index) for index in range(PARTS)]))
        with hg.RecordWriter(partition, selector=hg.HashSelector("key")) as writer:
            for _ in range(batches):
                writer.emit(batch)
        partition.wait_consumed(300)
        orders.send((batches * batch.num_rows, resident("VmHWM") - before))


def read(orders: Connection, pause: float) -> None:
    secret, addresses = orders.recv()
    before = resident("VmRSS")
    rows = 0
    with hg.ShuffleEnvironment(memory=BUDGET, secret=secret) as env:
        for batch in hg.RecordReader(env.create_input_gate(addresses)):
            rows += batch.num_rows
            time.sleep(pause)
        orders.send((rows, resident("VmHWM") - before))


def resident(field: str) -> int:
    """Return VmRSS (resident memory now) or VmHWM (its peak) of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


# --- the rows ---


def skewed() -> pa.RecordBatch:
    random = np.random.default_rng(42)
    return _batch(np.where(random.random(65_536) < 0.9, 7, random.integers(0, 1 << 40, 65_536)))


def even() -> pa.RecordBatch:
    return _batch(np.random.default_rng(42).integers(0, 1 << 40, 65_536))


def wide() -> pa.RecordBatch:
    keys = np.random.default_rng(42).integers(0, 1 << 40, 256)
    return pa.record_batch({"key": keys, "payload": [bytes(WIDE)] * len(keys)})


def _batch(keys: np.ndarray) -> pa.RecordBatch:
    numbers = np.arange(len(keys))
    return pa.record_batch({"key": keys, "i": numbers, "x": numbers * 0.5, "y": numbers * 0.25})
