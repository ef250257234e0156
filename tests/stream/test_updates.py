"""Running aggregates, the first rows of each key and deduplication against models that handle one row at a time."""

from collections import Counter
from itertools import chain
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.operator_tasks import OperatorTasks, task_context
from tests.kit.updates import View, keyed_stream, operator_of, views_of

from headgate._changes import CHANGE_TYPE
from headgate.errors import StreamError
from headgate.source import MAX_WATERMARK
from headgate.stream import Aggregate
from headgate.stream.graph.operator import DUPLICATES

SCHEMA = pa.schema(
    [("user", pa.string()), ("shard", pa.int32()), ("price", pa.int32()), ("note", pa.string())]
)
KEYS = ("user", "shard")
EXAMPLES = 60
PLAIN = [
    Aggregate("sum", "price"),
    Aggregate("count"),
    Aggregate("count", "price", "prices"),
    Aggregate("mean", "price"),
    Aggregate("sum", "price", "dear", where=pc.field("price") > 0),
    Aggregate("count", "price", "cheap", where=pc.field("note") == "x"),
]
AGGREGATES = [
    *PLAIN,
    Aggregate("min", "price"),
    Aggregate("max", "note"),
    Aggregate("first", "note"),
    Aggregate("last", "price"),
    Aggregate("count_distinct", "price", "different"),
    Aggregate("count_distinct", "note", "notes", where=pc.field("price") > 0),
    Aggregate("approx_count_distinct", "note", "about"),
]
#: Those of rows that are taken away too.
CHANGING = [
    *(item for item in AGGREGATES if item.kind != "approx_count_distinct"),
    *(Aggregate(kind, "note") for kind in ("min", "last", "count_distinct")),
    *(Aggregate(kind, "price") for kind in ("max", "first")),
    Aggregate("last", "note", "last_dear", where=pc.field("price") > 0),
    Aggregate("max", "price", "max_cheap", where=pc.field("note") == "x"),
]
#: The filters of aggregates, by the name of the result.
WHERE = {
    "dear": lambda row: row[2] is not None and row[2] > 0,
    "cheap": lambda row: row[3] == "x",
    "notes": lambda row: row[2] is not None and row[2] > 0,
    "last_dear": lambda row: row[2] is not None and row[2] > 0,
    "max_cheap": lambda row: row[3] == "x",
}

users = st.sampled_from(["a", "b", "c", None])
rows = st.tuples(
    users, st.integers(0, 1), st.one_of(st.none(), st.integers(-3, 3)), st.text("xy", max_size=1)
)
steps = st.lists(
    st.one_of(
        st.lists(rows, min_size=1, max_size=8),
        st.tuples(st.just("take away"), st.lists(st.integers(0, 100), min_size=1, max_size=4)),
        st.just("flush"),
        st.tuples(st.just("checkpoint"), st.sampled_from([None, 1, 2, 3])),
    ),
    max_size=12,
)


def batch_of(rows_, changes=None, schema=SCHEMA):
    columns = zip(*rows_, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=False)]
    if changes is None:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    arrays.append(pa.array(changes, pa.string()))
    return pa.RecordBatch.from_arrays(arrays, names=[*schema.names, CHANGE_TYPE])


def keyed(schema=SCHEMA, keys=KEYS):
    """Return a keyed stream of a schema, to which calls add operators."""
    return keyed_stream(schema, keys)


def end_of(changes, at, where, kind):
    """Return the value that has been there for the longest time, or the one that came last, of those that are there."""
    numbers, orders = Counter(), {}
    for order, (sign, row) in enumerate(changes):
        value = row[at]
        if value is not None and where(row):
            numbers[value] += sign
            if sign > 0 and (kind == "last" or numbers[value] == 1):
                orders[value] = order
    there = sorted(+numbers, key=orders.get)
    return there[0 if kind == "first" else -1] if there else None


