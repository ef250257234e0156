"""Keyed state of 100 million keys in 2 GiB against that of a million keys in memory.

A reducing state sums up a value per row, in batches of 4,096 rows. The state of the many keys has ``state_memory`` of
1 GiB in a process whose control group has 2 GiB, page cache included: whatever the process touches and does not fit is
written to the disk and read again. That of the million keys is in memory, in a process without a limit.

"of the latest": nine of ten rows are of the latest million keys, the others of any of them, as users, orders or sessions
are. "of any": all rows are of any key, which no cache can help. The keys are there before the clock starts; the time that
this took is printed.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
from benches import harness

from headgate.stream import KeyedStateBackend, ReducingStateDescriptor
from headgate.stream.state.memory import ALL_IN_MEMORY, StateMemory

MANY, FEW = 100_000_000, 1_000_000
GROUP_BYTES, STATE_BYTES = 2 << 30, 1 << 30
#: Bytes that Python and its libraries need.
LEAST_GROUP = 384 << 20
BATCH_ROWS, BATCHES = 4096, 256
BUILD_ROWS = 1 << 16
#: Of version 1 of control groups; who has version 2 only runs without a limit, and is told so.
CONTROLLER = Path("/sys/fs/cgroup/memory")


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--keys", type=int, default=MANY, help="of the state on disk")
    options = parser.parse_args(arguments)
    share = 50 if options.quick else 1
    group = max(LEAST_GROUP, GROUP_BYTES // share)
    many = State(options.keys // share, group, STATE_BYTES // share)
    few = State(FEW // share, None, None)
    batches = BATCHES // (8 if options.quick else 1)
    try:
        for name, draw in (("of the latest", "latest"), ("of any", "any")):
            times: dict[str, Callable[[], float]] = {
                "in memory": partial(few.seconds, draw, batches),
                "on disk": partial(many.seconds, draw, batches),
            }
            harness.compare(
                f"state_on_disk_{draw}",
                f"{batches * BATCH_ROWS:,} rows {name} of {many.keys:,} keys in {group >> 20:,} MiB, or of {few.keys:,} in memory",
                times,
                [harness.Ratio(f"state_on_disk_{draw}", "in memory", "on disk", goal=0.3)],
                turns=options.turns,
                size=batches * BATCH_ROWS * 16,
                quick=options.quick,
            )
    finally:
        many.close()
        few.close()


class State:
    """A process with the sums of keys.

    Args:
        keys: their number.
        group: bytes of its control group; None for no limit.
        limit: bytes of state that stay in memory; None for all.
    """

    def __init__(self, keys: int, group: int | None, limit: int | None) -> None:
        self.keys = keys
        self._folder = None if group is None else _group(group)
        self._pipe, other = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(
            target=_serve, args=(other, keys, self._folder, limit), daemon=True
        )
        self._process.start()
        other.close()
        print(self._pipe.recv(), flush=True)

    def seconds(self, draw: str, batches: int) -> float:
        """Return the seconds that batches of rows of some keys take."""
        self._pipe.send((draw, batches))
        seconds: float = self._pipe.recv()
        return seconds

    def close(self) -> None:
        """End the process."""
        self._pipe.send(None)
        self._process.join(60)
        if self._folder is not None:
            self._folder.rmdir()


def _group(limit: int) -> Path | None:
    folder = CONTROLLER / f"headgate-bench-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(limit))
    except OSError as error:
        print(f"no control group, so no limit: {error}", flush=True)
        return None
    return folder


def _serve(pipe: Connection, keys: int, group: Path | None, limit: int | None) -> None:
    if group is not None:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    memory = ALL_IN_MEMORY if limit is None else StateMemory(limit)
    backend = KeyedStateBackend(pa.schema([("key", pa.int64())]), memory=memory)
    sums = backend.get_state(ReducingStateDescriptor("sum", "sum", pa.int64()))
    started = time.perf_counter()
    for first in range(0, keys, BUILD_ROWS):
        numbers = np.arange(first, min(keys, first + BUILD_ROWS))
        backend.set_keys([pa.array(_keys_of(numbers))])
        sums.add(pa.array(numbers))
    seconds = time.perf_counter() - started
    in_memory, in_files = memory.usage
    pipe.send(
        f"{keys:,} keys are there after {seconds:,.0f} s; {in_memory >> 20:,} MiB in memory, {in_files >> 20:,} in files"
    )
    random = np.random.default_rng(42)
    while (order := pipe.recv()) is not None:
        draw, batches = order
        rows = []
        for _ in range(batches):
            numbers = random.integers(0, keys, BATCH_ROWS)
            if draw == "latest":
                latest = random.integers(max(0, keys - FEW), keys, BATCH_ROWS)
                numbers = np.where(random.random(BATCH_ROWS) < 0.9, latest, numbers)
            rows.append(pa.array(_keys_of(numbers)))
        started = time.perf_counter()
        for key in rows:
            backend.set_keys([key])
            sums.add(key)
        pipe.send(time.perf_counter() - started)
    backend.close()


def _keys_of(numbers: np.ndarray) -> np.ndarray:
    """Return a key for each number, none near that of the next one, and small enough for sums of few."""
    return (numbers * np.int64(2_654_435_761)) & np.int64((1 << 52) - 1)
