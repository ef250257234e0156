"""Batches sent as a whole: they travel in their own memory, and the pool is charged for it."""

import datetime as dt
import gc
import itertools
import os
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, numbers, open_gates, wait_until
from test_processes import EXITS, TRAFFIC, leave

import headgate as hg


def attached(writer, gates):
    """Return readers that have read a row, so that the writer knows of them."""
    schema = gates[0].schema
    first = [pa.nulls(1, field.type) for field in schema]
    writer.broadcast_emit(pa.RecordBatch.from_arrays(first, schema=schema))
    writer.flush()
    readers = [iter(hg.RecordReader(gate)) for gate in gates]
    for reader in readers:
        assert Task(next, reader).result().num_rows == 1
    return readers


def opened(link, schema, count=1, *, selector=None, **options):
    producer, consumer = link(**options)
    partition = producer.create_result_partition(count, schema=schema)
    gates = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition, schema, **({"selector": selector} if selector else {}))
    return producer, partition, writer, attached(writer, gates)


def copies(environment):
    return sum(environment.stats()["copies"].values())


def rest(reader, schema=NUMBERS):
    return pa.Table.from_batches(list(reader), schema)


def mixed(rows):
    """Return a batch of types that a page lays out like Arrow, every second column with nulls."""

    def column(make, data_type):
        for every in (None, 3):
            values = [None if every and i % every == 1 else make(i) for i in range(rows)]
            yield pa.array(values, data_type)

    columns = [
        column(lambda i: i, pa.int64()),
        column(lambda i: i % 100 - 50, pa.int8()),
        column(lambda i: i % 3 == 0, pa.bool_()),
        column(lambda i: "" if i % 5 == 0 else f"grüße {i}", pa.string()),
        column(lambda i: bytes([i % 256]) * (i % 7), pa.large_binary()),
        column(lambda i: Decimal(i).scaleb(-3), pa.decimal128(30, 3)),
        column(lambda i: i.to_bytes(7, "big"), pa.binary(7)),
        column(lambda i: dt.date.fromordinal(i + 1), pa.date32()),
        column(lambda _: None, pa.null()),
    ]
    arrays = list(itertools.chain.from_iterable(columns))
    return pa.RecordBatch.from_arrays(arrays, [f"c{i}" for i in range(len(arrays))])


@pytest.mark.parametrize("start", [0, 1, 13, 64])
def test_slices_at_odd_places_arrive_as_they_are(link, start):
    batch = mixed(3000).slice(start)
    producer, _, writer, [reader] = opened(link, batch.schema)
    before = copies(producer)
    reading = Task(rest, reader, batch.schema)
    writer.emit(batch)
    writer.finish()
    assert_same(reading.result(), pa.Table.from_batches([batch]))
    assert (copies(producer) == before) == (link.kind != "same_host")


class Theirs(bytearray):
    """Memory that notes the thread that releases it."""

    threads: ClassVar[list[str]] = []

    def __del__(self):
        task = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
        self.threads.append(task.read_text(encoding="ascii").strip())


@pytest.fixture
def theirs():
    """Make batches whose memory can only be released with the GIL."""
    Theirs.threads = []

    def make(rows):
        values = pa.py_buffer(Theirs(np.arange(rows).tobytes()))
        array = pa.Array.from_buffers(pa.int64(), rows, [None, values])
        return pa.RecordBatch.from_arrays([array], schema=NUMBERS)

    return make


def test_no_thread_of_ours_lets_go_of_a_batch(link, theirs):
    _, partition, writer, [reader] = opened(link, NUMBERS)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)
    try:
        for _ in range(6):
            writer.emit(theirs(8000))
        # This thread holds the GIL while the I/O threads send.
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
    finally:
        sys.setswitchinterval(interval)
    reading = Task(rest, reader)
    writer.finish()
    assert reading.result().num_rows == 48_000
    assert partition.wait_consumed(20)
    del reading
    gc.collect()
    wait_until(lambda: len(Theirs.threads) == 6)
    assert not [name for name in Theirs.threads if name.startswith("headgate")]


