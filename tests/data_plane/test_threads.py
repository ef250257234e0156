"""Many threads, signals that interrupt them, and secrets that appear nowhere."""

import gc
import hashlib
import os
import pickle
import signal
import time
import traceback
import weakref

import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, drain, numbers, open_gates, wait_until

import headgate as hg


def test_two_environments_from_many_threads(environment):
    one, two = environment(memory="32m"), environment(memory="32m")

    def round_trip(producer, consumer, seed):
        for turn in range(10):
            partition = producer.create_result_partition(2, schema=NUMBERS)
            gate = consumer.create_input_gate([partition.address(i) for i in range(2)])
            reading = Task(drain, gate)
            with hg.RecordWriter(partition) as writer:
                for start in range(0, 4000, 1000):
                    writer.emit(numbers(1000, seed + start))
            values = reading.result().column("n").to_pylist()
            assert sorted(values) == list(range(seed, seed + 4000)), turn
            assert partition.wait_consumed(10)
            gate.close()
            partition.close()

    pairs = [(one, two), (two, one), (one, one), (two, two)] * 2
    calls = [Task(round_trip, *pair, 10_000 * i) for i, pair in enumerate(pairs)]
    watched = Task(lambda: [(one.stats(), two.stats(), time.sleep(0.001)) for _ in range(200)])
    for call in calls:
        call.result(40)
    watched.result()


def test_a_progress_thread_may_ask_while_others_block(link):
    producer, consumer = link(memory="1m")
    partition = producer.create_result_partition(2, schema=NUMBERS)
    gates = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition, selector=lambda b: [0] * len(b))
    reader = hg.RecordReader(gates[1])
    writing = Task(lambda: [writer.emit(numbers(10_000)) for _ in range(1000)])
    reading = Task(next, reader)
    with pytest.raises(AssertionError, match="hangs"):
        writing.join(0.3)
    try:
        assert Task(reader.totals).result(2) == (0, 0)
        assert Task(writer.stats).result(2).rows > 0
        Task(writer.fail, "enough").result(2)
        assert "enough" in str(writing.error(2))
    finally:
        partition.fail("the test is over")
        writing.outcome(5)
        reading.outcome(5)


def test_other_threads_run_while_calls_block(environment):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    gate = environment().create_input_gate([partition.address(0)])
    reading = Task(drain, gate)
    waiting = Task(partition.wait_consumed)
    started, turns = time.monotonic(), 0
    while time.monotonic() - started < 0.2:
        turns += 1
    assert turns > 10_000  # neither call holds the GIL
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(1))
    reading.result()
    assert waiting.result()


class Alarm(Exception):
    """Raised by a signal handler."""


@pytest.fixture
def alarm():
    def ring(*_):
        raise Alarm("the time is up")

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda after: signal.setitimer(signal.ITIMER_REAL, after)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_an_interrupted_reader_goes_on(link, alarm):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    alarm(0.1)
    with pytest.raises(Alarm):
        next(reader)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(5))
    assert_same(Task(next, reader).result(), numbers(5))


def test_a_signal_handler_that_uses_what_it_interrupted_gets_an_error(environment):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, environment())
    reader = hg.RecordReader(gate)
    writer = hg.RecordWriter(partition)
    uses = iter([lambda: next(reader), reader.poll_next])
    got = []

    def ring(*_):
        try:
            next(uses)()
        except hg.errors.ClosedError as error:
            got.append(str(error))
        writer.emit(numbers(5))  # nobody uses this one
        writer.flush()

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for calls in (1, 2):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            assert_same(next(reader), numbers(5))
            assert len(got) == calls
    finally:
        signal.signal(signal.SIGALRM, before)
    assert all("this thread is within another call of the same object" in text for text in got)


CUT = pa.schema([("t", pa.binary())])


def record_of(serializer, letter, count):
    value = letter * count
    return (
        pa.record_batch([pa.array([value], pa.binary())], CUT) if serializer == "arrow" else value
    )


def read_on(reader):
    """Return the letters and length of each record, and the error that ended the read."""
    seen = []
    try:
        for record in reader:
            values = [record] if isinstance(record, bytes) else record.column("t").to_pylist()
            seen += [(bytes(sorted(set(value))), len(value)) for value in values]
    except hg.HeadgateError as error:
        return seen, error
    return seen, None


def emit_each(writer, records):
    for record in records:
        writer.emit(record)


def interrupted_emit(writer, records):
    """Emit until a call waits for the reader, and end that wait by a signal."""
    before = writer.back_pressured_ns()

    def ring():
        wait_until(lambda: writer.back_pressured_ns() > before)
        os.kill(os.getpid(), signal.SIGALRM)

    ringing = Task(ring)
    with pytest.raises(Alarm):
        emit_each(writer, records)
    ringing.result()


def emit_and_finish(writer, *records):
    emit_each(writer, records)
    writer.finish()


