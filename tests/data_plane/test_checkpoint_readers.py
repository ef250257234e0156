"""Readers of gates with checkpoints: which may read, how they wait, and what is refused."""

import asyncio

import pytest
from checkpoint_job import Job, barrier
from plane import Task, wait_until

import headgate as hg
from headgate import flink


def test_other_events_are_heard_as_before(link):
    job = Job(link, 1)
    job.writers[0].broadcast_event("mine", b"", is_barrier=True)
    job.send(0, b"behind")
    job.expect("mine")
    job.gate.resume_consumption(0)
    job.expect("mine", b"behind")


def test_a_reader_without_checkpoints_shows_barriers_by_reserved_names(environment):
    env = environment()
    partition = env.create_result_partition(1)
    gate = env.create_input_gate([partition.address(0)])
    names = []
    hear = lambda event: (names.append(event.name), gate.resume_consumption(0))  # noqa: E731
    writer = hg.RecordWriter(partition, serializer="bytes")
    writer.broadcast_barrier(barrier(1))
    with pytest.raises(hg.errors.OptionError, match="name of an event"):
        writer.broadcast_event("CheckpointBarrier")
    writer.finish()
    assert list(hg.RecordReader(gate, serializer="bytes", on_event=hear)) == []
    assert len(names) == 1
    assert names[0].startswith("CheckpointBarrier(")


def test_enabling_is_refused_where_it_would_come_too_late(environment):
    env = environment()
    gate = env.create_input_gate(unknown=1)
    gate.enable_checkpointing()
    with pytest.raises(hg.errors.ClosedError, match="enabled already"):
        gate.enable_checkpointing()
    partition = env.create_result_partition(2)
    open_gate = env.create_input_gate(sealed=False)
    open_gate.add_channel(partition.address(0))
    with pytest.raises(hg.errors.ClosedError, match="sealed"):
        open_gate.enable_checkpointing()
    with pytest.raises(hg.errors.ClosedError, match="takes no checkpoints"):
        open_gate.abort_checkpoint(1, "")
    open_gate.seal()
    writer = hg.RecordWriter(partition, serializer="bytes")
    writer.emit(b"x")
    writer.flush()
    reader = hg.RecordReader(open_gate, serializer="bytes")
    next(reader)
    with pytest.raises(hg.errors.ClosedError, match="has been read"):
        open_gate.enable_checkpointing()


def test_enabling_after_the_reader_was_made_is_early_enough(environment):
    env = environment()
    partition = env.create_result_partition(1)
    gate = env.create_input_gate([partition.address(0)])
    heard = []
    reader = hg.RecordReader(gate, serializer="bytes", on_event=heard.append)
    gate.enable_checkpointing()
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.broadcast_barrier(barrier(1))
    assert list(reader) == []
    assert [type(event).__name__ for event in heard] == ["CheckpointBarrier", "CheckpointComplete"]


def test_readers_that_cannot_take_a_snapshot_are_refused(environment):
    env = environment()
    partitions = [env.create_result_partition(1) for _ in range(2)]
    gates = [env.create_input_gate([one.address(0)]) for one in partitions]
    gates[0].enable_checkpointing()
    with pytest.raises(hg.errors.ClosedError, match="reader of records"):
        next(hg.BufferReader(gates[0]))
    with pytest.raises(hg.errors.ClosedError, match="reader of records"):
        flink.UnionInputGate(gates)
    writer = hg.RecordWriter(partitions[0], serializer="bytes")
    writer.broadcast_barrier(barrier(1))
    with pytest.raises(hg.errors.OptionError, match="nobody hears"):
        next(hg.RecordReader(gates[0], serializer="bytes"))


def test_gates_of_a_union_take_no_checkpoints_of_their_own(environment):
    env = environment()
    partitions = [env.create_result_partition(1) for _ in range(2)]
    gates = [env.create_input_gate([one.address(0)]) for one in partitions]
    union = flink.UnionInputGate(gates)
    with pytest.raises(hg.errors.ClosedError, match="on the union"):
        gates[0].enable_checkpointing()
    union.enable_checkpointing()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((-1, 0, "aligned"), "checkpoint_id=-1"),
        ((2**63, 0, "aligned"), "checkpoint_id"),
        ((1, 0, "askew"), "alignment='askew'"),
        ((1, 0, "timeoutable"), "timeout=0"),
        ((1, 0, "timeoutable", 2**63 - 1), "timeout="),
        ((1, 0, "unaligned", 1), "timeout=1"),
    ],
)
def test_a_barrier_that_cannot_be_is_refused(environment, fields, words):
    env = environment()
    writer = hg.RecordWriter(env.create_result_partition(1), serializer="bytes")
    with pytest.raises(hg.errors.OptionError, match=words):
        writer.broadcast_barrier(hg.CheckpointBarrier(*fields))