def aggregated(members, changes, aggregates):
    result = {}
    for item in aggregates:
        at = None if item.column is None else SCHEMA.names.index(item.column)
        where = WHERE.get(item.result, lambda _: True)
        if item.kind in ("first", "last"):
            result[item.result] = end_of(changes, at, where, item.kind)
            continue
        chosen = [row for row in members if where(row)]
        values = chosen if at is None else [row[at] for row in chosen if row[at] is not None]
        result[item.result] = {
            "count": len,
            "sum": lambda v: sum(v) if v else None,
            "mean": lambda v: sum(v) / len(v) if v else None,
            "min": lambda v: min(v, default=None),
            "max": lambda v: max(v, default=None),
            "count_distinct": lambda v: len(set(v)),
            # A sketch of few values is exact.
            "approx_count_distinct": lambda v: len(set(v)),
        }[item.kind](values)
    return result


class Rows:
    """The rows that are there, in the order in which they came."""

    def __init__(self, steps_, *, changing):
        self.rows, self.changing = [], changing
        #: Signs and rows, by key.
        self.changes = {}
        self.steps = steps_

    def batches(self):
        """Yield each step as a batch, or as the step itself."""
        for step in self.steps:
            if isinstance(step, list):
                self.rows += step
                self._change(1, step)
                yield batch_of(step, ["insert"] * len(step) if self.changing else None)
            elif step[0] == "take away":
                gone = [self.rows.pop(at % len(self.rows)) for at in step[1] if self.rows]
                if gone:
                    self._change(-1, gone)
                    kinds = ["delete", "update_before"]
                    yield batch_of(gone, [kinds[at % 2] for at in range(len(gone))])
            else:
                yield step

    def _change(self, sign, rows_):
        for row in rows_:
            self.changes.setdefault(row[:2], []).append((sign, row))

    def by_key(self):
        groups = {}
        for row in self.rows:
            groups.setdefault(row[:2], []).append(row)
        return groups


def run(stream_, steps_, expected, *, changing):
    """Run steps; whenever no row waits, compare the rows that the changes lead to with those expected of the input."""
    final, first = operator_of(stream_)
    sent, before, keys = [], None, KEYS
    if stream_._edges[0].node.uid.startswith("aggregate"):
        before, keys = first(), ["key_0", "key_1"]
        before.open(task_context(lambda batch, _: sent.append(batch)))
    tasks, view, model = OperatorTasks(final, keys), View(), Rows(steps_, changing=changing)
    for step in chain(model.batches(), ["flush"]):
        if isinstance(step, pa.RecordBatch):
            (tasks if before is None else before).process(step)
            continue
        if before is not None:
            before.flush()
        while sent:
            tasks.process(sent.pop(0))
        if step == "flush":
            tasks.flush()
        else:
            tasks.checkpoint(step[1])
        emitted = tasks.take()
        yield [dict(row) for row in emitted]
        assert view.apply(emitted) == views_of(expected(model))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    steps_=steps,
    every=st.sampled_from(["0ms", "1 hour", None]),
    changing=st.booleans(),
    worth=st.sampled_from([0, 2]),
)
def test_running_aggregates_are_those_of_all_rows(steps_, every, changing, worth):
    aggregates = CHANGING if changing else AGGREGATES
    schema = SCHEMA.append(pa.field(CHANGE_TYPE, pa.string())) if changing else SCHEMA
    if not changing:
        steps_ = [step for step in steps_ if step[0] != "take away"]

    def expected(model):
        for key, members in model.by_key().items():
            yield dict(zip(KEYS, key, strict=True)) | aggregated(
                members, model.changes[key], aggregates
            )

    result = keyed(schema).aggregate(*aggregates, every=every)
    with patch("headgate.stream.operators.aggregated._WORTH", worth):
        for emitted in run(result, steps_, expected, changing=changing):
            if every != "0ms":
                keys = Counter((row["user"], row["shard"]) for row in emitted)
                assert max(keys.values(), default=0) <= 2


def test_rows_of_few_keys_are_combined_before_they_are_sent():
    _, first = operator_of(keyed().aggregate(*AGGREGATES, every="1 hour", max_rows=100))
    before, sent = first(), []
    before.open(task_context(lambda batch, _: sent.append(batch.num_rows)))
    few = batch_of([("a", 1, n, "x") for n in range(50)])
    many = batch_of([(str(n), 1, n, "x") for n in range(100)])
    for batch in [few, few, few, few, many, *[few] * 62, few, few]:
        before.process(batch)
    # After many keys the next 31 mini-batches pass as they are.
    assert sent == [1, 1, 100, *[100] * 31, 1]


