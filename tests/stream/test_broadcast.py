"""Broadcast state against a dict, and in jobs: the same in each task, in checkpoints, and with other numbers of tasks."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit import stream_jobs
from tests.kit.two_streams import Tasks, keyed

from headgate.errors import StateError, StreamError, UserFunctionError
from headgate.sink import FileSink, FunctionSink
from headgate.source import NumberSequenceSource, RateSource
from headgate.stream import (
    BroadcastProcessFunction,
    BroadcastStateDescriptor,
    ProcessFunction,
    ReducingStateDescriptor,
    stream,
)

ROWS = pa.schema([("user", pa.string()), ("size", pa.int64())])
RULES = pa.schema([("of", pa.string()), ("limit", pa.int64())])
RESULT = pa.schema([("user", pa.string()), ("size", pa.int64()), ("limit", pa.int64())])
LIMITS = BroadcastStateDescriptor("limits", pa.string(), pa.int64())


class Limits(BroadcastProcessFunction):
    """Adds the limit of each user; a rule of -1 removes one, and one of -2 all."""

    def open(self, context):
        self.limits = context.get_state(LIMITS)

    def process_broadcast(self, batch, context):
        for rule in batch.to_pylist():
            if rule["limit"] == -2:
                self.limits.clear()
            elif rule["limit"] == -1:
                self.limits.remove([rule["of"]])
            else:
                self.limits.put([rule["of"]], [rule["limit"]])
        return []

    def process(self, batch, context):
        limits = self.limits.get(batch["user"])
        entries = self.limits.entries().to_pylist()
        by_user = {entry["map_key"]: entry["value"] for entry in entries}
        assert limits.to_pylist() == [by_user.get(user) for user in batch["user"].to_pylist()]
        return batch.append_column("limit", limits)


class CountedLimits(Limits):
    """Emits with each row how many its user has so far."""

    def open(self, context):
        super().open(context)
        self.count = context.get_state(ReducingStateDescriptor("count", "count", pa.int64()))

    def process(self, batch, context):
        self.count.add(batch["size"])
        batch = batch.set_column(1, "size", self.count.get().take(context.rows))
        return super().process(batch, context)


USERS = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rules"), st.lists(st.tuples(USERS, st.integers(-2, 9)), max_size=4)),
        st.tuples(st.just("rows"), st.lists(USERS, min_size=1, max_size=6)),
        st.tuples(st.just("restart"), st.integers(1, 4)),
        st.tuples(st.just("checkpoint")),
    ),
    max_size=20,
)


class BroadcastTasks(Tasks):
    """Tasks that all get the rows of the second stream."""

    def send_to_all(self, batch):
        self.travelling = []
        self.packers[1].process(batch)
        for task in self.tasks:
            task.process(self.travelling[0])


@settings(max_examples=80, deadline=None)
@given(steps=STEPS)
def test_each_task_has_the_state_of_a_dict(tmp_path_factory, steps):
    rules = keyed(RULES, "of").broadcast()
    limited = keyed(ROWS, "user").connect(rules).process(CountedLimits, schema=RESULT)
    tasks = BroadcastTasks(limited, tmp_path_factory.mktemp("broadcast"), 2)
    limits, counts = {}, dict.fromkeys("abcd", 0)
    for name, *arguments in steps:
        if name == "rules" and arguments[0]:
            users, values = map(list, zip(*arguments[0], strict=True))
            tasks.send_to_all(pa.record_batch([users, values], schema=RULES))
            for user, value in arguments[0]:
                if value == -2:
                    limits.clear()
                elif value == -1:
                    limits.pop(user, None)
                else:
                    limits[user] = value
        elif name == "rows":
            users = arguments[0]
            tasks.send(pa.record_batch([users, [1] * len(users)], schema=ROWS), None)
            for user in users:
                counts[user] += 1
            expected = sorted((u, counts[u], limits.get(u)) for u in users)
            assert sorted(tasks.take()[None].elements()) == expected
        elif name == "restart":
            tasks.restart(arguments[0])
        elif name == "checkpoint":
            tasks.checkpoint()


@pytest.mark.parametrize("is_keyed", [True, False])
def test_rules_are_in_savepoints_and_reach_new_tasks(tmp_path, is_keyed):
    def job(rows, rules):
        numbers = stream(rows, name="rows").map(sizes, schema=ROWS, name="sizes")
        limits = stream(rules, name="rules").map(limits_of, schema=RULES, name="limits")
        numbers = numbers.key_by("user") if is_keyed else numbers
        limited = numbers.connect(limits.broadcast()).process(Limits, schema=RESULT, name="limited")
        return limited.sink(FileSink(str(tmp_path / "out"), mode="append"), name="files")

    rules = NumberSequenceSource(0, 50)
    query = job(RateSource(2000), rules).start(
        checkpoint=str(tmp_path / "first"), interval=0.05, parallelism=2
    )
    stream_jobs.wait_for_a_checkpoint(query)
    savepoint = query.stop(savepoint=str(tmp_path / "savepoint"))
    later = stream_jobs.rows_of(tmp_path / "out").num_rows
    # All rules are in the savepoint, since their source has ended.
    query = job(RateSource(2000), rules).start(
        checkpoint=str(tmp_path / "second"), savepoint=savepoint, interval=0.05, parallelism=3
    )
    stream_jobs.wait_for_a_checkpoint(query)
    query.stop()
    rows = stream_jobs.rows_of(tmp_path / "out").sort_by("size").slice(later)
    assert rows.num_rows
    assert rows["limit"].to_pylist() == [
        int(user) * 2 if int(user) < 50 else None for user in rows["user"].to_pylist()
    ]


def sizes(batch):
    users = pc.cast(pc.bit_wise_and(batch["id"], 63), pa.string())
    return pa.record_batch([users, batch["id"]], schema=ROWS)


def limits_of(batch):
    users, limits = pc.cast(batch["id"], pa.string()), pc.multiply(batch["id"], 2)
    return pa.record_batch([users, limits], schema=RULES)


class Writes(Limits):
    def process(self, batch, context):
        self.limits.put(["a"], [1])
        return []


class Late(Limits):
    def process_broadcast(self, batch, context):
        context.get_state(BroadcastStateDescriptor("more", pa.string(), pa.int64()))
        return []


class Keyed(Limits):
    def process(self, batch, context):
        context.get_state(ReducingStateDescriptor("sum", "sum", pa.int64()))
        return []


@pytest.mark.parametrize(
    ("function", "message"),
    [(Writes, "outside of process_broadcast"), (Late, "after open"), (Keyed, "no keys")],
)
def test_state_that_would_differ_between_tasks_is_refused(function, message):
    rows = stream(NumberSequenceSource(0, 9)).map(sizes, schema=ROWS)
    rules = stream(NumberSequenceSource(0, 9)).map(limits_of, schema=RULES)
    refused = rows.connect(rules.broadcast()).process(function, schema=RESULT)
    with pytest.raises(UserFunctionError, match=message):
        refused.sink(FunctionSink(len)).run(restarts=0)


class Plain(ProcessFunction):
    def open(self, context):
        context.get_state(LIMITS)

    def process(self, batch, context):
        return batch


def test_broadcast_state_needs_a_broadcast_stream():
    rows = stream(NumberSequenceSource(0, 9)).map(sizes, schema=ROWS)
    with pytest.raises(UserFunctionError, match="gets no rows that all its tasks get"):
        rows.key_by("user").process(Plain, schema=ROWS).sink(FunctionSink(len)).run(restarts=0)
    with pytest.raises(StreamError, match=r"connect\(\) of a DataStream"):
        rows.connect(rows)


def test_wrong_keys_and_values_are_refused():
    tasks = BroadcastTasks(
        keyed(ROWS, "user").connect(keyed(RULES, "of").broadcast()).process(Limits, schema=RESULT),
        "unused",
    )
    state = tasks.tasks[0]._function.limits
    state.is_writable = True
    with pytest.raises(StateError, match="2 values were given for 1 keys"):
        state.put(["a"], [1, 2])
    with pytest.raises(StateError, match="a key is null"):
        state.put([None], [1])
    state.put(["a", "a"], [1, None])
    assert state.get(["a", "b"]).to_pylist() == [None, None]
    assert state.entries().to_pylist() == [{"map_key": "a", "value": None}]
