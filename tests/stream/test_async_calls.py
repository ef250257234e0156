"""map_async() against a model: a service with random waits and errors, checkpoints and rescales."""

import asyncio
import random
import threading
import time
from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from tests.kit.calls import count_calls
from tests.kit.operator_tasks import OperatorTasks
from tests.kit.waiting import wait_until

from headgate.source import NumberSequenceSource
from headgate.stream import Retry, stream

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
        call_id=None if kind == "batch" else draw.choice([None, "id"]),
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
        "calls_most": 3,
    }
    tasks.tasks[0].close()


def test_calls_of_one_name_are_two_calls_after_a_restart_too():
    gate = Gate()
    called = rows_stream().map_async(gate, schema=RESULT, call_id="user")
    tasks = CallTasks(called, [])
    tasks.send(0, [1, 1 + USERS, 2])
    wait_until(lambda: len(gate.requests) == 3)
    tasks.checkpoint(1)
    gate.let(1, 1 + USERS, 2)
    polled(tasks, lambda: tasks.tasks[0].is_quiet)
    assert [row["id"] for row in tasks.take()] == [1, 1 + USERS, 2]
    assert [name for _, name, _ in gate.requests] == ["1", "1", "2"] * 2
    tasks.tasks[0].close()


def test_rows_of_a_batch_are_called_one_by_one_if_a_new_job_wants_that():
    never = threading.Event()
    names = []

    async def wait(batch, context):
        names.append(context.call_id)
        while not never.is_set():  # noqa: ASYNC110 - for ever
            await asyncio.sleep(0.001)

    async def answer(row, context):
        names.append(context.call_id)
        return Service.answer(row["id"], row["user"])

    tasks = CallTasks(rows_stream().map_async(wait, schema=RESULT, batch_rows=3), [])
    tasks.send(0, list(range(4)))
    wait_until(lambda: len(names) == 2)
    tasks._make = rows_stream().map_async(answer, schema=RESULT)._edges[0].node.make
    tasks.checkpoint(2)
    polled(tasks, lambda: all(task.is_quiet for task in tasks.tasks))
    assert sorted(row["id"] for row in tasks.take()) == [0, 1, 2, 3]
    assert len(set(names)) == len(names) - 1, "only the call of one row keeps its name"
    for task in tasks.tasks:
        task.close()


def test_bytes_bound_what_is_called_and_what_waits_to_be_sent():
    gate = Gate()
    tasks = CallTasks(
        rows_stream().map_async(gate, schema=RESULT, in_flight=50, in_flight_bytes=150), []
    )
    tasks.send(0, list(range(30)))
    begun = tasks.tasks[0]._running
    assert 1 <= begun < 10
    wait_until(lambda: len(gate.requests) == begun)
    gate.let(*range(1, 30))
    for _ in range(5):
        time.sleep(0.02)
        tasks.poll()
    # A result may be smaller than its row, so that a few more rows fit.
    assert len(gate.requests) < 15, "results wait for the first row, and fill the bytes"
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


def test_a_look_at_rows_that_wait_costs_the_same_however_many_they_are():
    called = rows_stream().map_async(
        Gate(), schema=RESULT, batch_rows=5000, batch_bytes="3k", batch_wait="1h"
    )
    tasks = OperatorTasks(called._edges[0].node.make, [])
    (task,) = tasks.tasks
    costs = []
    for ids in (range(3), range(3, 40)):
        for at in ids:
            task.process(rows_of([at]))
        assert not task.is_full
        costs.append(count_calls(lambda: task.is_full))
    assert costs[0] == costs[1]
    task.process(rows_of(range(200)))
    assert not task.is_full, "batches of 3 kB are called, and a rest waits"
    waiting = sum(part.rows.nbytes for part in task._waiting)
    assert 0 < waiting == task._waiting_size < 3000
    task.close()


def test_rows_of_any_types_come_back_from_a_checkpoint():
    fields = [
        pa.field("id", pa.int64(), nullable=False),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("at", pa.timestamp("us", "UTC")),
        ("parts", pa.list_(pa.struct([("size", pa.decimal128(9, 2)), ("raw", pa.binary())]))),
        ("nothing", pa.null()),
    ]
    schema = pa.schema(fields)
    parts = [[{"size": 1, "raw": b"\xff"}, None], None, []]
    batches = [
        pa.record_batch([[at], [kind], [at], [parts[at]], [None]], schema=schema)
        for at, kind in enumerate(["a", None, "b"])
    ]
    opened = threading.Event()

    async def wait(batch):
        while not opened.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.001)
        return batch

    rows = stream(NumberSequenceSource(0, 1)).map(lambda _: batches[0], schema=schema)
    called = rows.map_async(wait, schema=schema, batch_rows=1, in_flight=2)
    tasks = OperatorTasks(called._edges[0].node.make, [])
    for batch in batches:
        tasks.tasks[0].process(batch)
    tasks.checkpoint(1)
    opened.set()
    wait_until(lambda: len(tasks.tasks[0]._loop._ended) == 2)
    tasks.checkpoint(1)  # with results
    polled = lambda: tasks.tasks[0].poll(is_end=False) or tasks.tasks[0].is_quiet  # noqa: E731
    wait_until(lambda: polled() and tasks.tasks[0].is_quiet)
    assert tasks.take() == [row for batch in batches for row in batch.to_pylist()]
    tasks.tasks[0].close()