def places(members, by, *, descending, latest=False):
    """Return rows in the order of a top, nulls last."""
    at = SCHEMA.names.index(by)
    members = list(reversed(members)) if latest else list(members)
    valid = [row for row in members if row[at] is not None]
    nulls = [row for row in members if row[at] is None]
    return [*sorted(valid, key=lambda row: row[at], reverse=descending), *nulls]


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    steps_=steps,
    n=st.integers(1, 3),
    by=st.sampled_from(["price", "note"]),
    descending=st.booleans(),
    rank=st.sampled_from([None, "place"]),
    every=st.sampled_from(["0ms", "1 hour", None]),
)
def test_the_first_rows_of_each_key_are_those_of_all_rows(steps_, n, by, descending, rank, every):
    steps_ = [step for step in steps_ if step[0] != "take away"]

    def expected(model):
        for members in model.by_key().values():
            for place, row in enumerate(places(members, by, descending=descending)[:n], 1):
                yield dict(zip(SCHEMA.names, row, strict=True)) | ({rank: place} if rank else {})

    result = keyed().top(n, by=by, descending=descending, rank=rank, every=every)
    for emitted in run(result, steps_, expected, changing=False):
        if rank is None and n > 1:
            assert {row[CHANGE_TYPE] for row in emitted} <= {"insert", "delete"}


@settings(max_examples=EXAMPLES, deadline=None)
@given(steps_=steps, by=st.sampled_from(["price", "note", None]), is_last=st.booleans())
def test_the_first_or_last_row_of_each_key_is_that_of_all_rows(steps_, by, is_last):
    steps_ = [step for step in steps_ if step[0] != "take away"]
    by = by if is_last else by or "price"

    def expected(model):
        for members in model.by_key().values():
            row = members[-1]
            if by is not None:
                row = places(members, by, descending=is_last, latest=is_last)[0]
            yield dict(zip(SCHEMA.names, row, strict=True))

    result = keyed().keep_last(by=by) if is_last else keyed().keep_first(by=by)
    for _ in run(result, steps_, expected, changing=False):
        pass


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    steps_=steps,
    n=st.integers(1, 3),
    by=st.sampled_from(["price", "note"]),
    rank=st.sampled_from([None, "place"]),
    every=st.sampled_from(["0ms", "1 hour", None]),
)
def test_rows_that_are_taken_away_make_room_for_others(steps_, n, by, rank, every):
    schema = SCHEMA.append(pa.field(CHANGE_TYPE, pa.string()))
    final, _ = operator_of(keyed(schema).top(n, by=by, rank=rank, every=every))
    tasks, view, model = OperatorTasks(final, KEYS), View(), Rows(steps_, changing=True)
    for step in chain(model.batches(), ["flush"]):
        if isinstance(step, pa.RecordBatch):
            tasks.process(step)
            continue
        tasks.flush() if step == "flush" else tasks.checkpoint(step[1])
        result = [dict(row) for row in view.apply(tasks.take()).elements()]
        # Of rows with the same value any may be in the result.
        groups = {}
        for row in result:
            groups.setdefault((row["user"], row["shard"]), []).append(row)
        wanted = {
            key: [row[SCHEMA.names.index(by)] for row in places(members, by, descending=True)[:n]]
            for key, members in model.by_key().items()
        }
        if rank is not None:
            groups = {key: sorted(of, key=lambda row: row[rank]) for key, of in groups.items()}
            assert all(
                [row[rank] for row in of] == list(range(1, 1 + len(of))) for of in groups.values()
            )
            assert {key: [row[by] for row in of] for key, of in groups.items()} == wanted
        have = {key: Counter(row[by] for row in of) for key, of in groups.items()}
        assert have == {key: Counter(values) for key, values in wanted.items()}
        there = Counter(model.rows)
        assert not Counter(tuple(row[name] for name in SCHEMA.names) for row in result) - there


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    steps_=st.lists(
        st.one_of(
            st.lists(st.tuples(users, st.integers(0, 40)), min_size=1, max_size=8),
            st.integers(0, 10),
            st.tuples(st.just("checkpoint"), st.sampled_from([None, 1, 2, 3])),
        ),
        max_size=12,
    ),
    within=st.sampled_from([1, 7, None]),
    in_event_time=st.booleans(),
)
def test_a_row_is_dropped_if_its_key_had_one_shortly_before(steps_, within, in_event_time):
    in_event_time &= within is not None
    schema = pa.schema([("user", pa.string()), ("at", pa.int64())])
    now, watermark, last = [0], -(1 << 62), {}
    result = keyed(schema, ("user",)).deduplicate(
        within=None if within is None else f"{within}ms", time="at" if in_event_time else None
    )
    tasks = OperatorTasks(operator_of(result)[0], ("user",), clock=lambda: now[0])
    duplicates = 0
    for step in steps_:
        if isinstance(step, int):
            now[0] += step
            if in_event_time:
                watermark = max(watermark, now[0])
                tasks.advance_watermark(watermark)
                forgotten = sum(int(task._first.column.present.sum()) for task in tasks.tasks)
                assert forgotten == sum(at + within > watermark + 1 for at in last.values())
        elif isinstance(step, tuple):
            tasks.checkpoint(step[1])
            duplicates = 0 if step[1] else duplicates
        else:
            new, late = [], []
            for user, at in step:
                time = at if in_event_time else now[0]
                if in_event_time and time <= watermark:
                    late.append((user, at))
                elif user in last and (within is None or abs(time - last[user]) < within):
                    duplicates += 1
                else:
                    last[user] = time
                    new.append((user, at))
            tasks.process(batch_of(step, schema=schema))
            emitted = [[tuple(row.values()) for row in tasks.take(of)] for of in (None, "late")]
            assert list(map(Counter, emitted)) == [Counter(new), Counter(late)]
            assert sum(task.dropped[DUPLICATES] for task in tasks.tasks) == duplicates


