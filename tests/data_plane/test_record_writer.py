"""Contract of RecordWriter: what its calls return, what they refuse, and what they do after the end."""

import signal
import threading

import pyarrow as pa
import pytest
from plane import (
    NUMBERS,
    Task,
    assert_same,
    drain,
    emit_all,
    exchange,
    numbers,
    open_gates,
    wait_until,
)

import headgate as hg

errors = hg.errors


def fill(writer):
    """Emit full pages until the writer would block before the next record."""
    for _ in range(1000):
        if not writer.is_available:
            return
        writer.emit(numbers(8_000))
        writer.flush()
    raise AssertionError("it never waits")


def opened(link, n=1, schema=NUMBERS, **options):
    """Return a partition, its writer and a gate for each subpartition."""
    producer, consumer = link() if hasattr(link, "kind") else (link(), link())
    partition = producer.create_result_partition(n, schema=schema)
    if schema is None:
        options["serializer"] = "bytes"
    return partition, hg.RecordWriter(partition, **options), open_gates(partition, consumer)


def test_a_writer_is_available_until_the_consumers_are_behind(link):
    producer, consumer = link(memory="2m")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    assert writer.is_available
    assert writer.wait_available(0)
    assert writer.back_pressured_ns() == 0
    fill(writer)
    assert writer.wait_available(0.01) is False
    assert writer.back_pressured_ns() > 0
    waiting = Task(writer.wait_available)
    [gate] = open_gates(partition, consumer)
    reading = Task(drain, gate)
    assert waiting.result() is True
    writer.finish()
    assert reading.result().num_rows == writer.stats().rows
    assert writer.is_available


def test_a_signal_ends_the_wait_and_the_batch_is_not_begun(environment):
    class Stop(Exception):
        pass

    def handler(*_):
        raise Stop

    partition = environment(memory="2m").create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    fill(writer)
    rows = writer.stats().rows
    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        for call in (writer.wait_available, lambda: writer.emit(numbers(8_000))):
            main = threading.main_thread().ident
            timer = threading.Timer(0.1, signal.pthread_kill, [main, signal.SIGUSR1])
            timer.start()
            with pytest.raises(Stop):
                call()
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    writer.flush()
    assert writer.stats().rows == rows


def test_a_wait_ends_with_the_environment(environment):
    producer = environment(memory="2m")
    writer = hg.RecordWriter(producer.create_result_partition(1, schema=NUMBERS))
    fill(writer)
    waiting = Task(writer.wait_available)
    producer.close()
    assert "closed" in str(waiting.error())


def test_a_wake_up_ends_the_wait_or_the_next_one(environment):
    producer = environment(memory="2m")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    fill(writer)
    writer.wake_up()
    assert writer.wait_available() is False
    waiting = Task(writer.wait_available)
    with pytest.raises(AssertionError, match="hangs"):
        waiting.join(0.2)
    writer.wake_up()
    assert waiting.result() is False


def test_a_writer_keeps_as_many_segments_as_the_options_of_its_environment_allow(environment):
    producer = environment(max_buffers_per_channel=3, max_overdraft_buffers=0)
    partition = producer.create_result_partition(4, schema=NUMBERS)
    fill(hg.RecordWriter(partition, selector=lambda batch: [0] * len(batch)))
    queued = [subpartition["queued"] for subpartition in producer.stats()["partitions"][0]]
    assert queued == [4, 0, 0, 0]  # three beside the one that may be open
    assert producer.stats()["segments"]["held"] == 4


def test_flush_shows_pages_that_are_not_full(link):
    _, writer, gates = opened(link, 2, selector=hg.BroadcastSelector())
    got = [[], []]
    readers = [
        Task(lambda g=gate, into=into: into.extend(hg.RecordReader(g)))
        for gate, into in zip(gates, got, strict=True)
    ]
    for turn in range(3):
        writer.emit(numbers(2, 2 * turn))
        writer.flush()
        wait_until(lambda t=turn: [len(batches) for batches in got] == [t + 1, t + 1])
    writer.flush()
    writer.finish()
    for reader in readers:
        reader.result()
    for batches in got:
        assert_same(pa.Table.from_batches(batches), numbers(6))


def test_without_a_flush_small_batches_share_a_page(environment):
    _, writer, [gate] = opened(environment, buffer_timeout=-1)
    for number in range(1000):
        writer.emit(numbers(1, number))
    writer.finish()
    [batch] = Task(list, hg.RecordReader(gate)).result()
    assert_same(batch, numbers(1000))


def test_a_row_above_the_limit_loses_no_other(environment):
    env = environment(max_record_size="100k")
    schema = pa.schema([("t", pa.string())])
    fine = pa.record_batch({"t": ["a", "b" * 80_000]})

    def write(writer):
        writer.emit(fine)
        with pytest.raises(errors.RecordTooLargeError, match="102400") as caught:
            writer.emit(pa.record_batch({"t": ["x" * 200_000]}))
        assert "max_record_size" in str(caught.value)
        writer.emit(fine)

    [got] = exchange(env, env, write, schema=schema)
    assert_same(got, [fine, fine])


def test_a_record_above_the_limit_loses_no_other(environment):
    env = environment(max_record_size="100k")

    def write(writer):
        writer.emit(b"first")
        with pytest.raises(errors.RecordTooLargeError):
            writer.emit(bytes(102_401))
        writer.emit(bytes(102_400))

    [got] = exchange(env, env, write, serializer="bytes")
    assert got == [b"first", bytes(102_400)]


