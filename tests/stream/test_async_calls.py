"""map_async() against a model: a service with random waits and errors, checkpoints and rescales."""

import asyncio
import random
import threading
import time
from collections import Counter, defaultdict
from typing import ClassVar

import pyarrow as pa
import pytest
from tests.kit.operator_tasks import OperatorTasks
from tests.kit.waiting import wait_until

from headgate.errors import HeadgateError, OptionError, StreamError
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import CallFunction, Retry, stream

ROWS = pa.schema([("id", pa.int64()), ("user", pa.int64()), ("text", pa.string())])
RESULT = pa.schema([("id", pa.int64()), ("user", pa.int64()), ("answer", pa.string())])
USERS = 5


def rows_of(ids):
    columns = [list(ids), [at % USERS for at in ids], [f"text {at}" * (at % 3) for at in ids]]
    return pa.record_batch(columns, schema=ROWS)


def rows_stream():
    """Return a stream of the columns, of which only the operator behind it is used."""

    def replace(numbers):
        return rows_of(numbers["id"].to_pylist())

    return stream(NumberSequenceSource(0, 1)).map(replace, schema=ROWS)


class Service:
    """Answers after random waits, and fails for some rows: always, or at first. It knows who requests for what."""

    def __init__(self, seed):
        self._random = random.Random(seed)
        #: The ids of calls and attempts by row, and the rows that had an answer, once for each.
        self.requests = defaultdict(list)
        self.answered = Counter()
        self.hopeless = {at for at in range(500) if self._random.random() < 0.05}
        self.late = {at for at in range(500) if self._random.random() < 0.1} - self.hopeless
        self._lock = threading.Lock()

    def begin(self, ids, context):
        """Note a call; return the seconds of its wait, and raise its error."""
        with self._lock:
            for at in ids:
                self.requests[at].append((context.call_id, context.attempt))
            if self.hopeless & set(ids):
                raise ValueError(f"hopeless {min(self.hopeless & set(ids))}")
            if self.late & set(ids) and context.attempt == 1:
                raise Retry("too many", after=0.001)
            return self._random.choice([0, 0, 0.001, 0.002, 0.01])

    def end(self, ids):
        with self._lock:
            self.answered.update(ids)

    @staticmethod
    def answer(at, user):
        return {"id": at, "user": user, "answer": f"to {at}"}


def calls_of(service, kind):
    """Return a function that asks the service: a coroutine or not, for a row or for a batch."""

    async def row(row, context):
        await asyncio.sleep(service.begin([row["id"]], context))
        service.end([row["id"]])
        return service.answer(row["id"], row["user"])

    def plain(row, context):
        time.sleep(service.begin([row["id"]], context))
        service.end([row["id"]])
        return [service.answer(row["id"], row["user"])]

    async def batch(batch, context):
        ids = batch["id"].to_pylist()
        await asyncio.sleep(service.begin(ids, context))
        service.end(ids)
        return [service.answer(at, at % USERS) for at in ids]

    return {"row": row, "plain": plain, "batch": batch}[kind]


class CallTasks(OperatorTasks):
    """The tasks of a map_async(), whose watermarks are compared with the rows before them."""

    def __init__(self, of, keys):
        #: By task: numbers of rows that arrived, that are gone, and what arrived before each watermark.
        self.sent, self.marks = [], []
        super().__init__(of._edges[0].node.make, keys, more=self._hooks)

    def open(self, parallelism, snapshots=(), watermark=None):
        self.emitted_ids = getattr(self, "emitted_ids", [])
        self.sent = [[] for _ in range(parallelism)]
        self.marks = [{} for _ in range(parallelism)]
        self.passed = [[] for _ in range(parallelism)]
        super().open(parallelism, snapshots, watermark)

    def _hooks(self, at):
        passed, marks = self.passed[at], self.marks[at]

        def pass_on(watermark):
            passed.append(watermark)
            missing = set(marks[watermark]) - {row for row, _ in self.emitted_ids}
            assert not missing, "a watermark has overtaken rows"

        return {"pass_on": pass_on}

    def _emit(self, batch, output):
        super()._emit(batch, output)
        self.emitted_ids += [(row, output) for row in batch["id"].to_pylist()]

    def send(self, at, ids):
        self.sent[at] += ids
        self.tasks[at].process(rows_of(ids))

    def mark(self, watermark):
        for at, task in enumerate(self.tasks):
            self.marks[at][watermark] = list(self.sent[at])
            task.advance_watermark(watermark)

    def poll(self, *, is_end=False):
        for task in self.tasks:
            task.poll(is_end=is_end)


