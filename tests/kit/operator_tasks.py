"""The tasks of one keyed operator without a job: rows go to the task of their key, and snapshots to another parallelism."""

import numpy as np
import pyarrow as pa
from pyarrow import fs

from headgate.key_groups import key_group_range
from headgate.stream import SnapshotFolder, key_groups_of
from headgate.stream.graph.operator import OperatorContext

GROUPS = 16


def task_context(emit, **attributes):
    """Return the context of a task that keeps checkpoints; the only one by default."""
    return OperatorContext(
        **{
            "uid": "uid",
            "index": 0,
            "parallelism": 1,
            "max_parallelism": GROUPS,
            "emit": emit,
            "job": "job",
            "attempt": "a",
            "clock": lambda: 0,
            "is_durable": True,
            **attributes,
        }
    )


class OperatorTasks:
    """All tasks of an operator.

    Args:
        make: creates the operator of one task.
        keys: names of the key columns in its input.
        clock: the processing time in ms.
        more: returns further attributes of the context of a task, by its number.
    """

    def __init__(self, make, keys, clock=lambda: 0, more=lambda _: {}):
        self._make, self._keys, self._clock, self._more = make, keys, clock, more
        #: Batches that the operator has emitted, by output.
        self.emitted = {}
        self.tasks, self._folders, self._checkpoint = [], [], 0
        self.open(1)

    def open(self, parallelism, snapshots=(), watermark=None):
        """Open new tasks, with the state of snapshots."""
        for task in self.tasks:
            task.close()
        self.tasks = [self._make() for _ in range(parallelism)]
        self._folders = [
            SnapshotFolder(f"task-{at}", fs._MockFileSystem()) for at in range(parallelism)
        ]
        for at, task in enumerate(self.tasks):
            groups = key_group_range(at, parallelism, GROUPS)
            mine = [
                (folder, number)
                for folder, number, of in snapshots
                if of.start < groups.stop and groups.start < of.stop
            ]
            task.open(
                task_context(
                    **{
                        "emit": self._emit,
                        "index": at,
                        "parallelism": parallelism,
                        "clock": self._clock,
                        "restored": mine,
                        "restored_watermark": watermark,
                        **self._more(at),
                    }
                )
            )

    def _emit(self, batch, output):
        assert batch.num_rows
        self.emitted.setdefault(output, []).append(batch)

    def take(self, output=None):
        """Return the rows that were emitted since the last call, as dicts."""
        batches = self.emitted.pop(output, [])
        return [row for batch in batches for row in batch.to_pylist()]

    def process(self, batch):
        """Send the rows to the tasks of their keys."""
        groups = key_groups_of(batch.select(self._keys), GROUPS)
        for at, task in enumerate(self.tasks):
            of = key_group_range(at, len(self.tasks), GROUPS)
            mine = (groups >= of.start) & (groups < of.stop)
            if mine.any():
                task.process(batch.filter(pa.array(np.asarray(mine))))

    def advance_watermark(self, watermark):
        """Let all tasks handle a watermark."""
        for task in self.tasks:
            task.advance_watermark(watermark)

    def flush(self):
        """Let all tasks emit what waits."""
        for task in self.tasks:
            task.flush()

    def checkpoint(self, parallelism=None):
        """Take a checkpoint, which builds on those before; continue from it with a parallelism, or in the same tasks."""
        self.flush()
        self._checkpoint += 1
        snapshots, watermarks = [], []
        for at, (task, folder) in enumerate(zip(self.tasks, self._folders, strict=True)):
            snapshot = task.snapshot(self._checkpoint, savepoint=False)
            snapshot.state.write(folder)
            watermarks.append(snapshot.watermark)
            of = key_group_range(at, len(self.tasks), GROUPS)
            snapshots.append((folder, self._checkpoint, of))
            if parallelism is None:
                task.complete(self._checkpoint)
        if parallelism is not None:
            lowest = None if None in watermarks else min(watermarks)
            self.open(parallelism, snapshots, lowest)
