"""Seconds of ``os.fork`` in a process that keeps batches which another environment lent to it.

``os.fork`` copies what the process keeps of lent memory, for the child: see docs/adr/0019-lending-pages-within-a-host.md.
Both environments have a pool of 64 MiB. A pool is kept by half at most; beyond that a reader copies the rows it returns, which
are ordinary memory to a fork.
"""

from __future__ import annotations

import os
import secrets
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from benches import harness

import headgate as hg

MEMORY = "64m"
#: MiB of batches that the process keeps.
KEPT = (0, 16, 64)
#: A little less than a segment of the default size.
ROWS = 3900
BATCH = pa.record_batch({"n": pa.array(range(ROWS), pa.int64())})


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    contestants = {f"{kept} MiB kept": partial(fork, kept) for kept in KEPT}
    seconds = harness.measure("fork", contestants, turns=options.turns)
    print(f"\nfork: os.fork in a process with a pool of {MEMORY}")
    for name, times in seconds.items():
        low, median, high = (1e3 * of(times) for of in (min, statistics.median, max))
        print(f"  {name:<14}{median:>8.2f} ms   {low:.2f}-{high:.2f}")
    if not options.quick:
        harness.store("fork", what="seconds of os.fork in the parent", seconds=seconds)


def fork(kept: int) -> float:
    """Keep this many MiB and fork; return the seconds of the fork in the parent."""
    with keeping(kept << 20):
        start = time.perf_counter()
        child = os.fork()
        if child == 0:
            os._exit(0)
        seconds = time.perf_counter() - start
        os.waitpid(child, 0)
    return seconds


@contextmanager
def keeping(wanted: int) -> Iterator[list[pa.RecordBatch]]:
    """Keep batches of this many bytes that came over a link within the host."""
    identity = {"secret": secrets.token_bytes(32), "listen": "127.0.0.1:0", "memory": MEMORY}
    with (
        hg.ShuffleEnvironment(**identity, segment_size="32k") as producer,
        hg.ShuffleEnvironment(**identity, segment_size="32k") as consumer,
    ):
        partition = producer.create_result_partition(1, schema=BATCH.schema)
        reader = hg.RecordReader(consumer.create_input_gate([partition.address(0)]))
        count = wanted // BATCH.nbytes

        def write() -> None:
            with hg.RecordWriter(partition) as writer:
                for _ in range(count):
                    writer.emit(BATCH)
                    writer.flush()

        writing = threading.Thread(target=write)
        writing.start()
        kept = list(reader)
        writing.join()
        yield kept
        kept.clear()