@pytest.mark.parametrize("size", [70_000, 3_000_000])
def test_a_row_wider_than_a_segment_arrives_whole(link, size):
    producer, consumer = link()
    text = "ü" + "x" * (size - 2)
    batch = pa.record_batch({"n": [1, 2, 3], "t": ["narrow", text, None]})
    [got] = exchange(producer, consumer, emit_all(batch, batch), schema=batch.schema)
    assert_same(got, [batch, batch])
    assert producer.stats()["copies"]["spanning"] >= 2 * size


def test_an_event_that_is_too_large_is_refused(environment):
    def write(writer):
        writer.emit(numbers(3))
        with pytest.raises(hg.HeadgateError):
            writer.broadcast_event("n" * 70_000, b"")
        with pytest.raises(hg.HeadgateError):
            writer.broadcast_event("n", b"x" * 1_000_000)
        writer.emit(numbers(3, 3))

    [got] = exchange(environment(), environment(), write, schema=NUMBERS)
    assert_same(got, numbers(6))


def test_priority_and_barrier_at_once_are_refused(environment):
    _, writer, _ = opened(environment, schema=None)
    with pytest.raises(errors.OptionError, match="is_barrier"):
        writer.broadcast_event("x", is_priority=True, is_barrier=True)
    with pytest.raises(errors.OptionError, match="no barrier"):
        writer.broadcast_event("x", is_timeoutable=True)


@pytest.mark.parametrize("name", ["EndOfData(Drain)", "EndOfData", "EndOfSuperstep"])
def test_an_event_of_the_user_cannot_have_the_name_of_one_of_headgate(environment, name):
    _, writer, _ = opened(environment, schema=None)
    with pytest.raises(errors.OptionError, match="is the name of an event of Headgate") as caught:
        writer.broadcast_event(name)
    assert name in str(caught.value)
    for other in ("EndOfDataOfMine", "my EndOfData", ""):
        writer.broadcast_event(other)
    writer.finish()


class Ends:
    """A task that reads and notes the names of events."""

    def __init__(self, gate):
        self.names = []
        note = lambda event: self.names.append(event.name)  # noqa: E731
        self.task = Task(list, hg.RecordReader(gate, serializer="bytes", on_event=note))

    def expect(self, *names):
        wait_until(lambda: len(self.names) >= len(names))
        assert self.names == list(names)


def test_the_end_of_data_is_acknowledged(link):
    partition, writer, gates = opened(link, 2, None)
    ends = [Ends(gate) for gate in gates]
    writer.end_of_data()
    for end in ends:
        end.expect("EndOfData(Drain)")
    assert not partition.wait_all_data_processed(0.1)
    gates[0].acknowledge_all_records_processed(0)
    assert not partition.wait_all_data_processed(0.1)
    gates[1].acknowledge_all_records_processed(0)
    assert Task(partition.wait_all_data_processed).result()
    writer.broadcast_event("last")
    with pytest.raises(errors.ClosedError, match="end of data"):
        writer.emit(b"late")
    with pytest.raises(errors.ClosedError, match="before"):
        writer.end_of_data()
    writer.finish()
    for end in ends:
        assert end.task.result() == []
        end.expect("EndOfData(Drain)", "last")


def test_a_consumer_that_is_gone_need_not_acknowledge(link):
    partition, writer, gates = opened(link, 2, None)
    writer.end_of_data("no_drain")
    Ends(gates[0]).expect("EndOfData(NoDrain)")
    gates[0].acknowledge_all_records_processed(0)
    gates[1].close()
    assert Task(partition.wait_all_data_processed, 10).result()
    with pytest.raises(errors.OptionError, match="half"):
        writer.end_of_data("half")


@pytest.mark.parametrize("call", ["emit", "broadcast_emit", "broadcast_event"])
def test_a_finished_writer_takes_nothing_more(environment, call):
    _, writer, [gate] = opened(environment)
    with writer:
        writer.emit(numbers(3))
    with pytest.raises(errors.ClosedError):
        getattr(writer, call)("late" if call == "broadcast_event" else numbers(1))
    writer.finish()
    assert_same(Task(drain, gate).result(), numbers(3))


def test_a_closed_partition_refuses_its_writer(environment):
    partition, writer, _ = opened(environment)
    partition.close()
    # All subpartitions are released, so rows may be dropped. Waiting must not hang.
    for call in (lambda: writer.emit(numbers(100_000)), writer.finish, writer.flush):
        outcome = Task(call).outcome(5)
        assert outcome is None or isinstance(outcome, errors.ClosedError), repr(outcome)


def test_an_exception_in_the_block_fails_the_consumers_in_its_words(link):
    _, writer, gates = opened(link, 2)

    def produce():
        with writer:
            writer.emit(numbers(10))
            raise ValueError("row 7 of user grüße is odd")

    assert isinstance(Task(produce).error(), ValueError)
    for gate in gates:
        error = Task(drain, gate).error(5)
        assert isinstance(error, errors.ProducerFailedError)
        assert "ValueError: row 7 of user grüße is odd" in str(error)


def test_rows_before_a_failure_are_no_success(environment):
    _, writer, [gate] = opened(environment)
    reader = hg.RecordReader(gate)
    writer.emit(numbers(10))
    writer.flush()
    assert_same(Task(next, reader).result(), numbers(10))
    writer.fail(ValueError("no more"))
    writer.finish()
    error = Task(next, reader).error(5)
    assert isinstance(error, errors.ProducerFailedError)
    assert "no more" in str(error)
