"""Records in flight that belong to a checkpoint: what each side keeps, and how it is read back."""

import random

import pyarrow as pa
import pytest
from checkpoint_job import LONG, Job, barrier
from plane import Task, wait_until

import headgate as hg


def complete(job, number):
    wait_until(lambda: (job.poll(), ("complete", number) in job.got)[1])


def test_an_unaligned_barrier_keeps_what_it_overtook_and_what_came_before_the_late_ones(link):
    job = Job(link, 2)
    job.send(0, b"a")
    job.expect(b"a")
    job.send(0, b"b", b"c", barrier(1, "unaligned"), b"after")
    job.expect_any(("barrier", 1, "unaligned"), b"a", b"b", b"c", b"after")
    job.send(1, b"late")
    job.expect_any(("barrier", 1, "unaligned"), b"a", b"b", b"c", b"after", b"late")
    job.send(1, barrier(1, "unaligned"))
    complete(job, 1)
    inputs = dict(job.reader.take_channel_state(1))
    outputs = [dict(writer.take_channel_state(1)) for writer in job.writers]
    joined = [inputs.get(channel, b"") + outputs[channel].get(0, b"") for channel in (0, 1)]
    kept = [hg.decode_channel_state(parts, None) for parts in joined]
    before = job.got.index(("barrier", 1, "unaligned"))
    processed = set(job.got[:before]) & {b"b", b"c"}
    assert kept == [[record for record in (b"b", b"c") if record not in processed], [b"late"]]
    for taken in (job.reader, *job.writers):
        with pytest.raises(hg.errors.ClosedError, match="not there"):
            taken.take_channel_state(1)


def test_a_record_that_is_cut_between_both_sides_comes_whole_once(environment):
    """The record is larger than all buffers, so the reader has its start when it is emitted."""
    producer = environment(same_host_link="off", memory="16m")
    # With credit for two segments, the writer still has the record's end when it is emitted.
    consumer = environment(
        same_host_link="off", memory="16m", buffers_per_channel=1, floating_buffers_per_gate=1
    )
    job = Job(lambda: (producer, consumer), 1)
    record = bytes(range(256)) * 20_000
    cut = 0
    for number in range(1, 21):
        job.got.clear()
        emitting = Task(job.send, 0, record, b"small")
        while emitting.running:
            job.poll()
        emitting.join()
        job.send(0, barrier(number, "unaligned"))
        complete(job, number)
        inputs = job.reader.take_channel_state(number)
        outputs = job.writers[0].take_channel_state(number)
        processed = job.got[: job.got.index(("barrier", number, "unaligned"))]
        parts = b"".join(part for _, part in [*inputs, *outputs])
        assert processed + hg.decode_channel_state(parts, None) == [record, b"small"]
        behind = Task(job.send, 0, b"behind")
        wait_until(lambda: (job.poll(), b"behind" in job.got)[1])
        behind.join()
        assert [one for one in job.got if isinstance(one, bytes)] == [record, b"small", b"behind"]
        if inputs and outputs and not processed:
            with pytest.raises(hg.errors.IntegrityError, match="without its end"):
                hg.decode_channel_state(inputs[0][1], None)
            cut += 1
    assert cut


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_pages_and_wide_rows_are_read_back_as_batches(environment, compression):
    env = environment()
    # With fewer credits than the wide row needs, the barrier overtakes what comes behind it.
    other = environment(same_host_link="off", buffers_per_channel=1, floating_buffers_per_gate=1)
    schema = pa.schema([("n", pa.int64()), ("text", pa.dictionary(pa.int32(), pa.string()))])

    def batch(*texts):
        dictionary = pa.array(texts).dictionary_encode()
        return pa.record_batch([pa.array(range(len(texts))), dictionary], schema=schema)

    wide = batch(random.Random(7).randbytes(100_000).hex())
    rows = [batch("a", "b", None), wide, batch(*["same text"] * 5_000)]
    partition = env.create_result_partition(1, schema=schema, compression=compression)
    gate = other.create_input_gate([partition.address(0)])
    gate.enable_checkpointing()
    writer = hg.RecordWriter(partition)
    for one in rows:
        writer.emit(one)
    writer.broadcast_barrier(barrier(1, "unaligned"))
    writer.finish()
    heard, read = [], []
    reader = hg.RecordReader(gate, on_event=lambda event: heard.append((type(event), len(read))))
    read.extend(reader)
    assert [event for event, _ in heard] == [hg.CheckpointBarrier, hg.CheckpointComplete]
    # A record that arrived before the barrier is processed and no part of the state.
    in_flight = pa.Table.from_batches(read[heard[0][1] :], schema)
    parts = [*reader.take_channel_state(1), *writer.take_channel_state(1)]
    parts = b"".join(part for _, part in parts)
    batches = hg.decode_channel_state(parts, schema)
    assert batches
    assert (
        pa.Table.from_batches(batches, schema).combine_chunks().equals(in_flight.combine_chunks())
    )
    assert pa.Table.from_batches(read).num_rows == 5_004
    with pytest.raises(hg.errors.SchemaMismatchError):
        hg.decode_channel_state(parts, pa.schema([("other", pa.int8())]))
    with pytest.raises(hg.errors.SchemaMismatchError, match="no schema"):
        hg.decode_channel_state(parts, None)