@pytest.mark.parametrize("serializer", ["bytes", "pickle", "arrow"])
def test_an_interrupted_emit_of_a_wide_record_gives_no_wrong_rows(link, alarm, serializer):
    producer, consumer = link(memory="1m", segment_size="64k")
    partition = producer.create_result_partition(1, schema=CUT)
    [gate] = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition, serializer=serializer)
    reader = hg.RecordReader(gate, serializer=serializer)
    writer.emit(record_of(serializer, b"b", 100_000))
    writer.flush()
    assert len(Task(next, reader).result()) in {1, 100_000}
    interrupted_emit(writer, [record_of(serializer, b"w", 10_000_000)])
    reading = Task(read_on, reader)
    others = [record_of(serializer, b"n", 4_000_000)] * 3
    error = Task(emit_and_finish, writer, *others).error()
    assert isinstance(error, hg.HeadgateError), repr(error)
    assert "cut off after" in str(error)
    assert "Alarm: the time is up" in str(error)
    seen, error = reading.result()
    assert seen == []
    assert isinstance(error, hg.errors.ProducerFailedError), repr(error)
    assert "Alarm: the time is up" in str(error)


@pytest.mark.parametrize("serializer", ["bytes", "pickle", "arrow"])
def test_the_next_record_never_completes_one_that_was_cut_off(link, alarm, serializer):
    producer, consumer = link(memory="1m", segment_size="64k")
    partition = producer.create_result_partition(1, schema=CUT)
    writer = hg.RecordWriter(partition, serializer=serializer)
    interrupted_emit(writer, [record_of(serializer, b"A", 3_000_000)])
    sent = producer.stats()["metrics"]["task"]["outputQueueSize"]
    # With these bytes the lengths match: the first record's length covers the second one.
    writing = Task(emit_and_finish, writer, record_of(serializer, b"B", 3_000_000 - sent))

    def read():
        [gate] = open_gates(partition, consumer)
        return read_on(hg.RecordReader(gate, serializer=serializer))

    got = Task(read).outcome()
    # In process the gate cannot be opened.
    seen, error = got if isinstance(got, tuple) else ([], got)
    assert seen == []
    assert isinstance(error, hg.HeadgateError), repr(error)
    assert "Alarm: the time is up" in str(error)
    assert "Alarm: the time is up" in str(writing.error())


def test_an_emit_that_is_interrupted_before_its_record_emits_the_next_one(link, alarm):
    producer, consumer = link(memory="1m", segment_size="64k")
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition, serializer="bytes")
    sizes = []

    def records():
        while True:
            yield bytes(65_532)  # with its length it fills a segment
            sizes.append(65_532)

    interrupted_emit(writer, records())
    reading = Task(drain, gate, serializer="bytes")
    Task(emit_and_finish, writer, bytes(5)).result()
    got = [len(record) for record in reading.result()]
    # The signal may come behind a record's emit, before its size is noted.
    assert got in ([*sizes, 5], [*sizes, 65_532, 5])


def test_objects_are_freed(environment):
    producer = environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    gate = producer.create_input_gate([partition.address(0)])
    reader, writer = hg.RecordReader(gate), hg.RecordWriter(partition)
    gone = [weakref.ref(thing) for thing in (partition, gate, reader, writer)]
    del partition, gate, reader, writer
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4
    wait_until(lambda: producer.stats()["segments"]["held"] == 0, 5)


HIDDEN = hashlib.sha256(b"hidden").digest()


def assert_no_secret(text):
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    for piece in (HIDDEN[:8], HIDDEN[12:20], HIDDEN[-8:]):
        for form in (
            piece,
            piece.hex().encode(),
            repr(piece)[2:-1].encode(),
            str(list(piece))[1:-1].encode(),
        ):
            assert form not in data


@pytest.mark.soak
def test_the_secret_is_nowhere_to_be_read(environment):
    producer, stranger = environment(secret=HIDDEN), environment(secret=HIDDEN, run=5)
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    address = partition.address(0)
    gate = stranger.create_input_gate([address])
    reader = hg.RecordReader(gate)
    error = Task(next, reader).error()
    assert isinstance(error, hg.errors.HandshakeError)
    for thing in (producer, partition, writer, gate, reader, address, error, producer.stats()):
        for text in (repr(thing), str(thing), str(getattr(thing, "__dict__", ""))):
            assert_no_secret(text)
    assert_no_secret(repr(vars(producer)["_native"]))
    assert_no_secret(pickle.dumps(error))
    assert_no_secret(pickle.dumps(address))
    assert_no_secret("".join(traceback.format_exception(error)))


def test_wrong_secrets_are_not_repeated():
    for wrong in (HIDDEN[:31], HIDDEN + b"x", HIDDEN.decode("latin-1")):
        with pytest.raises((hg.errors.OptionError, TypeError)) as caught:
            hg.ShuffleEnvironment(secret=wrong)
        assert_no_secret(str(caught.value))


def test_only_addresses_and_errors_can_be_pickled(environment):
    producer = environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    gate = producer.create_input_gate()
    things = [producer, partition, gate, hg.RecordWriter(partition), hg.BufferReader(gate)]
    for thing in things:
        with pytest.raises(TypeError):
            pickle.dumps(thing)
    address = partition.address(0, host="example.org")
    assert pickle.loads(pickle.dumps(address)) == address
    assert address.host == "example.org"
