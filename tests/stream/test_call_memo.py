"""map_async(memo=) against a service that counts: equal rows, errors, times to live, checkpoints and rescales."""

import asyncio
import math
import random
import threading
import time
from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from tests.kit.calls import count_calls
from tests.kit.operator_tasks import OperatorTasks
from tests.kit.waiting import wait_until

from headgate._changes import CHANGE_TYPE
from headgate.errors import (
    OptionError,
    SchemaMismatchError,
    StreamError,
    UnknownColumnError,
    UserFunctionError,
)
from headgate.source import NumberSequenceSource
from headgate.stream import stream
from headgate.stream.operators.calls.digests import DigestColumn
from headgate.stream.operators.calls.rows import DIGEST

ROWS = pa.schema([("id", pa.int64()), ("user", pa.int64()), ("text", pa.string())])
RESULT = pa.schema([("answer", pa.string())])
#: With a column that each row has for itself.
OWN = pa.schema([("id", pa.int64()), *RESULT])
TEXTS = 12


def rows_stream():
    """Return a stream of the columns, of which only the operators behind it are used."""
    return stream(NumberSequenceSource(0, 1)).map(lambda _: rows_of([]), schema=ROWS)


def rows_of(rows):
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.record_batch([list(column) for column in columns], schema=ROWS)


class MemoTasks(OperatorTasks):
    """The tasks of a map_async(memo=), whose rows get their digests."""

    def __init__(self, called, keys=(DIGEST,), clock=lambda: 0):
        node = called._edges[0].node
        self.digests = node.inputs[0].node.make.args[0]
        super().__init__(node.make, list(keys), clock=clock)

    def send(self, *rows):
        self.process(self.digests(rows_of(rows)))

    def poll(self, *, is_end=False):
        return [task.poll(is_end=is_end) for task in self.tasks]

    def finish(self):
        def are_quiet():
            self.poll(is_end=True)
            return all(task.is_quiet for task in self.tasks)

        wait_until(are_quiet, "all calls have ended", 30)

    def count(self, name):
        plain = [task._context.metrics.plain() for task in self.tasks]
        return sum(figures[name]["value"] for figures in plain)

    def close(self):
        for task in self.tasks:
            task.close()


class Service:
    """Answers a text after a random wait, and refuses some of its first requests. It counts by what makes rows equal."""

    def __init__(self, seed, by):
        self._random, self._by, self._lock = random.Random(seed), by, threading.Lock()
        self.requests, self.active, self.sent = Counter(), defaultdict(int), set()
        self.refused = {text: self._random.choice([0, 0, 0, 1, 2]) for text in range(TEXTS)}

    async def row(self, row):
        number = (await self._answers([row]))[0]
        return [{"id": row["id"], "answer": f"to {row['text']}"}] * number

    async def batch(self, batch):
        rows = batch.to_pylist()
        await self._answers(rows)
        return [{"id": row["id"], "answer": f"to {row['text']}"} for row in rows]

    async def _answers(self, rows):
        """Wait, and return the number of results of each row, if it is called by itself."""
        parts = [self._begin(row) for row in rows]
        try:
            await asyncio.sleep(max(wait for _, wait, _, _ in parts))
        finally:
            with self._lock:
                for place, _, _, _ in parts:
                    self.active[place] -= 1
        if any(is_refused for _, _, _, is_refused in parts):
            raise ValueError("refused")
        return [number % 3 for _, _, number, _ in parts]

    def _begin(self, row):
        assert row.keys() == set(ROWS.names)
        # Each task has a loop, and a restart ends them.
        content, loop = self._by(row), asyncio.get_running_loop()
        with self._lock:
            self.requests[content] += 1
            self.active[loop, content] += 1
            assert self.active[loop, content] == 1, "an equal row is called"
            assert content not in self.sent, "its result is there"
            number = int(row["text"].split()[1])
            is_refused = self.refused[number] > 0
            self.refused[number] -= 1
            wait = self._random.choice([0, 0, 0.001, 0.002, 0.01])
        return (loop, content), wait, number, is_refused