def test_memory_stays_until_it_is_written_and_goes_with_its_environment(link, theirs):
    producer, _, writer, [reader] = opened(link, NUMBERS)
    batch = theirs(8000)
    writer.emit(batch)
    del batch
    gc.collect()
    assert Task(next, reader).result().column(0).to_pylist()[:3] == [0, 1, 2]
    for _ in range(3):
        writer.emit(theirs(8000))
    del reader
    producer.close()
    gc.collect()
    wait_until(lambda: len(Theirs.threads) == 4)


def test_a_forked_child_leaves_the_memory_alone(environment):
    def make(**options):
        producer = environment(same_host_link="off", **options)
        return producer, environment(same_host_link="off", **options)

    _, _, writer, [reader] = opened(make, NUMBERS)
    batch = numbers(8000)
    for _ in range(6):
        writer.emit(batch)
    child = os.fork()
    if child == 0:
        del batch, writer, reader
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    reading = Task(rest, reader)
    writer.finish()
    assert reading.result().num_rows == 48_000


class Calling(bytearray):
    """Memory whose finalizer makes calls, as the user's finalizers may."""

    done: ClassVar[list[str]] = []
    calls: ClassVar[list] = []

    def __del__(self):
        for call in self.calls:
            call()
            self.done.append(call.__name__)


def calling(rows):
    values = pa.py_buffer(Calling(np.arange(rows).tobytes()))
    array = pa.Array.from_buffers(pa.int64(), rows, [None, values])
    return pa.RecordBatch.from_arrays([array], schema=NUMBERS)


@pytest.fixture
def finalizer():
    Calling.done, Calling.calls = [], []
    yield Calling
    Calling.calls = []


def test_a_finalizer_may_use_the_writer_whose_call_frees_its_memory(environment, finalizer):
    def make(**options):
        producer = environment(same_host_link="off", **options)
        return producer, environment(same_host_link="off", **options)

    producer, _, writer, [reader] = opened(make, NUMBERS)
    reading = Task(rest, reader)

    def emit():
        writer.emit(numbers(10))

    def flush():
        writer.flush()

    finalizer.calls = [emit, flush]
    frees = [lambda: writer.emit(numbers(1)), writer.flush, lambda: writer.broadcast_event("e")]
    for turn, free in enumerate(frees, 1):
        Task(writer.emit, calling(8000)).result()
        # The I/O thread has sent it then, and may not free it.
        wait_until(lambda: producer.stats()["segments"]["held"] == 0)
        assert len(finalizer.done) == 2 * (turn - 1)
        Task(free).result()
        assert finalizer.done == ["emit", "flush"] * turn
        Task(writer.flush).result()
    Task(writer.finish).result()
    assert reading.result().num_rows == 3 * 8010 + 1


def test_a_finalizer_may_use_the_reader_that_combines_its_memory(environment, finalizer):
    one = environment()
    partition = one.create_result_partition(1, schema=NUMBERS)
    gate = one.create_input_gate([partition.address(0)])
    writer = hg.RecordWriter(partition)
    reader = hg.RecordReader(gate, batch_bytes="1m")
    reading = iter(reader)
    writer.emit(numbers(1))
    writer.flush()
    assert Task(next, reading).result().num_rows == 1

    def poll():
        reader.poll_next()

    finalizer.calls = [poll]
    for _ in range(4):
        writer.emit(calling(8000))
    assert Task(next, reading).result().num_rows == 32_000
    # The next call of the writer frees it.
    assert not finalizer.done
    Task(writer.finish).result()
    assert finalizer.done == ["poll"] * 4


#: Emits batches that are not copied, whose memory can only be released with the GIL.
FOREIGN_TRAFFIC = f'import numpy as np\nSMALL["same_host_link"] = "off"{TRAFFIC}'.replace(
    "numbers(1000)", 'pa.record_batch({"n": np.arange(8000)})'
).replace('["lent"]["bytes"]', '["bytes_sent"]')


@pytest.mark.soak
@pytest.mark.parametrize("how", EXITS)
def test_an_exit_in_traffic_lets_go_of_nothing(how):
    assert FOREIGN_TRAFFIC.count("np.arange(8000)") == FOREIGN_TRAFFIC.count("bytes_sent") == 1
    leave(FOREIGN_TRAFFIC + EXITS[how])
