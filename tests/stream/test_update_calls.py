"""Calls whose results change refuse wrong arguments at once, and order values of all types."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.kit.operator_tasks import OperatorTasks, task_context
from tests.kit.updates import keyed_stream, operator_of
from tests.stream.test_updates import SCHEMA, keyed

from headgate._changes import CHANGE_TYPE
from headgate.errors import OptionError, StreamError, UnknownColumnError, UnsupportedTypeError
from headgate.stream import Aggregate
from headgate.stream.operators.order import numbers_of
from headgate.stream.state.row_index import by_group

CHANGING = SCHEMA.append(pa.field(CHANGE_TYPE, pa.string()))
REFUSED = {
    "no aggregate": (lambda s: s.aggregate(), OptionError, "is empty"),
    "no Aggregate": (lambda s: s.aggregate("count"), OptionError, "is a str"),
    "no column": (lambda s: s.aggregate(Aggregate("sum", "cost")), UnknownColumnError, "cost"),
    "no sum": (lambda s: s.aggregate(Aggregate("sum", "note")), UnsupportedTypeError, "a sum of"),
    "two names": (
        lambda s: s.aggregate(Aggregate("count"), Aggregate("count", "note", "count")),
        StreamError,
        "have the name 'count'",
    ),
    "a key's name": (
        lambda s: s.aggregate(Aggregate("count", name="user")),
        StreamError,
        "have the name 'user'",
    ),
    "every": (lambda s: s.aggregate(Aggregate("count"), every=20), OptionError, "without a unit"),
    "max_rows": (lambda s: s.keep_last(max_rows=0), OptionError, "max_rows"),
    "update_before": (lambda s: s.keep_last(update_before="no"), OptionError, "update_before"),
    "n": (lambda s: s.top(0, by="price"), OptionError, "n=0"),
    "by": (lambda s: s.top(1, by="cost"), UnknownColumnError, "cost"),
    "by no text": (lambda s: s.keep_last(by=3), OptionError, "by=3"),
    "by a key": (lambda s: s.top(1, by="user"), StreamError, "the same 'user'"),
    "rank": (lambda s: s.top(1, by="price", rank="note"), StreamError, "have the name 'note'"),
    "within": (lambda s: s.deduplicate(within=3), OptionError, "without a unit"),
    "time without within": (lambda s: s.deduplicate(time="price"), OptionError, "within="),
    "no times": (
        lambda s: s.deduplicate(within="1s", time="note"),
        UnsupportedTypeError,
        "note|time",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_refused_at_the_call(name):
    call, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        call(keyed())


def test_an_aggregate_that_can_lose_no_row_is_refused_at_the_call():
    with pytest.raises(StreamError, match="out of a sketch"):
        keyed(CHANGING).aggregate(Aggregate("approx_count_distinct", "price"))


@pytest.mark.parametrize("kind", ["min", "first", "count_distinct"])
@pytest.mark.parametrize("of", [pa.uint64(), pa.map_(pa.string(), pa.string())], ids=str)
def test_changes_of_values_that_cannot_be_told_apart_are_refused_at_the_call(kind, of):
    schema = CHANGING.set(2, pa.field("price", of))
    with pytest.raises(UnsupportedTypeError, match="'price'"):
        keyed(schema).aggregate(Aggregate(kind, "price"))


def test_rows_that_change_are_refused_where_they_would_count_as_new():
    with pytest.raises(StreamError, match="rows change"):
        keyed(CHANGING).deduplicate()
    with pytest.raises(StreamError, match="rows change"):
        keyed(CHANGING).keep_last()
    unsigned = pa.schema([("user", pa.string()), ("n", pa.uint64()), (CHANGE_TYPE, pa.string())])
    with pytest.raises(UnsupportedTypeError, match="uint64"):
        keyed(unsigned, ("user",)).aggregate(Aggregate("sum", "n"))


ORDERED = {
    "float64": (pa.float64(), [-math.inf, -2.5, 0.0, 1e-300, 3.0, math.inf, math.nan]),
    "float32": (pa.float32(), [-math.inf, -2.5, 0.0, 3.0, math.inf, math.nan]),
    "int8": (pa.int8(), [-128, -1, 0, 127]),
    "int64": (pa.int64(), [-(1 << 63), -1, 0, (1 << 63) - 1]),
    "uint64": (pa.uint64(), [0, 1, 1 << 63, (1 << 64) - 1]),
    "bool": (pa.bool_(), [False, True]),
    "timestamp": (pa.timestamp("us", "UTC"), [0, 1, 1 << 40]),
    "string": (pa.string(), ["", "a", "ab", "b"]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff"]),
}


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("descending", [False, True])
def test_values_of_all_types_are_in_their_order_and_nulls_last(name, descending):
    of, values = ORDERED[name]
    shuffled = pa.array([values[0], None, *values[:0:-1]], of)
    numbers, nulls = numbers_of(shuffled, descending=descending)
    order, _ = by_group(nulls * 0, numbers, nulls)
    expected = pa.array([*(values[::-1] if descending else values), None], of)
    assert str(shuffled.take(pa.array(order)).to_pylist()) == str(expected.to_pylist())


@pytest.mark.parametrize(
    "name", [*(name for name in ORDERED if name != "uint64"), "decimal", "dictionary"]
)
def test_values_of_all_types_come_and_go(name):
    others = {
        "decimal": (pa.decimal128(9, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("7.25")]),
        "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["", "a", "b"]),
    }
    of, values = ORDERED.get(name) or others[name]
    schema = pa.schema([("user", pa.string()), ("v", of), (CHANGE_TYPE, pa.string())])
    kinds = ("min", "max", "first", "last", "count_distinct")
    every = [Aggregate(kind, "v", kind) for kind in kinds]
    final, first = operator_of(keyed_stream(schema, ("user",)).aggregate(*every, every="0ms"))
    before, tasks = first(), OperatorTasks(final, ["key_0"])
    before.open(task_context(lambda batch, _: tasks.process(batch)))

    def result(changed, change):
        columns = [pa.array(["a"] * len(changed)), pa.array(changed, of), [change] * len(changed)]
        before.process(pa.record_batch(columns, schema=schema))
        row = [row for row in tasks.take() if row[CHANGE_TYPE] in ("insert", "update_after")][-1]
        return str([row[kind] for kind in kinds])

    def expected(there):
        typed = pa.array([min(there, key=places.get), max(there, key=places.get), *there], of)
        least, greatest, *there = typed.to_pylist()
        return str([least, greatest, there[0], there[-1], len(there)])

    places = {value: place for place, value in enumerate(values)}
    there = [*values[1:], values[0]]
    assert result(there, "insert") == expected(there)
    tasks.checkpoint(2)
    while len(there) > 1:
        gone = there.pop(len(there) // 3)
        assert result([gone], "delete") == expected(there)