@pytest.mark.parametrize(
    ("kind", "ordered"),
    [("row", True), ("row", False), ("row", "by_key"), ("batch", True), ("batch", False)],
)
@pytest.mark.parametrize("seed", range(5))
def test_equal_rows_are_called_once(kind, ordered, seed):
    draw = random.Random(f"{seed} {kind} {ordered}")
    is_keyed = ordered == "by_key" or draw.random() < 0.4
    rows = rows_stream().key_by("user") if is_keyed else rows_stream()
    by_text = [lambda row: row["text"], lambda row: (row["user"], row["text"])][is_keyed]
    service = Service(seed, by_text)
    called = rows.map_async(
        getattr(service, kind),
        schema=OWN,
        memo=draw.choice(["text", lambda row: ("v1", row["text"])]),
        in_flight=draw.choice([1, 3, 20]),
        in_flight_bytes=draw.choice([1, 4000, "1m"]),
        ordered=ordered,
        on_error="side_output",
        call_id=draw.choice([None, "id"]) if kind == "row" else None,
        batch_rows=5 if kind == "batch" else None,
        batch_bytes=draw.choice([None, 100]) if kind == "batch" else None,
    )
    tasks = MemoTasks(called, ["user"] if is_keyed else [DIGEST])
    sent, results, has_restarted = [], [], False

    def take():
        new = [(row["id"], row["answer"]) for row in tasks.take()]
        results.extend(new)
        if not is_keyed:
            service.sent |= {answer.removeprefix("to ") for _, answer in new}

    actions = {"rows": 8, "poll": 6, "checkpoint": 2, "wait": 2}
    for action in draw.choices([*actions], [*actions.values()], k=50):
        if action == "rows":
            new = [
                (len(sent) + at, draw.randrange(3), f"text {draw.randrange(TEXTS)}")
                for at in range(draw.randint(1, 12))
            ]
            sent += new
            tasks.send(*new)
        elif action == "poll":
            tasks.poll()
            take()
        elif action == "checkpoint":
            parallelism = draw.choice([None, 1, draw.randint(1, 4)])
            has_restarted = has_restarted or parallelism is not None
            tasks.checkpoint(parallelism)
        else:
            time.sleep(0.002)
    tasks.finish()
    take()
    errors = tasks.take("errors")
    tasks.close()
    refused = {row["id"] for row in errors}
    answered = [
        (at, f"to {text}")
        for at, _, text in sent
        if at not in refused
        for _ in range(int(text[5:]) % 3 if kind == "row" else 1)
    ]
    assert Counter(results) == Counter(answered)
    assert len(refused) == len(errors), "a row has one error"
    if not has_restarted:
        contents = {by_text(dict(zip(ROWS.names, row, strict=True))) for row in sent}
        assert service.requests.keys() == contents
        assert sum(service.requests.values()) <= len(contents) + len(errors)
    for row in errors:
        assert list(row) == [*ROWS.names, "_error", "_attempts", "_call_id"]
        assert row["_error"] == "ValueError: refused"


class Gate:
    """A function whose calls wait until they are let through, and fail so many times."""

    def __init__(self, failures=0):
        self.requests, self.open, self.failures = [], threading.Event(), failures

    async def __call__(self, row, context):
        self.requests.append((row["id"], context.call_id))
        while not self.open.is_set():  # noqa: ASYNC110 - by another thread
            await asyncio.sleep(0.001)
        self.failures -= 1
        if self.failures >= 0:
            raise ValueError("refused")
        return {"answer": f"{row['id']} for {row['text']}"}