@pytest.mark.parametrize(
    ("kind", "ordered"),
    [
        *((kind, ordered) for kind in ("row", "plain", "batch") for ordered in (True, False)),
        ("row", "by_key"),
        ("plain", "by_key"),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_calls_are_as_a_loop_has_them(kind, ordered, seed):
    draw = random.Random(f"{seed} {kind} {ordered}")
    service = Service(seed)
    is_keyed = ordered == "by_key" or draw.random() < 0.5
    rows = rows_stream().key_by("user") if is_keyed else rows_stream()
    on_error = draw.choice(["side_output", "null"])
    called = rows.map_async(
        calls_of(service, kind),
        schema=RESULT,
        in_flight=draw.choice([1, 3, 20]),
        in_flight_bytes=draw.choice([1, 400, "1m"]),
        ordered=ordered,
        retries=1,
        retry_on=(),
        on_error=on_error,
        batch_rows=4 if kind == "batch" else None,
        batch_bytes=draw.choice([None, 100]) if kind == "batch" else None,
    )
    tasks = CallTasks(called, ["user"])
    number, most_tasks = _random_run(draw, tasks, is_keyed=is_keyed)
    _finish(tasks)
    results, errors = tasks.take(), tasks.take("errors")
    _check_rows(service, kind, number, results, errors, on_error)
    ids = [row["id"] for row in results]
    if ordered is True and most_tasks == 1:
        assert ids == sorted(ids)
    if ordered == "by_key":
        assert sorted(ids, key=lambda at: at % USERS) == sorted(
            ids, key=lambda at: (at % USERS, at)
        )


def _random_run(draw, tasks, *, is_keyed):
    """Send rows and watermarks, poll, take checkpoints; return the number of rows, and the most tasks."""
    number, watermark, most_tasks = 0, 0, 1
    actions = {"rows": 8, "mark": 4, "poll": 4, "checkpoint": 3, "wait": 1}
    for action in draw.choices([*actions], [*actions.values()], k=40):
        if action == "rows":
            ids = list(range(number, number + draw.randint(1, 12)))
            number += len(ids)
            if is_keyed:
                tasks.process(rows_of(ids))
            else:
                tasks.send(draw.randrange(len(tasks.tasks)), ids)
        elif action == "mark":
            watermark += 1
            tasks.mark(watermark)
        elif action == "poll":
            tasks.poll()
        elif action == "checkpoint":
            tasks.checkpoint(draw.choice([None, 1, draw.randint(1, 4)]))
            most_tasks = max(most_tasks, len(tasks.tasks))
        else:
            time.sleep(0.002)
    return number, most_tasks


def _finish(tasks):
    """Poll until nothing is under way, and close the tasks."""
    last = [list(marks) for marks in tasks.marks]

    def are_quiet():
        tasks.poll(is_end=True)
        return all(task.is_quiet for task in tasks.tasks)

    wait_until(are_quiet, "all calls have ended", 30)
    for passed, marks in zip(tasks.passed, last, strict=True):
        assert passed == sorted(passed), "watermarks keep their order"
        assert passed[-1:] == marks[-1:], "the last watermark has passed"
    for task in tasks.tasks:
        task.close()


def _check_rows(service, kind, number, results, errors, on_error):
    """Compare with a loop over the rows; in a batch a row that fails takes the others with it."""
    hopeless = service.hopeless & set(range(number))
    failed = {row["id"] for row in errors} | {row["id"] for row in results if not row["answer"]}
    assert failed == hopeless if kind != "batch" else failed >= hopeless
    assert Counter(row["id"] for row in [*results, *errors]) == Counter(range(number))
    for row in results:
        expected = service.answer(row["id"], row["id"] % USERS)
        assert row == ({**expected, "answer": None} if row["id"] in failed else expected)
    assert bool(errors) == (on_error == "side_output" and bool(failed))
    for row in errors:
        assert rows_of([row["id"]]).to_pylist() == [{name: row[name] for name in ROWS.names}]
        assert row["_error"].startswith("ValueError: hopeless")
        assert (row["_call_id"], row["_attempts"]) == service.requests[row["id"]][-1]
    for requests in service.requests.values():
        assert len({call_id for call_id, _ in requests}) == 1, "a row keeps the name of its call"
    if kind != "batch":
        assert len({requests[0][0] for requests in service.requests.values()}) == number


class Gate:
    """A function whose calls wait until they are let through."""

    def __init__(self):
        self.waiting, self.requests, self._loop = {}, [], None

    async def __call__(self, row, context):
        self.requests.append((row["id"], context.call_id, context.attempt))
        event = self.waiting.setdefault(row["id"], threading.Event())
        while not event.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.001)
        return Service.answer(row["id"], row["user"])

    def let(self, *ids):
        for at in ids:
            self.waiting.setdefault(at, threading.Event()).set()


def polled(tasks, predicate):
    def is_so():
        tasks.poll()
        return predicate()

    wait_until(is_so)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_restored_call_has_its_name_and_a_result_is_not_called_again(ordered):
    gate = Gate()
    tasks = CallTasks(
        rows_stream().map_async(gate, schema=RESULT, in_flight=3, ordered=ordered), []
    )
    tasks.send(0, list(range(6)))
    wait_until(lambda: len(gate.requests) == 3)
    assert tasks.tasks[0].is_full, "three rows wait for room"
    gate.let(1)
    polled(tasks, lambda: len(gate.requests) == 4)
    sent = [row["id"] for row in tasks.take()]
    assert sent == ([] if ordered else [1]), "the first row is not done"
    first = {at: call_id for at, call_id, _ in gate.requests}
    tasks.checkpoint(1)
    gate.let(*range(6))
    polled(tasks, lambda: tasks.tasks[0].is_quiet)
    assert [row["id"] for row in tasks.take()] == [0, 1, 2, 3, 4, 5] if ordered else True
    again = {at: call_id for at, call_id, _ in gate.requests[4:]}
    assert again.keys() == {0, 2, 3, 4, 5}, "row 1 had its result"
    assert all(again[at] == first[at] for at in (0, 2, 3))
    counters = {
        name: plain["value"]
        for name, plain in tasks.tasks[0]._context.metrics.plain().items()
        if "value" in plain
    }
    assert counters == {
        "calls": 5,
        "call_retries": 0,
        "call_errors": 0,
        "calls_repeated": 3,
        "calls_in_flight": 0,
    }
    tasks.tasks[0].close()


def test_bytes_bound_what_is_called_and_what_waits_to_be_sent():
    gate = Gate()
    tasks = CallTasks(
        rows_stream().map_async(gate, schema=RESULT, in_flight=50, in_flight_bytes=150), []
    )
    tasks.send(0, list(range(30)))
    wait_until(lambda: gate.requests)
    begun = len(gate.requests)
    assert 1 <= begun < 10
    gate.let(*range(1, 30))
    time.sleep(0.02)
    tasks.poll()
    assert len(gate.requests) == begun, "results wait for the first row, and fill the bytes"
    gate.let(0)
    polled(tasks, lambda: tasks.tasks[0].is_quiet)
    assert [row["id"] for row in tasks.take()] == list(range(30))
    tasks.tasks[0].close()


def test_batches_wait_for_rows_and_their_time():
    sizes, clock = [], [0]

    async def count(batch):
        sizes.append(batch.num_rows)
        return []

    called = rows_stream().map_async(count, schema=RESULT, batch_rows=5, batch_wait="1s")
    tasks = OperatorTasks(called._edges[0].node.make, [], clock=lambda: clock[0])
    (task,) = tasks.tasks
    task.process(rows_of(range(3)))
    assert (task.next_processing_timer, task.is_full) == (1000, False)
    clock[0] = 400
    task.process(rows_of(range(3, 7)))
    assert task.next_processing_timer == 1400, "that of the rows which are left"
    task.advance_processing_time(1399)
    task.advance_processing_time(1400)
    assert task.next_processing_timer is None
    task.process(rows_of(range(2)))
    task.poll(is_end=True)
    wait_until(lambda: len(sizes) == 3)
    assert sorted(sizes) == [2, 2, 5]
    task.close()


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


class PlainDoubles(CallFunction):
    def open(self, context):
        self.opened = threading.get_ident()

    def call(self, batch, context):
        return pa.table({"id": [2 * at for at in batch["id"].to_pylist()]})


@pytest.mark.parametrize("function", [Doubles, Doubles(), PlainDoubles])
def test_an_object_is_opened_and_closed(function):
    Doubles.closed.clear()
    more = {"batch_rows": 3} if function is PlainDoubles else {}
    rows, query = results_of(numbers().map_async(function, schema=NUMBER, name="calls", **more))
    assert [row["id"] for row in rows] == [2 * at for at in range(20)]
    if function is not PlainDoubles:
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
    with pytest.raises(HeadgateError, match="failed 2 times: TimeoutError") as caught:
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
    ],
)
def test_arguments_that_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        numbers().map_async(**{"function": same, "schema": NUMBER, **arguments})
    with pytest.raises(OptionError, match="after"):
        Retry(after="soon")
