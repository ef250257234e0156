"""The functions of map_async(): objects, times, results of other schemas, and arguments that are refused."""

import asyncio
import threading
import time
from collections import Counter
from typing import ClassVar

import pyarrow as pa
import pytest

from headgate.errors import HeadgateError, OptionError, StreamError, UnknownColumnError
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import CallFunction, Retry, stream


def results_of(stream, **options):
    batches = []
    with stream.sink(FunctionSink(batches.append)).start(parallelism=1, **options) as query:
        query.await_termination(60)
    return [row for batch in batches for row in batch.to_pylist()], query


NUMBER = pa.schema([("id", pa.int64())])


def numbers(count=20):
    return stream(NumberSequenceSource(0, count), parallelism=1)


class Doubles(CallFunction):
    """Asks what it has opened, in the thread of the calls."""

    closed: ClassVar = []

    async def open(self, context):
        self.loop, self.index = asyncio.get_running_loop(), context.index
        self.tokens = context.metrics.counter("tokens")

    async def call(self, row, context):
        assert asyncio.get_running_loop() is self.loop
        self.tokens.add(2)
        return {"id": 2 * row["id"]}

    async def close(self):
        self.closed.append((self.index, asyncio.get_running_loop() is self.loop))


class ShortDoubles(CallFunction):
    """Takes no context."""

    async def call(self, row):
        return {"id": 2 * row["id"]}


class StaticDoubles(CallFunction):
    @staticmethod
    def call(row):
        return {"id": 2 * row["id"]}


class PlainDoubles(CallFunction):
    def open(self, context):
        self.opened = threading.get_ident()

    def call(self, batch, context):
        return pa.table({"id": [2 * at for at in batch["id"].to_pylist()]})


@pytest.mark.parametrize(
    "function", [Doubles, Doubles(), PlainDoubles, ShortDoubles, StaticDoubles()]
)
def test_an_object_is_opened_and_closed(function):
    Doubles.closed.clear()
    more = {"batch_rows": 3} if function is PlainDoubles else {}
    rows, query = results_of(numbers().map_async(function, schema=NUMBER, name="calls", **more))
    assert [row["id"] for row in rows] == [2 * at for at in range(20)]
    if function is Doubles or isinstance(function, Doubles):
        assert Doubles.closed == [(0, True)]
        assert query.status.metrics["calls"]["tokens"]["value"] == 40
        assert query.status.metrics["calls"]["calls"]["value"] == 20


def test_an_attempt_ends_after_its_time():
    attempts = Counter()

    def slow(row):
        attempts[row["id"]] += 1
        if attempts[row["id"]] == 1:
            time.sleep(0.5)
        return row

    called = numbers(3).map_async(slow, schema=NUMBER, timeout=0.05, retries=2, backoff=0)
    rows, _ = results_of(called)
    assert [row["id"] for row in rows] == [0, 1, 2]
    assert attempts == Counter(dict.fromkeys(range(3), 2))


def test_a_service_that_never_answers_ends_the_job():
    never = threading.Event()
    with pytest.raises(HeadgateError, match="failed in attempt 2: TimeoutError") as caught:
        results_of(
            numbers(3).map_async(
                lambda _: never.wait(), schema=NUMBER, timeout=0.02, retries=1, backoff=0
            )
        )
    never.set()
    assert "on_error" in caught.value.remedy


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, "returned None"),
        ({"id": 1, "no": 2}, "'no', which is no column"),
        ({"id": "text"}, "does not fit schema="),
        (pa.table({"other": [1]}), "other"),
    ],
)
def test_a_result_of_another_schema_is_refused_once(result, expected):
    requests = []

    async def call(row):
        requests.append(row["id"])
        return result

    with pytest.raises(HeadgateError) as caught:
        results_of(numbers(1).map_async(call, schema=NUMBER, retries=3))
    assert expected in str(caught.value)
    assert requests == [0]


def test_of_results_that_come_together_each_has_its_own_error():
    values = [*range(300)]
    for at in (3, 4, 100, 299):
        values[at] = ["three", 1 << 70, 2.5, b"bytes"][at % 4]

    async def call(row):
        return {"id": values[row["id"]]}

    def is_right(value):
        try:
            return len(pa.array([value], pa.int64())) == 1
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return False

    called = numbers(300).map_async(
        call, schema=NUMBER, retries=3, on_error="side_output", name="calls"
    )
    errors = []
    called.side_output("errors").sink(FunctionSink(errors.append))
    rows, query = results_of(called)
    assert [row["id"] for row in rows] == [value for value in values if is_right(value)]
    refused = [row for batch in errors for row in batch.to_pylist()]
    assert [row["id"] for row in refused] == [
        at for at, value in enumerate(values) if not is_right(value)
    ]
    assert {row["_attempts"] for row in refused} == {1}
    assert all("does not fit schema=" in row["_error"] for row in refused)
    assert query.status.metrics["calls"]["call_errors"]["value"] == len(refused) > 0