def test_damaged_bytes_are_an_error(environment):
    env = environment()
    partition = env.create_result_partition(1)
    gate = env.create_input_gate([partition.address(0)])
    writer = hg.RecordWriter(partition, serializer="bytes")
    writer.emit(b"record")
    writer.broadcast_barrier(barrier(1, "unaligned"))
    ((_, state),) = writer.take_channel_state(1)
    assert hg.decode_channel_state(b"", None) == []
    assert hg.decode_channel_state(state, None) == [b"record"]
    for at in range(len(state)):
        wrong = state[:at] + bytes([state[at] ^ 1]) + state[at + 1 :]
        with pytest.raises(hg.errors.IntegrityError):
            hg.decode_channel_state(wrong, None)
        if at:
            with pytest.raises(hg.errors.IntegrityError):
                hg.decode_channel_state(state[:at], None)
    gate.close()


def test_a_timeoutable_barrier_that_was_read_in_time_keeps_nothing(link):
    job = Job(link, 1)
    job.send(0, b"a", barrier(1, "timeoutable", timeout=LONG))
    job.expect(b"a", ("barrier", 1, "timeoutable"), ("complete", 1))
    assert job.reader.take_channel_state(1) == []
    assert job.writers[0].take_channel_state(1) == []


def test_a_checkpoint_that_is_given_up_keeps_nothing(link):
    job = Job(link, 2)
    job.send(0, barrier(1, "unaligned"))
    job.send(1, b"x")
    job.expect_any(("barrier", 1, "unaligned"), b"x")
    job.gate.abort_checkpoint(1, "")
    job.writers[0].broadcast_cancellation(1)
    wait_until(lambda: (job.poll(), ("aborted", 1) in job.got)[1])
    for taken in (job.reader, job.writers[0]):
        with pytest.raises(hg.errors.ClosedError, match="not there"):
            taken.take_channel_state(1)


def test_data_of_a_channel_without_producer_cannot_be_kept_so_the_checkpoint_is_given_up(
    environment,
):
    env = environment()
    partitions = [env.create_result_partition(1) for _ in range(2)]
    gate = env.create_input_gate([partitions[0].address(0)], unknown=1)
    gate.enable_checkpointing()
    got = []
    reader = hg.RecordReader(gate, serializer="bytes", on_event=got.append)
    writers = [hg.RecordWriter(one, serializer="bytes") for one in partitions]
    writers[0].broadcast_barrier(barrier(1, "unaligned"))
    assert reader.poll_next() is None
    assert [type(event).__name__ for event in got] == ["CheckpointBarrier", "CheckpointAborted"]
    assert "not ready" in got[1].reason
    gate.update_channel(1, partitions[1].address(0))
    for writer in writers:
        writer.broadcast_barrier(barrier(2, "unaligned"))
        writer.finish()
    assert Task(list, reader).result() == []
    assert isinstance(got[-1], hg.CheckpointComplete)
