"""Jobs with sink_async(): partial failures, names of requests, rows that are refused, losses and rescales."""

import asyncio
import os
import random
import signal
from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from tests.kit import stream_jobs
from tests.kit.operator_tasks import OperatorTasks
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.waiting import wait_until

from headgate.errors import HeadgateError, OptionError, StreamError
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import CallFunction, Refusal, Retry, stream

ROWS = 1000


class Store:
    """A service in this process: it refuses rows at random, or all of a request, and knows what it took."""

    def __init__(self, seed, refusals=0.2, errors=0.2):
        self.random, self.refusals, self.errors = random.Random(seed), refusals, errors
        self.rows = Counter()
        #: The rows of each request by its name.
        self.requests = defaultdict(set)
        self.refused = 0

    def upsert(self, batch, context):
        ids = batch["id"].to_pylist()
        self.requests[context.call_id].add(tuple(ids))
        if self.random.random() < self.errors:
            raise random.choice([ValueError("broken"), Retry("busy", after=0.001)])
        refused = [at for at in range(len(ids)) if self.random.random() < self.refusals]
        self.refused += len(refused)
        self.rows.update(key for at, key in enumerate(ids) if at not in refused)
        return refused


def numbers(count=ROWS, **options):
    return stream(NumberSequenceSource(0, count, batch_size=97, splits=4), **options)


def form(function, kind):
    """Return a function as a coroutine function, a plain one, or one of an object."""

    async def coroutine(batch, context):
        await asyncio.sleep(random.uniform(0, 0.002))
        return function(batch, context)

    class Opened(CallFunction):
        async def open(self, context):
            self.is_open = True

        def call(self, batch, context):
            assert self.is_open
            return pa.array(function(batch, context), pa.int32())

    return {"coroutine": coroutine, "plain": function, "object": Opened}[kind]


@pytest.mark.parametrize("kind", ["coroutine", "plain", "object"])
@pytest.mark.parametrize("seed", range(3))
def test_each_row_is_taken_once_and_only_rows_that_were_not_are_written_again(kind, seed):
    store = Store(seed)
    job = numbers().sink_async(
        form(store.upsert, kind), batch_rows=50, in_flight=5, retries=30, backoff=0, name="store"
    )
    with job.start(parallelism=1 + seed % 2) as query:
        assert query.await_termination(60)
    assert store.rows == Counter(range(ROWS))
    assert all(len(rows) == 1 for rows in store.requests.values()), "a name has its rows"
    assert max(len(rows) for each in store.requests.values() for rows in each) <= 50
    assert query.status.metrics["store"]["rows_put_back"]["value"] == store.refused > 0


def test_rows_that_are_refused_for_good_go_to_a_sink_of_their_own():
    def write(batch, context):
        ids = batch["id"].to_pylist()
        if 0 in ids:
            raise ValueError("no zero")
        return [at for at, key in enumerate(ids) if key % 100 == 1]

    refused = []
    job = numbers(parallelism=1).sink_async(
        write,
        batch_rows=10,
        batch_wait=1,
        retries=2,
        backoff=0,
        refused=FunctionSink(refused.append),
    )
    job.run()
    rows = [row for batch in refused for row in batch.to_pylist()]
    by_error = defaultdict(list)
    for row in rows:
        assert row["_attempts"] == 3
        by_error[row["_error"]].append(row["id"])
    broken = by_error.pop("ValueError: no zero")
    assert 0 in broken
    assert len(broken) == len(set(broken)) <= 10
    others = sorted(key for ids in by_error.values() for key in ids)
    assert others == sorted(set(range(1, ROWS, 100)) - set(broken))
    assert all(error.endswith("rows were not taken") for error in by_error)


def test_rows_that_are_refused_for_good_fail_the_job_without_such_a_sink():
    job = numbers(10).sink_async(lambda batch: [0], retries=1, backoff=0)
    with pytest.raises(HeadgateError, match="1 of 1 rows were not taken"):
        job.run(restarts=0)


def test_rows_that_were_not_taken_fill_the_batches_of_later_calls():
    """Of 1,000 rows each tenth is refused once: 1,100 rows in batches of 100 are 11 requests, and few more."""
    written, sizes = set(), []

    def write(batch):
        ids = batch["id"].to_pylist()
        sizes.append(len(ids))
        refused = [at for at, key in enumerate(ids) if key % 10 == 0 and key not in written]
        written.update(ids)
        return refused

    numbers(parallelism=1).sink_async(
        write, batch_rows=100, batch_wait="2s", in_flight=1, backoff=0
    ).run()
    assert sum(sizes) == 1100
    assert len(sizes) <= 13


def test_rows_that_were_not_taken_rest_and_bound_what_is_read():
    """A service that takes nothing gets no more rows than fit into in_flight_bytes, and a batch of the source."""
    written, is_open = set(), [False]

    def write(batch):
        written.update(batch["id"].to_pylist())
        return None if is_open[0] else range(batch.num_rows)

    job = numbers(5000, parallelism=1).sink_async(
        write,
        batch_rows=10,
        batch_wait=0,
        in_flight=4,
        in_flight_bytes=2000,
        retries=10**6,
        backoff=0.5,
        name="store",
    )
    with job.start() as query:
        wait_until(
            lambda: (
                query.status.metrics.get("store", {}).get("rows_put_back", {}).get("value", 0) > 400
            )
        )
        assert len(written) <= 2500, "of two splits"
        is_open[0] = True
        assert query.await_termination(60)
    assert written == set(range(5000))


