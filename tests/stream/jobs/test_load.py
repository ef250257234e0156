"""Batches by load: a slow task gets few of them and stops no other, and each row is handled once."""

import asyncio

import pyarrow as pa
import pytest
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until
from tests.stream.jobs.test_unaligned import start

from headgate import errors
from headgate.sink import FileSink
from headgate.stream import CallFunction, ProcessFunction
from headgate.stream.graph.nodes import Shipping

BATCH = 5
BATCHES = 1000
ENOUGH = 800
ROWS = 6000
PLACED = pa.schema([("task", pa.int64()), ("id", pa.int64())])


class SlowFirst(ProcessFunction):
    """Its first task waits in its first batch until the others have handled enough batches, each a byte of the file."""

    def __init__(self, file):
        self.file, self.waits = file, True

    def process(self, batch, context):
        if context.index > 0:
            with self.file.open("ab") as file:
                file.write(b"." * (batch.num_rows // BATCH))
        elif self.waits:
            self.waits = False
            wait_until(lambda: self.file.stat().st_size >= ENOUGH, "the others go on")
        task = pa.repeat(pa.scalar(context.index, pa.int64()), batch.num_rows)
        return pa.RecordBatch.from_arrays([task, batch["id"]], schema=PLACED)


class Make:
    def __init__(self, file):
        self.file = file

    def __call__(self):
        return SlowFirst(self.file)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_slow_task_stops_no_other(tmp_path, workers):
    file = tmp_path / "handled"
    file.touch()
    rows = stream_jobs.numbers(BATCH * BATCHES).rebalance(by="load")
    placed = rows.process(Make(file), schema=PLACED, batch_rows=BATCH, parallelism=3)
    job = placed.sink(FileSink(str(tmp_path / "out")))
    assert job.start(parallelism=2, workers=workers).await_termination(100)
    table = stream_jobs.rows_of(tmp_path / "out")
    assert sorted(table["id"].to_pylist()) == list(range(BATCH * BATCHES))
    rows_of_tasks = table.group_by("task").aggregate([("id", "count")]).to_pylist()
    counts = {row["task"]: row["id_count"] for row in rows_of_tasks}
    assert 0 < counts[0] <= BATCH * (BATCHES - ENOUGH)


class SlowCalls(CallFunction):
    """Calls whose first task waits until the others have made enough of them, each a byte of the file."""

    def __init__(self, file):
        self.file = file

    def open(self, context):
        self.task = context.index

    async def call(self, row, context):
        while self.task == 0 and self.file.stat().st_size < BATCH * ENOUGH:  # noqa: ASYNC110 - by other tasks
            await asyncio.sleep(0.01)
        if self.task:
            with self.file.open("ab") as file:
                file.write(b".")
        return {"task": self.task, "id": row["id"]}


def test_a_task_with_slow_calls_gets_few_rows(tmp_path):
    file = tmp_path / "called"
    file.touch()
    rows = stream_jobs.numbers(BATCH * BATCHES).rebalance(by="load")
    placed = rows.map_async(SlowCalls(file), schema=PLACED, in_flight=BATCH, parallelism=3)
    job = placed.sink(FileSink(str(tmp_path / "out")))
    assert job.start(parallelism=2).await_termination(100)
    tasks = stream_jobs.rows_of(tmp_path / "out")["task"].to_pylist()
    assert len(tasks) == BATCH * BATCHES
    assert 0 < tasks.count(0) <= BATCH * (BATCHES - ENOUGH)


@pytest.mark.parametrize("alignment", ["aligned", "unaligned"])
@pytest.mark.parametrize(("workers", "how"), [(0, "raise"), (2, "exit")])
def test_each_row_is_handled_once_after_a_failure(tmp_path, alignment, workers, how):
    rows = stream_jobs.numbers(ROWS).rebalance(by="load")
    fails = stream_jobs.FailOnce(tmp_path / "failed", ROWS // 6, how)
    counted = (
        rows.map(fails, batch_rows=20, name="fails")
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="count")
    )
    query = start(counted, tmp_path, workers=workers, alignment=alignment)
    assert query.await_termination(60)
    assert query.status.restarts == 1
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_it_is_planned_as_asked():
    for options, shipping in [
        ({}, Shipping.REBALANCE),
        ({"by": "turn"}, Shipping.REBALANCE),
        ({"by": "load"}, Shipping.LOAD),
    ]:
        # A stream of its own, since a plan has all sinks of a graph.
        balanced = stream_jobs.numbers(10).rebalance(**options)
        stages = balanced.map(stream_jobs.same).sink(FileSink("out")).plan(2).stages
        assert [edge.shipping for edge in stages[0].edges] == [shipping]


def test_another_way_is_refused_at_the_call():
    with pytest.raises(errors.OptionError, match='by="load"'):
        stream_jobs.numbers(10).rebalance(by="loads")
