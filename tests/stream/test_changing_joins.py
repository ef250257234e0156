"""Outer joins without times and joins of changes against a model that joins all rows anew."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.kit.two_streams import Tasks, keyed

from headgate._changes import change_field
from headgate.errors import StateError, StreamError
from headgate.stream import TumblingWindow

LEFT = pa.schema([("id", pa.string()), ("size", pa.int64()), ("name", pa.string())])
RIGHT = pa.schema([("of", pa.string()), ("price", pa.float64())])
KEYS = st.sampled_from([None, "a", "b"])
LEFTS = st.tuples(KEYS, st.integers(0, 2), st.sampled_from([None, "x"]))
RIGHTS = st.tuples(KEYS, st.sampled_from([0.0, 1.5]))
STEP = st.one_of(
    # Numbers choose rows to take away among those that are there.
    st.tuples(
        st.just("rows"),
        st.lists(LEFTS, max_size=4),
        st.lists(RIGHTS, max_size=4),
        st.lists(st.integers(0, 20), max_size=3),
        st.lists(st.integers(0, 20), max_size=3),
    ),
    st.tuples(st.just("restart"), st.integers(1, 3)),
    st.tuples(st.just("checkpoint")),
)
STEPS = st.lists(STEP, max_size=12)


def joined(left, right, how):
    """Return the rows of the join of two lists of rows."""
    result, matched = Counter(), set()
    for row in left:
        matches = [
            at for at, other in enumerate(right) if row[0] is not None and other[0] == row[0]
        ]
        matched.update(matches)
        for at in matches:
            result[(*row, right[at][1])] += 1
        if not matches and how in {"left", "full"}:
            result[(*row, None)] += 1
    for at, other in enumerate(right):
        if at not in matched and how in {"right", "full"}:
            result[(other[0], None, None, other[1])] += 1
    return result


def batch_of(schema, rows, changes):
    columns = list(map(list, zip(*rows, strict=True))) or [[] for _ in schema]
    if changes is None:
        return pa.record_batch(columns, schema=schema)
    return pa.record_batch([*columns, changes], schema=schema.append(change_field()))


class Side:
    """The rows of one side, and batches that change them."""

    def __init__(self, schema, is_changing):
        self.schema, self.is_changing, self.rows = schema, is_changing, []

    def batch(self, added, removed, *, is_undone):
        """Add rows, take away those at some positions, and return the batch of both."""
        rows, changes = list(added), None
        if self.is_changing:
            changes = (["insert", "update_after"] * 2)[: len(added)]
            for at in removed:
                if self.rows:
                    rows.append(self.rows.pop(at % len(self.rows)))
                    changes.append("delete" if at % 2 else "update_before")
            if is_undone and rows:
                rows += [rows[0]] * 2
                changes += ["insert", "delete"]
        self.rows.extend(added)
        return batch_of(self.schema, rows, changes)


def apply(batches, result):
    """Change a result as batches say."""
    for batch in batches:
        changes = ["insert"] * batch.num_rows
        if "_change_type" in batch.schema.names:
            changes = batch["_change_type"].to_pylist()
            batch = batch.drop_columns(["_change_type"])  # noqa: PLW2901 - without the change
        for row, change in zip(zip(*batch.to_pydict().values(), strict=True), changes, strict=True):
            result[row] += 1 if change in {"insert", "update_after"} else -1


@settings(max_examples=70, deadline=None)
@given(
    how=st.sampled_from(["inner", "left", "right", "full"]),
    changing=st.sampled_from([(False, False), (True, False), (False, True), (True, True)]),
    is_undone=st.booleans(),
    steps=STEPS,
)
def test_the_changes_lead_to_the_join_of_all_rows(
    tmp_path_factory, how, changing, is_undone, steps
):
    sides = [Side(LEFT, changing[0]), Side(RIGHT, changing[1])]
    schemas = [s.schema.append(change_field()) if s.is_changing else s.schema for s in sides]
    join = keyed(schemas[0], "id").join(keyed(schemas[1], "of"), how=how)
    assert ("_change_type" in join.schema.names) == (how != "inner" or any(changing))
    tasks = Tasks(join, tmp_path_factory.mktemp("joins"), 2)
    result = Counter()
    for name, *arguments in steps:
        if name == "restart":
            tasks.restart(arguments[0])
        elif name == "checkpoint":
            tasks.checkpoint()
        else:
            batches = [
                side.batch(arguments[at], arguments[2 + at], is_undone=is_undone)
                for at, side in enumerate(sides)
            ]
            if any(batch.num_rows for batch in batches):
                tasks.send(*batches)
        apply(tasks.batches, result)
        tasks.batches.clear()
        assert min(result.values(), default=0) >= 0
        assert +result == joined(sides[0].rows, sides[1].rows, how)
    assert not any(task.dropped.get("numUnknownDeletes") for task in tasks.tasks)


class ExpiringModel:
    """A join whose rows live for a time. The rows of a batch meet those of the other side that are there."""

    def __init__(self, how):
        self.is_outer = (how in {"left", "full"}, how in {"right", "full"})
        #: For each side the rows, when they expire, and how many pairs they have.
        self.sides = ([], [])
        self.result, self.unknown = Counter(), 0

    def expire(self, now):
        for entries in self.sides:
            entries[:] = [entry for entry in entries if entry[1] > now]

    def shown(self, side, row, other=None):
        left, right = (other, row) if side else (row, other)
        left = left or (right[0], None, None)
        return (*left, None if right is None else right[1])

    def take(self, side, batch, expires):
        rows = Counter()
        apply([batch], rows)
        others = self.sides[1 - side]
        for entry in others:
            before = entry[2]
            entry[2] = max(0, before + sum(n for row, n in rows.items() if row[0] == entry[0][0]))
            if self.is_outer[1 - side]:
                self.result[self.shown(1 - side, entry[0])] += (not entry[2]) - (not before)
        for row, count in sorted(rows.items(), key=lambda item: item[1]):
            matches = [entry[0] for entry in others if row[0] is not None and entry[0][0] == row[0]]
            for other in matches:
                self.result[self.shown(side, row, other)] += count
            if not matches and self.is_outer[side]:
                self.result[self.shown(side, row)] += count
            if row[0] is not None:
                self.keep(self.sides[side], row, count, expires, len(matches))

    def keep(self, entries, row, count, expires, pairs):
        entries += [[row, expires, pairs] for _ in range(count)]
        for _ in range(-count):
            equal = [entry for entry in entries if entry[0] == row]
            if equal:
                entries.remove(equal[0])
            else:
                self.unknown += 1


@settings(max_examples=60, deadline=None)
@example(
    how="left",
    changing=(False, True),
    steps=[
        ("rows", [], [("a", 0.0)], [], []),
        ("wait", 4),
        ("rows", [("a", 0, "x")], [], [], []),
        # Takes away the row that has expired.
        ("rows", [], [], [], [1]),
        ("rows", [], [("a", 1.5)], [], []),
    ],
)
@given(
    how=st.sampled_from(["inner", "left", "right", "full"]),
    changing=st.sampled_from([(False, False), (True, False), (False, True), (True, True)]),
    steps=st.lists(st.one_of(STEP, st.tuples(st.just("wait"), st.integers(1, 4))), max_size=14),
)
def test_rows_that_have_expired_match_nothing(tmp_path_factory, how, changing, steps):
    sides = [Side(LEFT, changing[0]), Side(RIGHT, changing[1])]
    schemas = [s.schema.append(change_field()) if s.is_changing else s.schema for s in sides]
    join = keyed(schemas[0], "id").join(keyed(schemas[1], "of"), how=how, ttl="3ms")
    tasks, model = Tasks(join, tmp_path_factory.mktemp("joins"), 2), ExpiringModel(how)
    result, unknown = Counter(), 0
    for name, *arguments in steps:
        if name == "wait":
            tasks.now += arguments[0]
            model.expire(tasks.now)
        elif name == "restart":
            unknown += unknown_deletes(tasks)
            tasks.restart(arguments[0])
        elif name == "checkpoint":
            tasks.checkpoint()
        else:
            batches = [
                side.batch(arguments[at], arguments[2 + at], is_undone=False)
                for at, side in enumerate(sides)
            ]
            if any(batch.num_rows for batch in batches):
                tasks.send(*batches)
            for at, batch in enumerate(batches):
                model.take(at, batch, tasks.now + 3)
        apply(tasks.batches, result)
        tasks.batches.clear()
        assert {r: n for r, n in result.items() if n} == {
            r: n for r, n in model.result.items() if n
        }
    assert unknown + unknown_deletes(tasks) == model.unknown


def unknown_deletes(tasks):
    return sum(task.dropped.get("numUnknownDeletes", 0) for task in tasks.tasks)


def test_a_row_that_is_not_there_is_counted():
    schema = LEFT.append(change_field())
    tasks = Tasks(keyed(schema, "id").join(keyed(RIGHT, "of"), how="left"), "unused")
    tasks.send(batch_of(LEFT, [("a", 1, "x")], ["delete"]), None)
    assert tasks.tasks[0].dropped["numUnknownDeletes"] == 1


def test_rows_of_equal_hashes_are_told_apart():
    schema = LEFT.append(change_field())
    tasks = Tasks(keyed(schema, "id").join(keyed(RIGHT, "of")), "unused")
    rows = [("a", size, "x") for size in range(100_000)]
    tasks.send(batch_of(LEFT, rows, ["insert"] * len(rows)), None)
    tasks.send(batch_of(LEFT, rows[10:], ["delete"] * (len(rows) - 10)), None)
    tasks.send(None, batch_of(RIGHT, [("a", 1.5)], None))
    assert sorted(row[1] for row in tasks.take()[None]) == list(range(10))


@pytest.mark.parametrize("kind", ["changing", "full", "inner", "within"])
def test_a_checkpoint_of_another_kind_of_join_is_refused(tmp_path, kind):
    left, right = keyed(LEFT, "id"), keyed(RIGHT, "of")
    changes = keyed(LEFT.append(change_field()), "id")
    tasks = Tasks(left.join(right, how="left"), tmp_path)
    tasks.send(batch_of(LEFT, [("a", 1, "x")], None), None)
    other = {
        "changing": changes.join(right, how="left"),
        "full": left.join(right, how="full"),
        "inner": left.join(right),
        "within": left.join(keyed(LEFT, "id"), within="1s", time="size", how="left"),
    }
    tasks.node = other[kind]._edges[0].node
    with pytest.raises(StateError, match="state that the function does not declare"):
        tasks.restart(1)


def test_joins_that_changes_cannot_have_are_refused():
    rows = keyed(RIGHT, "of")
    upserts = keyed(LEFT.append(change_field(["id"])), "id")
    with pytest.raises(StreamError, match="upserts"):
        upserts.join(rows)
    changes = keyed(LEFT.append(change_field()), "id")
    with pytest.raises(StreamError, match="of changes"):
        changes.join(rows, window=TumblingWindow("1s"), time=("size", "price"))