def test_rows_that_were_taken_are_not_refused_after_the_time_of_the_last_attempt():
    is_first = [True]

    async def write(batch):
        if is_first:
            is_first.pop()
            return range(5)
        return await asyncio.sleep(60)

    refused = []
    numbers(20, parallelism=1).sink_async(
        write,
        batch_rows=20,
        batch_wait="1s",
        timeout=0.05,
        retries=1,
        backoff=0,
        refused=FunctionSink(refused.append),
    ).run()
    rows = [row["id"] for batch in refused for row in batch.to_pylist()]
    assert len(rows) == 5


def test_a_refusal_is_tried_once():
    calls, refused = [], []

    def write(batch, context):
        calls.append(context.attempt)
        raise Refusal("no such table")

    numbers(20, parallelism=1).sink_async(
        write, batch_rows=20, batch_wait="1s", refused=FunctionSink(refused.append)
    ).run()
    assert set(calls) == {1}
    rows = [row for batch in refused for row in batch.to_pylist()]
    assert {(row["_error"], row["_attempts"]) for row in rows} == {("Refusal: no such table", 1)}
    assert len(rows) == 20


def test_rows_that_rest_are_in_checkpoints_with_the_number_of_their_writes():
    counts = Counter()

    def write(batch):
        counts.update(batch["id"].to_pylist())
        return range(batch.num_rows)

    job = numbers(1).sink_async(
        write, batch_rows=5, batch_wait=0, backoff="1h", retries=3, refused=FunctionSink(print)
    )
    (node,) = [node for node in job._graph.nodes if node.uid.startswith("sink_async")]
    clock = [0]
    tasks = OperatorTasks(node.make, [], clock=lambda: clock[0])
    ids = pa.schema([("id", pa.int64())])
    tasks.tasks[0].process(pa.record_batch([pa.array(range(10))], schema=ids))

    def poll():
        for task in tasks.tasks:
            task.advance_processing_time(clock[0])
            task.poll(is_end=False)
        return sum(counts.values())

    for writes, parallelism in enumerate([2, 3, 1, 2], 1):
        wait_until(lambda number=10 * writes: poll() == number)
        wait_until(lambda: (poll(), not any(task._running for task in tasks.tasks))[1])
        if writes < 4:
            assert not tasks.take()
            tasks.checkpoint(parallelism)
    assert dict(counts) == dict.fromkeys(range(10), 4)
    rows = tasks.take()
    assert sorted(row["id"] for row in rows) == list(range(10))
    assert {row["_attempts"] for row in rows} == {4}
    for task in tasks.tasks:
        task.close()


def test_all_rows_of_a_call_are_refused_after_its_time():
    async def write(batch):
        await asyncio.sleep(60)

    refused = []
    numbers(20, parallelism=1).sink_async(
        write, batch_rows=20, timeout=0.05, retries=0, refused=FunctionSink(refused.append)
    ).run()
    rows = [row for batch in refused for row in batch.to_pylist()]
    assert sorted(row["id"] for row in rows) == list(range(20))
    assert {row["_error"].partition(":")[0] for row in rows} == {"TimeoutError"}


class Files:
    """A service of all processes: a line for each row that it takes; each third row is refused once by each process."""

    def __init__(self, folder):
        self.file, self.refused = folder / "rows", set()

    async def __call__(self, batch, context):
        await asyncio.sleep(random.uniform(0, 0.01))
        ids = batch["id"].to_pylist()
        refused = [at for at, key in enumerate(ids) if key % 3 == 0 and key not in self.refused]
        self.refused.update(ids[at] for at in refused)
        lines = [f"{context.call_id} {key}\n" for at, key in enumerate(ids) if at not in refused]
        with self.file.open("a") as file:
            file.write("".join(lines))
        return refused

    def rows(self):
        return Counter(int(line.split()[1]) for line in self.file.read_text().splitlines())


def test_a_killed_worker_loses_no_row(tmp_path):
    files = Files(tmp_path)
    job = stream_jobs.numbers(1500, rate=1500).sink_async(
        files, batch_rows=20, in_flight=4, backoff=0.01
    )
    with job.start(
        checkpoint=str(tmp_path / "checkpoints"), interval=0.1, parallelism=2, workers=2
    ) as query:
        wait_for_a_checkpoint(query)
        os.kill(query._master._pool.processes[1].pid, signal.SIGKILL)
        assert query.await_termination(60)
    assert query.status.restarts == 1
    assert files.rows().keys() == set(range(1500))


def test_a_job_goes_on_with_more_and_fewer_tasks(tmp_path):
    files = Files(tmp_path)
    job = stream_jobs.numbers(1500, rate=1500).sink_async(
        files, batch_rows=20, in_flight=4, backoff=0.01
    )
    with job.start(checkpoint=str(tmp_path / "checkpoints"), interval=0.1, parallelism=2) as query:
        for parallelism in (3, 1):
            wait_for_a_checkpoint(query)
            query.rescale(parallelism)
        assert query.await_termination(60)
    assert files.rows().keys() == set(range(1500))


@pytest.mark.parametrize("result", ["tea", [True], [0.5], [10], [-1], [[0]], {0: "x"}])
def test_a_result_that_is_no_positions_is_refused(result):
    job = numbers(10, parallelism=1).sink_async(lambda batch: result, batch_rows=10)
    with pytest.raises(Exception, match="positions from 0 to"):
        job.run(restarts=0)


def test_a_wrong_function_and_rows_that_change_are_refused():
    with pytest.raises(OptionError, match="function="):
        numbers().sink_async("store")
    with pytest.raises(OptionError, match="cannot be called"):
        numbers().sink_async(lambda: None)
    changing = numbers().key_by("id").keep_last()
    with pytest.raises(StreamError, match=r"sink_async\(\) of a stream whose rows change"):
        changing.sink_async(print)
