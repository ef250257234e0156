"""Keyed state by batches against a dict that is updated row by row, and the snapshots of a million keys.

A reducing state sums up a value per row, in batches of 4,096 rows with random keys of 64 bits, a million in all, that
are all there before the clock starts. The dict gets the same numbers as lists, whose making is not counted. The
snapshots have one sum for each key; "all" writes every key, "1 % changed" the keys that 1 % of the rows touched. The
file system is in memory, so no disk is measured.

A second state has a string of 100 characters for each of the million keys. Each batch reads those of its keys and replaces
them; the dict does so row by row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from benches import harness
from pyarrow import fs

from headgate.stream import (
    KeyedStateBackend,
    ReducingStateDescriptor,
    SnapshotFolder,
    ValueStateDescriptor,
)

KEYS = 1_000_000
BATCH_ROWS = 4096
BATCHES = 256
STRING_BYTES = 100


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    keys = KEYS // (50 if options.quick else 1)
    batches = BATCHES // (16 if options.quick else 1)
    state = State(keys, batches)
    update = {"headgate": state.update, "dict loop": state.update_dict}
    harness.compare(
        "state",
        f"{batches * BATCH_ROWS:,} rows in batches of {BATCH_ROWS:,}, summed up by one of {keys:,} keys",
        update,
        [harness.Ratio("state_dict", "dict loop", "headgate")],
        turns=options.turns,
        size=batches * BATCH_ROWS * 16,
        quick=options.quick,
    )
    snapshots: dict[str, Callable[[], float]] = {
        "all": partial(state.snapshot, savepoint=True),
        "1 % changed": state.snapshot_of_changes,
    }
    harness.compare(
        "state_snapshots",
        f"a snapshot of {keys:,} keys with one sum each, frozen and written to memory",
        snapshots,
        [harness.Ratio("state_incremental", "all", "1 % changed")],
        turns=options.turns,
        size=keys * 16,
        quick=options.quick,
    )
    strings = Strings(keys, batches // 4)
    harness.compare(
        "state_strings",
        f"{strings.rows:,} rows in batches of {BATCH_ROWS:,}: the string of the key is read and replaced",
        {"headgate": strings.update, "dict loop": strings.update_dict},
        [harness.Ratio("state_strings", "dict loop", "headgate")],
        turns=options.turns,
        size=strings.rows * STRING_BYTES,
        quick=options.quick,
    )


class State:
    """The same sums in a backend and in a dict."""

    def __init__(self, keys: int, batches: int) -> None:
        random = np.random.default_rng(42)
        self.keys = random.integers(0, 1 << 62, keys)
        self.batches = [
            (self.keys[random.integers(0, keys, BATCH_ROWS)], random.integers(0, 100, BATCH_ROWS))
            for _ in range(batches)
        ]
        self.lists = [(k.tolist(), v.tolist()) for k, v in self.batches]
        self.backend = KeyedStateBackend(pa.schema([("key", pa.int64())]))
        self.sums = self.backend.get_state(ReducingStateDescriptor("sum", "sum", pa.int64()))
        self.backend.set_keys([pa.array(self.keys)])
        self.sums.add(np.zeros(keys, np.int64))
        self.dict = dict.fromkeys(self.keys.tolist(), 0)
        self.folder = SnapshotFolder("task", fs._MockFileSystem())
        self.number = 0
        self.snapshot()
        self.backend.complete(self.number)

    def update(self) -> float:
        started = time.perf_counter()
        for keys, values in self.batches:
            self.backend.set_keys([pa.array(keys)])
            self.sums.add(pa.array(values))
        return time.perf_counter() - started

    def update_dict(self) -> float:
        sums = self.dict
        started = time.perf_counter()
        for keys, values in self.lists:
            for key, value in zip(keys, values, strict=True):
                sums[key] += value
        return time.perf_counter() - started

    def snapshot(self, *, savepoint: bool = False) -> float:
        self.number += 1
        started = time.perf_counter()
        self.backend.snapshot(self.number, savepoint=savepoint).write(self.folder)
        return time.perf_counter() - started

    def snapshot_of_changes(self) -> float:
        # Slots that the updates before changed are in a snapshot that the measured one builds on.
        self.snapshot()
        self.backend.complete(self.number)
        few = self.keys[:: len(self.keys) // max(1, len(self.keys) // 100)]
        self.backend.set_keys([pa.array(few)])
        self.sums.add(np.ones(len(few), np.int64))
        seconds = self.snapshot()
        self.backend.complete(self.number)
        return seconds


class Strings:
    """The same strings in a backend and in a dict."""

    def __init__(self, keys: int, batches: int) -> None:
        random = np.random.default_rng(7)
        all_keys = random.integers(0, 1 << 62, keys)
        self.rows = batches * BATCH_ROWS
        self.keys = [random.choice(all_keys, BATCH_ROWS, replace=False) for _ in range(batches)]
        self.lists = [some.tolist() for some in self.keys]
        self.values = pa.array([f"{n:0{STRING_BYTES}}" for n in range(BATCH_ROWS)])
        self.list = self.values.to_pylist()
        self.backend = KeyedStateBackend(pa.schema([("key", pa.int64())]))
        self.state = self.backend.get_state(ValueStateDescriptor("text", pa.string()))
        text = "x" * STRING_BYTES
        for at in range(0, keys, BATCH_ROWS):
            some = all_keys[at : at + BATCH_ROWS]
            self.backend.set_keys([pa.array(some)])
            self.state.put(pa.repeat(pa.scalar(text), len(some)))
        self.dict = dict.fromkeys(all_keys.tolist(), text)

    def update(self) -> float:
        started = time.perf_counter()
        for keys in self.keys:
            self.backend.set_keys([pa.array(keys)])
            assert len(self.state.get()) == BATCH_ROWS
            self.state.put(self.values)
        return time.perf_counter() - started

    def update_dict(self) -> float:
        texts = self.dict
        started = time.perf_counter()
        for keys in self.lists:
            read = []
            for key, value in zip(keys, self.list, strict=True):
                read.append(texts[key])
                texts[key] = value
            assert len(read) == BATCH_ROWS
        return time.perf_counter() - started
