"""The time from a snapshot on the disk to the first row with its state, against that of reading the snapshot's files.

Each key has a text of 900 characters, so that ten million keys are 10 GiB. ``state_memory`` is 2 GiB. The files were just
written, so the kernel has them in memory as far as they fit: for the readings as for the restores.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benches import harness

from headgate.stream import KeyedStateBackend, SnapshotFolder, ValueStateDescriptor
from headgate.stream.state.files import Manifest
from headgate.stream.state.memory import StateMemory

KEYS = 10_000_000
TEXT = "x" * 900
BATCH_ROWS = 1 << 14
STATE_BYTES = 2 << 30
GOAL = 5
SCHEMA = pa.schema([("key", pa.int64())])
TEXTS = ValueStateDescriptor("text", pa.string())


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="for the files")
    options = parser.parse_args(arguments)
    keys = options.keys // (100 if options.quick else 1)
    with tempfile.TemporaryDirectory(dir=options.folder) as path:
        memory = StateMemory(STATE_BYTES, path)
        folder = SnapshotFolder(str(Path(path, "snapshot")))
        manifest = _written(folder, keys, memory)
        size = sum(file.size for state in manifest.states for file in state.files)
        harness.compare(
            "state_restore",
            f"the first row of {keys:,} keys in {size / 2**30:.2f} GiB",
            {
                "reading": partial(_reading, folder, manifest),
                "restore": partial(_restore, folder, keys, memory),
            },
            [harness.Ratio("state_restore", "reading", "restore", GOAL)],
            turns=options.turns,
            size=size,
            quick=options.quick,
        )


def _written(folder: SnapshotFolder, keys: int, memory: StateMemory) -> Manifest:
    backend = KeyedStateBackend(SCHEMA, memory=memory)
    state = backend.get_state(TEXTS)
    for first in range(0, keys, BATCH_ROWS):
        numbers = pa.array(np.arange(first, min(keys, first + BATCH_ROWS)))
        backend.set_keys([numbers])
        state.put(pc.binary_join_element_wise(numbers.cast(pa.string()), TEXT, ""))
    manifest = backend.snapshot(1).write(folder)
    backend.close()
    return manifest


def _reading(folder: SnapshotFolder, manifest: Manifest) -> float:
    started = time.perf_counter()
    for name in sorted(manifest.names):
        folder.read(name)
    return time.perf_counter() - started


def _restore(folder: SnapshotFolder, keys: int, memory: StateMemory) -> float:
    started = time.perf_counter()
    backend = KeyedStateBackend.restore([(folder, 1)], memory=memory)
    state = backend.get_state(TEXTS)
    backend.set_keys([pa.array([keys - 1])])
    text = state.get()[0].as_py()
    seconds = time.perf_counter() - started
    backend.close()
    if text != f"{keys - 1}{TEXT}":
        raise AssertionError(f"the last key has {text!r}")
    return seconds