@pytest.mark.parametrize("kind", ["blocking", "hybrid"])
def test_a_partition_on_disk_takes_no_barrier(environment, kind):
    env = environment()
    writer = hg.RecordWriter(env.create_result_partition(1, kind=kind), serializer="bytes")
    with pytest.raises(hg.errors.ClosedError, match="takes no barrier"):
        writer.broadcast_barrier(barrier(1))


def test_a_reader_into_memory_takes_checkpoints_too(environment):
    env = environment()
    partition = env.create_result_partition(1)
    gate = env.create_input_gate([partition.address(0)])
    gate.enable_checkpointing()
    heard = []
    reader = flink.MutableRecordReader(gate, serializer="bytes", on_event=heard.append)
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(b"one")
        writer.broadcast_barrier(barrier(1))
        writer.emit(b"two")
    out = bytearray(3)
    assert reader.read_into(out) == 3
    assert heard == []
    assert reader.read_into(out) == 3
    assert bytes(out) == b"two"
    assert [type(event).__name__ for event in heard] == ["CheckpointBarrier", "CheckpointComplete"]


def test_joined_rows_are_returned_before_the_barrier_behind_them(environment):
    import pyarrow as pa

    env = environment()
    batch = pa.record_batch({"n": [1, 2]})
    partition = env.create_result_partition(1, schema=batch.schema)
    gate = env.create_input_gate([partition.address(0)])
    gate.enable_checkpointing()
    got = []
    hear = lambda event: got.append(type(event).__name__)  # noqa: E731
    reader = hg.RecordReader(gate, batch_bytes="64k", on_event=hear)
    with hg.RecordWriter(partition) as writer:
        for _ in range(3):
            writer.emit(batch)
            writer.flush()
        writer.broadcast_barrier(barrier(1))
        writer.emit(batch)
    for record in reader:
        got.extend(record.column("n").to_pylist())
    assert got == [1, 2] * 3 + ["CheckpointBarrier", "CheckpointComplete", 1, 2]


def test_a_wait_ends_with_data_a_wake_up_a_timer_and_the_timeout(link):
    job = Job(link, 2)
    assert not job.reader.wait_available(0.01)
    job.reader.wake_up()
    assert not job.reader.wait_available()
    waiting = Task(job.reader.wait_available)
    with pytest.raises(AssertionError, match="hangs"):
        waiting.join(0.2)
    job.reader.wake_up()
    assert not waiting.result()
    job.send(0, b"x")
    assert Task(job.reader.wait_available).result()
    job.expect(b"x")
    job.send(0, barrier(1, "timeoutable", timeout=150))
    wait_until(lambda: (job.poll(), job.got[1:] or job.reader.next_timer_ms())[1] is not None)
    assert Task(job.reader.wait_available).result()
    job.expect(b"x", ("barrier", 1, "unaligned"))
    job.gate.abort_checkpoint(1, "")
    assert Task(job.reader.wait_available).result()
    job.expect(b"x", ("barrier", 1, "unaligned"), ("aborted", 1))
    job.finish()
    wait_until(
        lambda: (Task(job.reader.wait_available).result(), job.poll(), job.reader.is_finished)[2]
    )
    assert Task(job.reader.wait_available).result()


def test_a_reader_of_buffers_can_be_woken(environment):
    env = environment()
    partition = env.create_result_partition(1)
    reader = hg.BufferReader(env.create_input_gate([partition.address(0)]))
    waiting = Task(reader.wait_available)
    reader.wake_up()
    assert not waiting.result()


def test_a_task_of_an_event_loop_hears_of_timers_and_of_checkpoints_given_up(link):
    job = Job(link, 2)
    job.send(0, barrier(1, "timeoutable", timeout=100), b"behind")

    async def read():
        async for record in job.reader:
            job.got.append(record)

    reading = Task(asyncio.run, read())
    wait_until(lambda: len(job.got) == 1)
    job.gate.abort_checkpoint(1, "")
    wait_until(lambda: len(job.got) == 3)
    job.finish()
    reading.result()
    assert job.got == [("barrier", 1, "unaligned"), ("aborted", 1), b"behind"]


def test_a_reader_into_memory_returns_the_rows_it_has_before_a_snapshot(environment):
    import numpy as np
    import pyarrow as pa

    env = environment()
    batch = pa.record_batch({"n": [1, 2]})
    partition = env.create_result_partition(1, schema=batch.schema)
    gate = env.create_input_gate([partition.address(0)])
    gate.enable_checkpointing()
    got = []
    reader = flink.MutableRecordReader(
        gate, on_event=lambda event: got.append(type(event).__name__)
    )
    with hg.RecordWriter(partition) as writer:
        writer.emit(batch)
        writer.broadcast_barrier(barrier(1))
        writer.emit(batch)
    rows = {"n": np.zeros(8, np.int64)}
    while count := reader.read_into(rows):
        got.extend(rows["n"][:count].tolist())
    assert got == [1, 2, "CheckpointBarrier", "CheckpointComplete", 1, 2]
    assert reader.is_finished
