"""The tasks of an operator of two streams, one batch, watermark or snapshot at a time, without a job."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headgate.key_groups import key_group_range
from headgate.source import MIN_WATERMARK, NumberSequenceSource
from headgate.stream import SnapshotFolder, key_groups_of, stream
from headgate.stream.graph.operator import OperatorContext

GROUPS = 16
#: Both sides have a column that the other side has too, and the right one has it under another type.
LEFT = pa.schema(
    [("id", pa.string()), ("at", pa.int64()), ("value", pa.int32()), ("end", pa.int64())]
)
RIGHT = pa.schema([("value", pa.string()), ("of", pa.string()), ("time", pa.timestamp("ms"))])


def keyed(schema, *keys):
    return stream(NumberSequenceSource(0, 1)).map(lambda batch: [], schema=schema).key_by(*keys)


def both(**options):
    return keyed(LEFT, "id").join(keyed(RIGHT, "of"), **options)


def left_batch(rows):
    columns = list(zip(*rows, strict=True)) or [[]] * 4
    return pa.record_batch(list(map(list, columns)), schema=LEFT)


def right_batch(rows):
    key, at, value = list(zip(*rows, strict=True)) or [[]] * 3
    columns = [list(map(str, value)), list(key), pa.array(at, pa.int64()).cast(pa.timestamp("ms"))]
    return pa.record_batch(columns, schema=RIGHT)


def shown(emitted):
    """Return what tasks emitted as the models have it."""
    result = {}
    for output, counts in emitted.items():
        rows = counts
        if output == "late_right":
            rows = Counter({(k, ms(t), int(v)): n for (v, k, t), n in counts.items()})
        elif output is None:
            rows = Counter(
                {
                    (*r[:4], None if r[4] is None else int(r[4]), ms(r[5]), *r[6:]): n
                    for r, n in rows.items()
                }
            )
        result[output] = rows
    return result


def ms(time):
    return None if time is None else int(pa.scalar(time, pa.timestamp("ms")).value)


KEYS = st.sampled_from([None, "a", "b", "c"])
TIMES = st.integers(-4, 12)
#: Times are after the watermark.
LEFTS = st.lists(st.tuples(KEYS, TIMES, st.integers(0, 3), st.one_of(st.none(), TIMES)), max_size=6)
RIGHTS = st.lists(st.tuples(KEYS, TIMES, st.integers(0, 3)), max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), LEFTS, RIGHTS),
        st.tuples(st.just("watermark"), st.integers(-1, 8)),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("restart"), st.integers(1, 3)),
    ),
    max_size=20,
)


def follow(tasks, model, steps):
    """Let tasks and a model do the same, and compare all that they emit."""
    now = 0
    for name, *arguments in [*steps, ("watermark", 1000)]:
        if name == "rows":
            lefts = [(k, now + t, v, e if e is None else now + e) for k, t, v, e in arguments[0]]
            rights = [(k, now + t, v) for k, t, v in arguments[1]]
            if lefts or rights:
                tasks.send(left_batch(lefts), right_batch(rights))
            for side, rows in enumerate((lefts, rights)):
                for row in rows:
                    model.add(side, row)
        elif name == "watermark":
            now += arguments[0]
            tasks.advance(now)
            model.advance(now)
        elif name == "checkpoint":
            tasks.checkpoint()
        else:
            tasks.restart(arguments[0])
        assert shown(tasks.take()) == model.take()


class Model:
    """The base of models of joins with times."""

    def __init__(self, how):
        self.outer = (how in {"left", "full"}, how in {"right", "full"})
        self.watermark = MIN_WATERMARK
        self.emitted = Counter()
        self.late = (Counter(), Counter())

    def emit(self, left, right, *more):
        left = left or (right[0], None, None, None)
        right = right or (None, None, None)
        self.emitted[(*left, right[2], right[1], *more)] += 1

    def alone(self, side, row, *more):
        if self.outer[side]:
            self.emit(*((None, row) if side else (row, None)), *more)

    def take(self):
        outputs = {None: self.emitted, "late": self.late[0], "late_right": self.late[1]}
        self.emitted, self.late = Counter(), (Counter(), Counter())
        return {output: rows for output, rows in outputs.items() if rows}


class Tasks:
    """All tasks of the operator that made a stream.

    Args:
        stream: the result of the operator.
        folder: for snapshots.
        parallelism: number of tasks at first.
    """

    def __init__(self, stream, folder, parallelism=1):
        self.node = stream._edges[0].node
        self.folder, self.number, self.starts, self.now = folder, 0, 0, 0
        #: Rows that were emitted since the last look, by output.
        self.emitted = {None: Counter()}
        self.batches = []
        self.packers = []
        for edge in self.node.inputs:
            packer = edge.node.make()
            packer.open(self.context(0, 1, self.travel))
            self.packers.append(packer)
        self.keys = self.node.inputs[0].keys
        self.tasks = []
        self.start(parallelism)

    def context(self, index, parallelism, emit, **more):
        return OperatorContext(
            uid="both",
            index=index,
            parallelism=parallelism,
            max_parallelism=GROUPS,
            emit=emit,
            job="job",
            attempt="attempt",
            clock=lambda: self.now,
            is_durable=True,
            **more,
        )

    def start(self, parallelism, restored=(), watermark=None):
        self.tasks = []
        self.starts += 1
        for index in range(parallelism):
            task = self.node.make()
            task.open(
                self.context(
                    index, parallelism, self.emit, restored=restored, restored_watermark=watermark
                )
            )
            self.tasks.append(task)

    def emit(self, batch, output):
        assert batch.num_rows
        schema = self.node.schema if output is None else self.node.side_outputs[output]
        assert batch.schema.equals(schema)
        batch.validate(full=True)
        self.batches.append(batch)
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        self.emitted.setdefault(output, Counter()).update(rows)

    def send(self, *sides):
        """Send rows of both sides, which may come in one batch to a task."""
        self.travelling = []
        for packer, batch in zip(self.packers, sides, strict=True):
            if batch is not None and batch.num_rows:
                packer.process(batch)
        batch = pa.concat_batches(self.travelling)
        groups = key_groups_of(batch.select(list(self.keys)), GROUPS)
        for index, task in enumerate(self.tasks):
            mine = np.isin(groups, list(key_group_range(index, len(self.tasks), GROUPS)))
            if mine.any():
                task.process(batch.filter(pa.array(mine)))

    def travel(self, batch, output):
        assert output is None
        self.travelling.append(batch)

    def advance(self, watermark):
        for task in self.tasks:
            task.advance_watermark(watermark)

    def checkpoint(self, *, savepoint=False):
        """Take a snapshot on which the next one builds; return the folders, and the lowest watermark."""
        self.number += 1
        folders, watermarks = [], []
        for index, task in enumerate(self.tasks):
            folder = SnapshotFolder(f"{self.folder}/{self.starts}-{index}")
            snapshot = task.snapshot(self.number, savepoint=savepoint)
            snapshot.state.write(folder)
            if not savepoint:
                task.complete(self.number)
            folders.append((folder, self.number))
            watermarks.append(snapshot.watermark)
        return folders, None if None in watermarks else min(watermarks)

    def restart(self, parallelism, *, savepoint=False):
        """Take a snapshot, and go on from it with so many tasks."""
        folders, watermark = self.checkpoint(savepoint=savepoint)
        for task in self.tasks:
            task.close()
        self.start(parallelism, folders, watermark)

    def take(self):
        """Return what was emitted since the last call, by output, without outputs that got nothing."""
        emitted, self.emitted = self.emitted, {}
        return {output: rows for output, rows in emitted.items() if rows}

    def rows_in_state(self):
        return sum(
            int(state.present.sum())
            for task in self.tasks
            for state in task._backend.states.values()
        )