def test_equal_rows_wait_for_one_call_also_after_a_restart():
    gate = Gate()
    tasks = MemoTasks(rows_stream().map_async(gate, schema=RESULT, memo="text", call_id="id"))
    tasks.send(*((at, 0, "same") for at in range(5)), (5, 0, "other"))
    wait_until(lambda: len(gate.requests) == 2)
    tasks.checkpoint(1)
    assert tasks.count("calls_repeated") == 2
    tasks.send((6, 0, "other"))
    gate.open.set()
    tasks.finish()
    assert gate.requests == [(0, "0"), (5, "5")] * 2, "with the names that they had"
    answers = [row["answer"] for row in tasks.take()]
    assert answers == ["0 for same"] * 5 + ["5 for other"] * 2
    assert tasks.count("memo_hits") == 5
    tasks.checkpoint(3)
    tasks.send((7, 0, "same"), (8, 0, "other"))
    assert any(tasks.poll())
    tasks.finish()
    assert sorted(row["answer"] for row in tasks.take()) == ["0 for same", "5 for other"]
    assert (tasks.count("memo_hits"), tasks.count("calls"), len(gate.requests)) == (2, 0, 4)
    tasks.close()


@pytest.mark.parametrize("ordered", [True, False])
def test_an_error_is_that_of_one_row(ordered):
    gate = Gate(failures=2)
    called = rows_stream().map_async(
        gate, schema=RESULT, memo="text", on_error="null", ordered=ordered, in_flight=1
    )
    tasks = MemoTasks(called)
    tasks.send(*((at, 0, "same") for at in range(4)))
    gate.open.set()
    tasks.finish()
    assert [row["answer"] for row in tasks.take()] == [None, None, *["2 for same"] * 2]
    assert [at for at, _ in gate.requests] == [0, 1, 2]
    tasks.close()


def test_a_result_is_forgotten_after_its_time():
    gate, clock = Gate(), [0]
    gate.open.set()
    called = rows_stream().map_async(gate, schema=RESULT, memo=True, memo_ttl="1 second")
    tasks = MemoTasks(called, clock=lambda: clock[0])
    for moment, calls in ((0, 1), (999, 1), (1001, 2), (1999, 2)):
        clock[0] = moment
        tasks.send((1, 1, "same"))
        tasks.finish()
        assert len(gate.requests) == calls
    tasks.send((1, 2, "same"))
    tasks.finish()
    assert len(gate.requests) == 3, "all columns count"
    tasks.close()


@pytest.mark.parametrize("schema", [RESULT, OWN])
@pytest.mark.parametrize("ordered", [True, False])
def test_results_that_are_looked_up_are_answered_at_once(schema, ordered):
    async def answer(row):
        return (
            {"id": row["id"], "answer": row["text"]} if schema is OWN else {"answer": row["text"]}
        )

    called = rows_stream().map_async(
        answer, schema=schema, memo="text", ordered=ordered, in_flight=200
    )
    tasks = MemoTasks(called)
    tasks.send(*((at, 0, f"text {at}") for at in range(200)))
    tasks.finish()
    tasks.take()
    # In another order, and with new values of what is each row's own.
    rows = tasks.digests(rows_of([(1000 + at, 0, f"text {199 - at}") for at in range(200)]))
    (task,) = tasks.tasks
    calls = count_calls(lambda: task.process(rows))
    assert calls / 200 < 12, f"{calls / 200} calls of functions for a row"
    tasks.finish()
    rows_sent = tasks.take()
    assert [row["answer"] for row in rows_sent] == [f"text {199 - at}" for at in range(200)]
    if schema is OWN:
        assert [row["id"] for row in rows_sent] == [*range(1000, 1200)]
    assert (tasks.count("calls"), tasks.count("memo_hits")) == (200, 200)
    assert task._size == pytest.approx(0, abs=1e-6)
    tasks.close()


