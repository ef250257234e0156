"""Times to live of running aggregates and of the first rows of each key, against a model that knows each key's time."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.operator_tasks import OperatorTasks, task_context
from tests.kit.updates import View, keyed_stream, operator_of, views_of

from headgate._changes import CHANGE_TYPE
from headgate.errors import OptionError
from headgate.stream import Aggregate
from headgate.stream.graph.operator import EXPIRED, UNKNOWN_DELETES

SCHEMA = pa.schema([("user", pa.string()), ("price", pa.int64())])
CHANGING = SCHEMA.append(pa.field(CHANGE_TYPE, pa.string()))
TTL = 10
AGGREGATES = [Aggregate("count"), Aggregate("sum", "price"), Aggregate("count_distinct", "price")]
OF_CHANGES = [*AGGREGATES, *(Aggregate(kind, "price") for kind in ("min", "max"))]

steps = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), min_size=1, max_size=5),
        st.tuples(st.just("take away"), st.lists(st.integers(0, 50), min_size=1, max_size=3)),
        st.tuples(st.just("wait"), st.integers(1, 12)),
        st.tuples(st.just("checkpoint"), st.sampled_from([None, 1, 2, 3])),
    ),
    max_size=14,
)


class Keys:
    """The rows of each key and the time of the last ones."""

    def __init__(self, result):
        self.now, self.rows, self.times, self.result = 1000, {}, {}, result
        #: Rows of the result that nobody takes away; keys that were forgotten; deletes of what is not there.
        self.left, self.forgotten, self.unknown = Counter(), 0, 0

    def forget(self, keys):
        for key in keys:
            if self.rows.get(key) and self.now - self.times[key] >= TTL:
                self.left += views_of(self.result(key, self.rows.pop(key)))
                self.forgotten += 1

    def apply(self, rows, sign):
        self.forget({key for key, _ in rows})
        for key, price in rows:
            self.times[key] = self.now
            of = self.rows.setdefault(key, [])
            if sign > 0:
                of.append(price)
            elif price in of:
                of.remove(price)
            else:
                self.unknown += 1

    def rows_at(self, numbers):
        """Return some of the rows that are there."""
        there = [(key, price) for key, of in self.rows.items() for price in of]
        return [there[at] for at in sorted({at % len(there) for at in numbers})] if there else []

    def view(self):
        rows = [row for key, of in self.rows.items() if of for row in self.result(key, of)]
        return self.left + views_of(rows)


def aggregated(key, prices):
    row = {"user": key, "count": len(prices), "sum_price": sum(prices)}
    row["count_distinct_price"] = len(set(prices))
    return [row]


def aggregated_changes(key, prices):
    return [aggregated(key, prices)[0] | {"min_price": min(prices), "max_price": max(prices)}]


def greatest(key, prices):
    return [{"user": key, "price": price} for price in sorted(prices)[-2:]]


def greatest_one(key, prices):
    return greatest(key, prices)[-1:]


CALLS = {
    "aggregate": (lambda rows, **o: rows.aggregate(*AGGREGATES, **o), aggregated, False),
    "of changes": (lambda rows, **o: rows.aggregate(*OF_CHANGES, **o), aggregated_changes, True),
    "top": (lambda rows, **o: rows.top(2, by="price", **o), greatest, False),
    "top of changes": (lambda rows, **o: rows.top(2, by="price", **o), greatest, True),
    "last": (
        lambda rows, **o: rows.keep_last(by="price", **o),
        greatest_one,
        False,
    ),
}


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=25, deadline=None)
@given(steps_=steps)
def test_a_key_without_rows_for_a_time_is_forgotten(name, steps_):
    call, result, changing = CALLS[name]
    model, view = Keys(result), View()
    final, first = operator_of(
        call(keyed_stream(CHANGING if changing else SCHEMA, ("user",)), every="0ms", ttl=f"{TTL}ms")
    )
    sent, before, keys = [], None, ("user",)
    if result not in (greatest, greatest_one):
        before, keys = first(), ("key_0",)
        before.open(task_context(lambda batch, _: sent.append(batch)))
    tasks = OperatorTasks(final, keys, clock=lambda: model.now)
    is_restored = False
    for step in steps_:
        if step[0] == "wait":
            model.now += step[1]
            continue
        if step[0] == "checkpoint":
            model.forget(list(model.rows))
            tasks.checkpoint(step[1])
            is_restored |= step[1] is not None
            continue
        rows, sign = (step, 1) if isinstance(step, list) else (model.rows_at(step[1]), -1)
        if not rows or (sign < 0 and not changing):
            continue
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        if changing:
            columns.append(pa.array([["delete", "insert"][sign > 0]] * len(rows)))
        batch = pa.RecordBatch.from_arrays(columns, schema=CHANGING if changing else SCHEMA)
        (tasks if before is None else before).process(batch)
        while sent:
            tasks.process(sent.pop(0))
        model.apply(rows, sign)
        assert view.apply(tasks.take()) == model.view()
    if not is_restored:
        dropped = Counter()
        for task in tasks.tasks:
            dropped.update(task.dropped)
        assert dropped[EXPIRED] == model.forgotten
        assert dropped[UNKNOWN_DELETES] == model.unknown


@pytest.mark.parametrize(("before", "after"), [(None, "10ms"), ("10ms", None)])
def test_a_job_may_begin_and_end_to_have_a_time_to_live(before, after):
    now = [1000]

    def tasks_of(ttl):
        final, _ = operator_of(
            keyed_stream(SCHEMA, ("user",)).top(2, by="price", every="0ms", ttl=ttl)
        )
        return final

    tasks = OperatorTasks(tasks_of(before), ("user",), clock=lambda: now[0])
    row = pa.record_batch([["a"], [1]], schema=SCHEMA)
    tasks.process(row)
    tasks.take()
    now[0] = 1009
    tasks._make = tasks_of(after)
    tasks.checkpoint(2)
    now[0] = 1018
    # The time is that since the restore.
    tasks.process(pa.record_batch([["b"], [2]], schema=SCHEMA))
    tasks.checkpoint()
    assert [task.dropped[EXPIRED] for task in tasks.tasks] == [0, 0]
    now[0] = 1100
    tasks.checkpoint()
    assert sum(task.dropped[EXPIRED] for task in tasks.tasks) == (0 if after is None else 2)
    tasks._make = tasks_of("10ms")
    tasks.checkpoint(1)
    tasks.take()
    tasks.process(row)
    assert len(tasks.take()) == 1


@pytest.mark.parametrize("ttl", [0, "0ms", -1, "soon", 3])
def test_a_wrong_time_to_live_is_refused(ttl):
    with pytest.raises(OptionError, match="ttl"):
        keyed_stream(SCHEMA, ("user",)).top(1, by="price", ttl=ttl)