def test_an_update_without_the_row_before_has_the_key_and_is_refused_where_that_row_counts():
    counts = keyed().aggregate(Aggregate("count"), every="0ms", update_before=False)
    final, first = operator_of(counts)
    sent, tasks = [], OperatorTasks(final, ["key_0", "key_1"])
    before = first()
    before.open(task_context(lambda batch, _: sent.append(batch)))
    for _ in range(2):
        before.process(batch_of([("a", 1, 2, "x"), ("b", 1, 2, "x")]))
        tasks.process(sent.pop(0))
    kinds = [(row["user"], row["count"], row[CHANGE_TYPE]) for row in tasks.take()]
    assert sorted(kinds) == [
        ("a", 1, "insert"),
        ("a", 2, "update_after"),
        ("b", 1, "insert"),
        ("b", 2, "update_after"),
    ]
    for call in (
        lambda: counts.key_by("count").aggregate(Aggregate("count", name="n")),
        lambda: counts.key_by("user").top(1, by="count"),
        lambda: counts.key_by("user").keep_last(by="count"),
    ):
        with pytest.raises(StreamError, match="without the rows before"):
            call()


@settings(max_examples=EXAMPLES, deadline=None)
@given(steps_=steps, by=st.sampled_from(["price", "note", None]), place=st.booleans())
def test_updates_without_the_rows_before_replace_rows_by_their_keys(steps_, by, place):
    steps_ = [step for step in steps_ if step[0] != "take away"]
    if place:
        rank = {"rank": "place"}
        result = keyed().top(2, by=by or "price", update_before=False, **rank)
    else:
        rank = {}
        result = keyed().keep_last(by=by, update_before=False)
    tasks, model, view = (
        OperatorTasks(operator_of(result)[0], KEYS),
        Rows(steps_, changing=False),
        {},
    )
    for step in chain(model.batches(), ["flush"]):
        if isinstance(step, pa.RecordBatch):
            tasks.process(step)
            continue
        tasks.flush() if step == "flush" else tasks.checkpoint(step[1])
        for row in tasks.take():
            key = (row["user"], row["shard"], row.get("place"))
            assert row.pop(CHANGE_TYPE) == ("update_after" if key in view else "insert")
            view[key] = row
        expected = {}
        for key, members in model.by_key().items():
            if place:
                best = places(members, by or "price", descending=True)[:2]
            else:
                best = [members[-1]]
                if by is not None:
                    best = places(members, by, descending=True, latest=True)[:1]
            for at, row in enumerate(best, 1):
                of = dict(zip(SCHEMA.names, row, strict=True))
                expected[(*key, at if place else None)] = of | ({"place": at} if place else {})
        assert view == expected