def test_results_of_any_number_of_rows_are_answered_at_once():
    async def answer(row):
        return [{"id": row["id"], "answer": row["text"]}] * (int(row["text"]) % 3)

    tasks = MemoTasks(rows_stream().map_async(answer, schema=OWN, memo="text"))
    for first in (0, 100):
        tasks.send(*((first + at, 0, f"{at}") for at in range(20)))
        tasks.finish()
        expected = [(first + at, f"{at}") for at in range(20) for _ in range(at % 3)]
        assert [(row["id"], row["answer"]) for row in tasks.take()] == expected
    assert tasks.count("memo_hits") == 20
    tasks.close()


def test_a_batch_has_the_rows_that_need_a_call():
    batches = []

    async def answer(batch, context):
        batches.append((batch["id"].to_pylist(), context.call_id))
        return [{"answer": text} for text in batch["text"].to_pylist()]

    called = rows_stream().map_async(answer, schema=RESULT, memo="text", batch_rows=3, in_flight=1)
    tasks = MemoTasks(called)
    texts = ["a", "b", "a", "c", "d", "b", "e"]
    tasks.send(*((at, 0, text) for at, text in enumerate(texts)))
    tasks.finish()
    tasks.send(*((at, 0, text) for at, text in enumerate(["e", "f", "a"], 7)))
    tasks.finish()
    assert [ids for ids, _ in batches] == [[0, 1, 3], [4, 6], [8]]
    assert len({call_id for _, call_id in batches}) == 3
    assert [row["answer"] for row in tasks.take()] == [*texts, "e", "f", "a"]
    assert (tasks.count("calls"), tasks.count("memo_hits")) == (3, 4)
    tasks.close()


def test_a_batch_returns_a_row_for_each():
    async def answer(batch):
        return [{"answer": "a"}] * (batch.num_rows + 1)

    called = rows_stream().map_async(
        answer, schema=RESULT, memo="text", batch_rows=9, on_error="side_output", retries=3
    )
    tasks = MemoTasks(called)
    tasks.send((0, 0, "a"), (1, 0, "b"))
    tasks.finish()
    errors = tasks.take("errors")
    assert [row["_attempts"] for row in errors] == [1, 1]
    assert "returned 3 rows for 2" in errors[0]["_error"]
    assert errors[0]["_call_id"] == errors[1]["_call_id"]
    tasks.close()


@pytest.mark.parametrize("batch_rows", [None, 2])
@pytest.mark.parametrize("on_error", ["fail", "side_output", "null"])
def test_a_call_that_changes_a_column_of_its_row_fails(batch_rows, on_error):
    def answer(about):
        if batch_rows is None:
            return {"id": about["id"] + about["user"], "answer": about["text"]}
        ids = zip(*(about[name].to_pylist() for name in ROWS.names), strict=True)
        return [{"id": at + user, "answer": text} for at, user, text in ids]

    called = rows_stream().map_async(
        answer, schema=OWN, memo="text", batch_rows=batch_rows, on_error=on_error
    )
    tasks = MemoTasks(called)
    tasks.send((0, 0, "a"), (1, 1, "b"))
    if on_error == "fail":
        with pytest.raises(SchemaMismatchError, match="changed column 'id'"):
            tasks.finish()
        tasks.close()
        return
    tasks.finish()
    tasks.send((2, 1, "a"))
    tasks.finish()
    missing = [(1, None)] if on_error == "null" else []
    assert sorted((row["id"], row["answer"]) for row in tasks.take()) == [
        (0, "a"),
        *missing,
        (2, "a"),
    ]
    assert [row["id"] for row in tasks.take("errors")] == ([] if missing else [1])
    assert (tasks.count("call_errors"), tasks.count("memo_hits")) == (1, 1)
    tasks.close()


