"""Odd rows through the public calls of streams: each result is right, or an error names the column and says what to do."""

import datetime as dt
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.stream.test_types import TYPES, array_of

from headgate import _native
from headgate.errors import HeadgateError, InternalError, UnsupportedTypeError
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource, WatermarkStrategy
from headgate.stream import (
    Aggregate,
    BroadcastProcessFunction,
    BroadcastStateDescriptor,
    CountWindow,
    SessionWindow,
    SlidingWindow,
    Top,
    TumblingWindow,
    stream,
)
from headgate.stream.state.types import can_take

KEYS, TIMES, VALUES = [1, 2, 1, 2, 1, 1], [1000, 2000, 3000, 4000, 5000, 11000], [5, 3, 8, 1, 8, 2]
MS, TEN = pa.timestamp("ms"), TumblingWindow("10s")
DAY_0 = dt.date(1970, 1, 1)


def millis(at):
    """Return the milliseconds of a time; those of a number are it."""
    if not isinstance(at, dt.datetime):
        return at
    return round(at.replace(tzinfo=at.tzinfo or dt.UTC).timestamp() * 1000)


#: Other forms of the keys and values, by what makes them: the type, the value of a number, and the number of a value.
FORMS = {
    "int8": (pa.int8(), int, int),
    "float": (pa.float32(), float, int),
    "double": (pa.float64(), float, int),
    "decimal": (pa.decimal128(9, 2), Decimal, int),
    "text": (pa.string(), str, int),
    "large text": (pa.large_string(), str, int),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), str, int),
    "binary": (pa.binary(), lambda n: str(n).encode(), int),
    "date": (pa.date32(), lambda n: DAY_0 + dt.timedelta(n), lambda day: (day - DAY_0).days),
    "time": (pa.timestamp("us", "Asia/Kathmandu"), lambda n: n * 1000, millis),
}
#: Those of keys alone, which have no order or no sets.
OF_KEYS = {
    "struct": (pa.struct([("n", pa.int64())]), lambda n: {"n": n}, lambda row: row["n"]),
    "list": (pa.list_(pa.int64()), lambda n: [n, None], lambda of: of[0]),
}
OF_TIMES = [
    pa.timestamp("s"),
    pa.timestamp("ns"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ms", "Asia/Kathmandu"),
    pa.int64(),
]


def table_of(times=MS):
    return pa.table({"k": KEYS, "at": pa.array(TIMES, MS).cast(times), "v": VALUES})


def rows(table):
    """Return a stream of a table: batches of two rows, and some without any."""
    batches = table.to_batches(max_chunksize=2)

    def with_empty(numbers):
        for number in numbers["id"].to_pylist():
            yield table.schema.empty_table()
            yield from batches[number : number + 1]

    far_behind = WatermarkStrategy.for_bounded_out_of_orderness(1 << 40)
    strategy = far_behind.with_timestamp_assigner("id")
    source = NumberSequenceSource(0, max(1, len(batches)), splits=1, batch_size=1)
    return stream(source, watermarks=strategy).map(with_empty, schema=table.schema)


class Latest(BroadcastProcessFunction):
    """Adds how many rules there are."""

    def open(self, context):
        self.rules = context.get_state(BroadcastStateDescriptor("rules", pa.string(), pa.string()))

    def process_broadcast(self, batch, context):
        self.rules.put(list(map(str, batch["k"].to_pylist())), ["x"] * batch.num_rows)
        return []

    def process(self, batch, context):
        return batch


def keyed(table):
    return rows(table).key_by("k")


def both(**options):
    return lambda table: keyed(table).join(keyed(table), **options)


def window(kind=TEN, time="at", **options):
    options = options or {"aggregates": AGGREGATES}
    return lambda table: keyed(table).window(kind, time=time, **options)


def lengths(windows):
    return windows.select(["k"]).append_column("n", pc.list_value_length(windows["rows"]))


AGGREGATES = [Aggregate("count"), *(Aggregate(kind, "v") for kind in ("max", "first", "last"))]
DISTINCT = [Aggregate("count_distinct", "v")]
PLAIN = pc.field("v").is_valid()
CALLS = {
    "join within": both(within="2s", time="at"),
    "full join within": both(within="2s", time="at", how="full"),
    "join in windows": both(window=TEN, time="at", how="full"),
    "join in sliding windows": both(window=SlidingWindow("10s", "5s"), time="at", how="left"),
    "join in sessions": both(window=SessionWindow("2s"), time="at", how="full"),
    "join as of": both(as_of="at", how="left"),
    "join": both(),
    "full join": both(how="full", ttl="1h"),
    "lookup": lambda table: rows(table).lookup(table, on="k"),
    "lookup of some": lambda table: rows(table).lookup(table.slice(0, 1), on="k", how="left"),
    "lookup by a function": lambda table: rows(table).lookup(
        lambda keys: keys.append_column("n", pa.array([7] * keys.num_rows, pa.int64())), on="k"
    ),
    "windows": window(),
    "sliding windows": window(SlidingWindow("10s", "5s")),
    "sessions": window(SessionWindow("2s")),
    "windows of all rows": lambda table: rows(table).window(TEN, time="at", aggregates=AGGREGATES),
    "distinct": window(aggregates=DISTINCT),
    "first rows of windows": window(top=Top(2, by="v", rank="place")),
    "first rows of all": lambda table: rows(table).window(TEN, time="at", top=Top(2, by="v")),
    "first results": window(aggregates=AGGREGATES, top=Top(1, by="count")),
    "function": window(function=lengths),
    "early": window(aggregates=AGGREGATES, early="1h"),
    "clock": window(TumblingWindow("3650 days"), None),
    "numbers of rows": window(CountWindow(2), None),
    "aggregate": lambda table: keyed(table).aggregate(*AGGREGATES),
    "filtered": lambda table: keyed(table).aggregate(Aggregate("count", where=PLAIN)),
    "filtered windows": window(aggregates=[Aggregate("count", where=PLAIN)]),
    "distinct so far": lambda table: keyed(table).aggregate(*DISTINCT),
    "top": lambda table: keyed(table).top(2, by="v"),
    "top one": lambda table: keyed(table).top(1, by="v", rank="place"),
    "last by time": lambda table: keyed(table).keep_last(by="at"),
    "last": lambda table: keyed(table).keep_last(),
    "first by time": lambda table: keyed(table).keep_first(by="at"),
    "deduplicate": lambda table: keyed(table).deduplicate(),
    "deduplicate within": lambda table: keyed(table).deduplicate(within="3s", time="at"),
    "broadcast": lambda table: (
        rows(table).connect(rows(table).broadcast()).process(Latest, schema=table.schema)
    ),
}


def result(results, names, back=None):
    """Return how often each row is there in the end, of the columns of some names, as those of a plain table.

    Args:
        results: the stream.
        names: of the columns.
        back: for the columns ``k`` and ``v`` what makes numbers of their values.
    """
    batches, counts = [], Counter()
    results.sink(FunctionSink(batches.append)).run(parallelism=2)
    for batch in batches:
        changes = ["insert"] * batch.num_rows
        if "_change_type" in batch.schema.names:
            changes = batch["_change_type"].to_pylist()
        columns = []
        for name in names:
            column = batch.column(batch.schema.names.index(name)).to_pylist()
            form = next((f for key, f in (back or {}).items() if is_of(name, key)), millis)
            columns.append([None if value is None else form(value) for value in column])
        for row, change in zip(zip(*columns, strict=True), changes, strict=True):
            counts[row] += -1 if change in {"delete", "update_before"} else 1
    return {row: number for row, number in counts.items() if number}


def is_of(name, column):
    """Return True if a column of the result has values of one of the input."""
    return column in name.removesuffix("_right").split("_") and not name.startswith("count")


def names_of(schema, *without):
    return [
        name
        for name in schema.names
        if name != "_change_type" and not any(is_of(name, column) for column in without)
    ]


def cases(part):
    """Yield tables with the same rows in other forms, and what makes numbers of their keys and values; half of the forms."""
    of_keys = {**FORMS, **OF_KEYS, "int64": (pa.int64(), int, int)}
    for at, (key, (of, make, back_k)) in list(enumerate(of_keys.items()))[part::2]:
        value = list(FORMS)[(at + 3) % len(FORMS)]
        of_v, make_v, back_v = FORMS[value]
        table = table_of(times=OF_TIMES[at % len(OF_TIMES)])
        table = table.set_column(0, "k", pa.array(list(map(make, KEYS)), of))
        table = table.set_column(2, "v", pa.array(list(map(make_v, VALUES)), of_v))
        yield f"{key}, {value}", table, {"k": back_k, "v": back_v}
    both = pa.concat_tables([table_of().slice(3), table_of()]).combine_chunks()
    yield "slices", both.slice(3), {}
    yield "of all types", with_all_types(), {}
    yield (
        "not null",
        table_of().cast(pa.schema([field.with_nullable(False) for field in table_of().schema])),
        {},
    )


def can_send(of):
    try:
        _native.check_schema(pa.schema([("x", of)]))
    except UnsupportedTypeError:
        return False
    return True


def with_all_types():
    table = table_of()
    for at, (of, values) in enumerate(TYPES):
        if can_take(of) and can_send(of):
            array = array_of(of, values)
            table = table.append_column(f"x{at}", array.take(pa.array([0, None, 1, 1, 0, None])))
    return table


@pytest.mark.parametrize("name", CALLS)
def test_rows_in_other_forms_have_the_same_result(name):
    call = CALLS[name]
    results = call(table_of())
    names = names_of(results.schema)
    if name == "clock":
        names = [column for column in names if "window" not in column]
    expected = result(results, names)
    assert expected
    for case, table, back in cases(list(CALLS).index(name) % 2):
        assert result(call(table), names, back) == expected, case
    assert result(call(table_of().slice(0, 0)), names) == {}


def with_column(name, array):
    table = table_of()
    return table.set_column(table.schema.names.index(name), name, array)


def twice(name):
    return table_of().append_column(name, table_of()[name])


def mistakes():
    """Yield tables that some calls cannot take, and the column that is wrong."""
    times = pa.array(TIMES, MS)
    without_one = pc.if_else(pc.equal(times.cast(pa.int64()), 3000), None, times)
    yield "null among times", with_column("at", without_one), "at"
    yield "texts of times", with_column("at", pc.strftime(times, "%Y-%m-%dT%H:%M:%S")), "at"
    yield (
        "seconds in int32",
        with_column("at", pa.array([t // 1000 for t in TIMES], pa.int32())),
        "at",
    )
    yield "seconds in doubles", with_column("at", pa.array([t / 1000 for t in TIMES])), "at"
    yield "times of day", with_column("at", pa.array(TIMES, pa.time32("ms"))), "at"
    yield "a time that no window contains", with_column("at", pa.array([*TIMES[:5], 1 << 62])), "at"
    for name in ("k", "at", "v"):
        yield f"two columns {name}", twice(name), name
        yield f"no column {name}", table_of().drop_columns([name]), name
        yield (
            f"{name} in capitals",
            table_of().rename_columns(
                [column.upper() if column == name else column for column in ("k", "at", "v")]
            ),
            name,
        )
    yield (
        "two other columns",
        twice("v").rename_columns(["k", "at", "v", "x"]).append_column("x", table_of()["v"]),
        "x",
    )
    yield "a key of maps", with_column("k", pa.array([[("a", n)] for n in KEYS], MAPS)), "k"
    yield "values of maps", with_column("v", pa.array([[("a", n)] for n in VALUES], MAPS)), "v"
    yield "values of lists", with_column("v", pa.array([[n] for n in VALUES])), "v"
    yield "views", table_of().append_column("x", pa.array(list("abcdef"), pa.string_view())), "x"
    few = pa.array(list("abcdef")).cast(pa.dictionary(pa.int8(), pa.string()))
    yield "a dictionary of few values", table_of().append_column("x", few), "x"
    yield "other changes", table_of().append_column(CHANGE, pa.array(list("IUIDII"))), CHANGE
    yield "null changes", table_of().append_column(CHANGE, pa.array(["insert", None] * 3)), CHANGE
    with_start = table_of().append_column("window_start", table_of()["v"])
    yield "a column of windows", with_start, "window_start"


MAPS = pa.map_(pa.string(), pa.int64())
CHANGE = "_change_type"


def outcome(call, table, names):
    """Return the result of a call, or its error."""
    try:
        return result(call(table), names)
    except HeadgateError as error:
        return error


@pytest.mark.parametrize("name", CALLS)
def test_a_mistake_changes_nothing_or_is_named_with_what_to_do(name):
    call, refused, right = CALLS[name], 0, {}
    columns = names_of(call(table_of()).schema)
    for case, table, wrong in mistakes():
        names = [column for column in columns if not is_of(column, wrong)]
        if name == "clock":
            names = [column for column in names if "window" not in column]
        actual = outcome(call, table, names)
        if not isinstance(actual, HeadgateError):
            of_names = tuple(names)
            if of_names not in right:
                right[of_names] = result(call(table_of()), names)
            assert actual == right[of_names], case
            continue
        refused += 1
        text = str(actual)
        assert not isinstance(actual, InternalError), case
        named = (repr(wrong), f'"{wrong}"', f"({wrong})")
        assert any(form in text for form in named) or wrong == CHANGE, case
        request = text.partition("asked")[2].partition("have")[0].strip()
        assert actual.remedy, case
        assert not request or actual.remedy != request, case
    assert refused > 3