@pytest.mark.parametrize("ordered", [True, False])
def test_a_result_is_what_it_was_when_its_call_returned(ordered):
    """A function may use one dict, and lists in it, again and again."""
    answer, values = {}, []

    async def call(row):
        values[:] = [row["id"]] * (row["id"] % 3)
        answer.update(id=row["id"], text=str(row["id"]) * (1 << row["id"] % 12))
        if row["id"] % 2:
            answer["list"] = values
        else:
            answer.pop("list", None)
        return answer

    schema = pa.schema([*NUMBER, ("text", pa.string()), ("list", pa.list_(pa.int64()))])
    rows, _ = results_of(numbers(300).map_async(call, schema=schema, ordered=ordered))
    if not ordered:
        rows.sort(key=lambda row: row["id"])
    expected = [
        {
            "id": at,
            "text": str(at) * (1 << at % 12),
            "list": [at] * (at % 3) if at % 2 else None,
        }
        for at in range(300)
    ]
    assert rows == expected


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("no")


def test_an_error_that_cannot_be_pickled_is_told():
    async def call(row):
        raise Unpicklable("planned")

    with pytest.raises(HeadgateError, match="Unpicklable: planned"):
        results_of(numbers(1).map_async(call, schema=NUMBER))


async def same(row):
    return row


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"function": 3}, OptionError, "is an int"),
        ({"function": dict}, OptionError, "is the class dict"),
        ({"function": CallFunction}, OptionError, "has no call"),
        (
            {"function": type("Bare", (CallFunction,), {"call": lambda self: 1})},
            OptionError,
            "cannot be called",
        ),
        ({"function": lambda: 1}, OptionError, "cannot be called"),
        ({"schema": 1}, OptionError, "schema"),
        ({"in_flight": 0}, OptionError, "outside"),
        ({"in_flight_bytes": "many"}, OptionError, "in_flight_bytes"),
        ({"ordered": "yes"}, OptionError, "is unknown"),
        ({"ordered": 1}, OptionError, "is unknown"),
        ({"ordered": "by_key"}, StreamError, "without keys"),
        ({"ordered": "by_key", "batch_rows": 2}, OptionError, "several keys"),
        ({"timeout": 0}, OptionError, "timeout"),
        ({"retries": -1}, OptionError, "retries"),
        ({"backoff": "soon"}, OptionError, "backoff"),
        ({"retry_on": KeyboardInterrupt}, OptionError, "retry_on"),
        ({"on_error": "skip"}, OptionError, "is unknown"),
        (
            {"on_error": "null", "schema": pa.schema([pa.field("n", pa.int64(), False)])},
            OptionError,
            "never null",
        ),
        ({"batch_wait": 1}, OptionError, "without batches"),
        ({"batch_rows": 0}, OptionError, "batch_rows"),
        ({"call_id": "no"}, UnknownColumnError, "no"),
        ({"call_id": "id", "batch_rows": 2}, OptionError, "batches"),
        ({"call_id": 3}, OptionError, "not a text"),
    ],
)
def test_arguments_that_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        numbers().map_async(**{"function": same, "schema": NUMBER, **arguments})
    with pytest.raises(OptionError, match="after"):
        Retry(after="soon")


@pytest.mark.parametrize("column", ["_error", "_attempts", "_call_id"])
def test_a_column_of_the_errors_is_refused_in_the_same_words(column):
    schema = pa.schema([*NUMBER, (column, pa.int64())])
    rows = numbers().map(lambda rows: rows.append_column(column, rows["id"]), schema=schema)
    texts = set()
    for name, add in (
        ("map_async()", lambda: rows.map_async(same, schema=NUMBER)),
        ("sink_async()", lambda: rows.sink_async(same)),
    ):
        with pytest.raises(StreamError, match=f"'{column}', which it adds") as refused:
            add()
        texts.add(str(refused.value).replace(name, "CALL"))
    assert len(texts) == 1