def test_own_columns_may_be_of_any_type():
    rows = [(math.nan, [1, None], None), (None, None, {"a": 1}), (math.nan, [1, None], {"a": 2})]
    schema = pa.schema(
        [("f", pa.float32()), ("l", pa.list_(pa.int8())), ("s", pa.struct([("a", pa.int64())]))]
    )
    batch = pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=schema)
    called = (
        stream(NumberSequenceSource(0, 1))
        .map(lambda _: batch, schema=schema)
        .map_async(lambda row: [row, row], schema=schema, memo=lambda _: 1)
    )
    tasks = MemoTasks(called)
    tasks.process(tasks.digests(batch))
    tasks.finish()
    assert repr([tuple(row.values()) for row in tasks.take()[::2]]) == repr(rows)
    tasks.close()


def test_rows_of_other_keys_are_not_equal():
    gate = Gate()
    gate.open.set()
    called = rows_stream().key_by("user").map_async(gate, schema=RESULT, memo="text")
    tasks = MemoTasks(called, ["user"])
    tasks.send((0, 0, "same"), (1, 1, "same"), (2, 0, "same"))
    tasks.finish()
    assert [row["answer"] for row in tasks.take()] == ["0 for same", "1 for same", "0 for same"]
    tasks.close()


def test_equal_values_of_any_types_have_one_digest():
    schema = pa.schema(
        [
            ("at", pa.timestamp("ns", "UTC")),
            ("day", pa.date32()),
            ("sizes", pa.list_(pa.decimal128(9, 2))),
            ("kind", pa.dictionary(pa.int8(), pa.string())),
            ("raw", pa.binary()),
            ("tags", pa.map_(pa.string(), pa.int32())),
        ]
    )
    rows = [
        {"at": 1, "day": 3, "sizes": [1, None], "kind": "a", "raw": b"\xff", "tags": [("x", 1)]},
        dict.fromkeys(schema.names),
        {"at": 1, "day": 3, "sizes": [1], "kind": "a", "raw": b"\xff", "tags": [("x", 1)]},
        {"at": 2, "day": 3, "sizes": [1, None], "kind": "a", "raw": b"\xff", "tags": [("x", 1)]},
    ]
    batch = pa.RecordBatch.from_pylist([*rows, *rows], schema=schema)
    digests = DigestColumn(schema, range(len(schema)), [])(batch)[DIGEST].to_pylist()
    assert digests[:4] == digests[4:]
    assert len({*digests}) == 4
    assert {len(digest) for digest in digests} == {16}
    # Other processes have the same one: it is in checkpoints.
    (digest,) = DigestColumn(ROWS, [2], [])(rows_of([(1, 1, "tea")]))[DIGEST].to_pylist()
    assert digest.hex() == "7b599a0ae91be02b4f5a06f1a149fd7d"


def test_a_function_without_content_is_refused():
    digests = DigestColumn(ROWS, (), (), lambda row: object())
    with pytest.raises(UserFunctionError, match="has no content"):
        digests(rows_of([(1, 1, "tea")]))


@pytest.mark.parametrize(
    ("arguments", "error", "part"),
    [
        ({"memo": 3}, OptionError, "memo=3"),
        ({"memo": False}, OptionError, "memo=False"),
        ({"memo": "txet"}, UnknownColumnError, "txet"),
        ({"memo": lambda: 1}, OptionError, "cannot be called"),
        ({"memo": "text", "memo_ttl": 5}, OptionError, "memo_ttl=5"),
        ({"memo_ttl": "1 day"}, OptionError, "without memo="),
        ({"memo": "text", "ordered": "by_key"}, StreamError, "without keys"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, part):
    with pytest.raises(error, match=part):
        rows_stream().map_async(Gate(), schema=RESULT, **arguments)


def test_rows_that_change_and_a_column_of_the_name_are_refused():
    for name, part in ((CHANGE_TYPE, "rows change"), (DIGEST, DIGEST)):
        schema = pa.schema([("id", pa.int64()), (name, pa.string())])
        rows = stream(NumberSequenceSource(0, 1)).map(lambda batch: batch, schema=schema)
        with pytest.raises(StreamError, match=part):
            rows.map_async(Gate(), schema=RESULT, memo="id")
