"""Functions that take long for each row: their batches are small, and barriers that overtake rows pass between them."""

import threading
import time

import pyarrow as pa
import pytest
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until

from headgate import decode_channel_state
from headgate.sink import FileSink, FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import ProcessFunction, stream
from headgate.stream.graph.limits import BatchLimits, least
from headgate.stream.runtime.channel_state import encoded

ROWS = 600


@pytest.mark.parametrize("rows", [None, 1, 3, 10, 11])
@pytest.mark.parametrize("size", [None, 1, 24, 10**6])
def test_parts_are_all_rows_within_the_limits(rows, size):
    batch = pa.record_batch({"n": pa.array(range(10), pa.int64())})
    parts = list(BatchLimits(rows, size).parts(batch))
    assert pa.Table.from_batches(parts)["n"].to_pylist() == list(range(10))
    most = min(rows or 10, max(1, size // 8) if size and size < 80 else 10, 10)
    assert [part.num_rows for part in parts] == [
        min(most, 10 - start) for start in range(0, 10, most)
    ]
    assert least([BatchLimits(rows), BatchLimits(7, size)]).rows == min(rows or 7, 7)


@pytest.mark.parametrize(
    "batches",
    [
        [pa.record_batch({"n": list(range(100_000)), "s": ["row"] * 100_000})] * 2,
        [pa.record_batch({"s": ["x" * 3_000_000] * 2})],
        [pa.record_batch({"n": pa.array([None], pa.int64())})],
    ],
)
def test_rows_that_wait_are_encoded_as_on_the_way(batches):
    found = decode_channel_state(encoded(batches), batches[0].schema)
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(batches))


@pytest.mark.parametrize("call", ["map", "process", "sink"])
def test_functions_get_batches_within_their_limits(call):
    sizes, found = [], []

    def note(batch):
        sizes.append(batch.num_rows)
        return batch

    class Note(ProcessFunction):
        def process(self, batch, context):
            return note(batch)

    rows = stream(NumberSequenceSource(0, 100, splits=1, batch_size=100))
    if call == "map":
        rows = rows.map(note, schema=rows.schema, batch_rows=7)
    elif call == "process":
        rows = rows.process(Note, schema=rows.schema, batch_rows=7)
    if call == "sink":
        rows.sink(FunctionSink(note), batch_rows=7).run()
    else:
        rows.sink(FunctionSink(found.append)).run()
        assert sum(batch.num_rows for batch in found) == 100
    assert sum(sizes) == 100
    assert max(sizes) == 7


@pytest.mark.parametrize("seconds", [0, 0.001], ids=["quick", "slow"])
def test_small_batches_of_a_source_are_joined_for_quick_functions_only(seconds):
    sizes = []

    def note(batch):
        sizes.append(batch.num_rows)
        time.sleep(seconds * batch.num_rows)
        return batch

    rows = stream(NumberSequenceSource(0, 300 if seconds else 30_000, splits=1, batch_size=10))
    rows.map(note, schema=rows.schema).sink(FunctionSink(len)).run()
    assert sum(sizes) == (300 if seconds else 30_000)
    if seconds:
        assert set(sizes) == {10}
    else:
        assert len(sizes) < 1500
        assert max(sizes) < 4096 + 10


class SlowCount(stream_jobs.Count):
    """Counts, slowly until it is to fail, once: when a checkpoint has rows of a batch of which some were counted."""

    failed = threading.Event()
    most = 0

    def process(self, batch, context):
        SlowCount.most = max(SlowCount.most, batch.num_rows)
        if not fail_now.is_set():
            time.sleep((0.02 if slow_now.is_set() else 0.003) * batch.num_rows)
        elif not self.failed.is_set():
            self.failed.set()
            raise ValueError("planned")
        return super().process(batch, context)


slow_now, fail_now = threading.Event(), threading.Event()


def test_few_rows_are_before_an_aligned_barrier(tmp_path):
    def slow(batch):
        time.sleep(0.002 * batch.num_rows)
        return batch

    # The pages between the tasks have room for all rows.
    rows = stream(NumberSequenceSource(0, 2 * ROWS, splits=1, batch_size=20)).map(
        stream_jobs.with_key
    )
    found = rows.key_by("key").map(slow, schema=rows.schema, batch_rows=4)
    query = found.sink(FunctionSink(len)).start(
        checkpoint=str(tmp_path / "checkpoints"), interval="50ms"
    )
    stream_jobs.wait_for_a_checkpoint(query)
    assert query.await_termination(60)


def test_barriers_pass_within_a_batch_and_each_row_counts_once(tmp_path):
    SlowCount.failed.clear()
    slow_now.clear()
    fail_now.clear()
    count = 3 * ROWS
    rows = stream(NumberSequenceSource(0, count, splits=1, batch_size=count)).map(
        stream_jobs.with_key
    )
    counted = rows.key_by("key").process(SlowCount, schema=stream_jobs.COUNTED, batch_rows=5)
    query = counted.sink(FileSink(str(tmp_path / "out"), mode="append")).start(
        checkpoint=str(tmp_path / "checkpoints"), interval="50ms", alignment="unaligned"
    )

    def within():
        return sum(checkpoint.in_flight > 0 for checkpoint in query.status.checkpoints)

    # The rows are one batch. Once the source has sent all of it, the rest lasts for three checkpoints, however slow they are.
    wait_until(within)
    slow_now.set()
    wait_until(lambda: within() >= 3)
    is_within = query.state.is_over is False
    fail_now.set()
    assert query.await_termination(60)
    assert is_within
    assert query.status.restarts == 1
    assert SlowCount.most == 5
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), count)