def test_the_first_of_a_mini_batch_waits_no_longer_than_it_may():
    now = [1000]
    final, _ = operator_of(keyed().keep_last(every="20ms", max_rows=3))
    tasks = OperatorTasks(final, KEYS, clock=lambda: now[0])
    (task,) = tasks.tasks
    assert task.next_processing_timer is None
    tasks.process(batch_of([("a", 1, 2, "x")]))
    now[0] = 1010
    tasks.process(batch_of([("a", 1, 3, "x")]))
    assert task.next_processing_timer == 1020
    task.advance_processing_time(1019)
    assert tasks.take() == []
    task.advance_processing_time(1020)
    assert [row["price"] for row in tasks.take()] == [3]
    assert task.next_processing_timer is None
    for price in range(3):
        tasks.process(batch_of([("b", 1, price, "x")]))
    assert [row["price"] for row in tasks.take()] == [2]


@pytest.mark.parametrize("end", ["time", "rows", "barrier", "idle", "end of all rows"])
def test_a_watermark_waits_with_the_rows_of_a_mini_batch(end):
    now, passed = [1000], []
    final, _ = operator_of(keyed().keep_last(every="20ms", max_rows=3))
    more = {"pass_on": lambda mark: passed.append((mark, len(tasks.take())))}
    tasks = OperatorTasks(final, KEYS, clock=lambda: now[0], more=lambda _: more)
    (task,) = tasks.tasks
    task.advance_watermark(5)
    assert passed.pop() == (5, 0), "no row waits"
    for price in range(2):
        tasks.process(batch_of([("a", 1, price, "x")]))
        task.advance_watermark(6 + price)
    assert passed == []
    {
        "time": lambda: task.advance_processing_time(1020),
        "rows": lambda: tasks.process(batch_of([("a", 1, 9, "x")])),
        "barrier": task.flush,
        "idle": task.set_idle,
        "end of all rows": lambda: task.advance_watermark(MAX_WATERMARK),
    }[end]()
    assert passed.pop(0) == (MAX_WATERMARK if end == "end of all rows" else 7, 1), "behind the rows"
    assert passed == ([(None, 0)] if end == "idle" else [])


def test_a_watermark_ends_a_mini_batch_that_may_last_for_any_time():
    passed = []
    more = {"pass_on": lambda mark: passed.append((mark, len(tasks.take())))}
    final, _ = operator_of(keyed().keep_last(every=None))
    tasks = OperatorTasks(final, KEYS, more=lambda _: more)
    tasks.process(batch_of([("a", 1, 2, "x")]))
    tasks.advance_watermark(3)
    assert passed == [(3, 1)]


def test_large_rows_wait_no_longer_than_small_ones():
    tasks = OperatorTasks(operator_of(keyed().keep_last(every=None))[0], KEYS)
    row = batch_of([("a", 1, 0, "x" * 1000)])
    with patch("headgate.stream.operators.mini_batches._BYTES", 3 * row.nbytes):
        tasks.process(row)
        tasks.process(row)
        assert tasks.take() == []
        tasks.process(row)
        assert len(tasks.take()) == 1


def test_a_mini_batch_may_last_until_the_next_checkpoint():
    tasks = OperatorTasks(operator_of(keyed().keep_last(every=None))[0], KEYS)
    for price in range(3):
        tasks.process(batch_of([("a", 1, price, "x")]))
    (task,) = tasks.tasks
    assert task.next_processing_timer is None
    assert tasks.take() == []
    tasks.checkpoint()
    assert [row["price"] for row in tasks.take()] == [2]
