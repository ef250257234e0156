"""Bytes records of any size, and Python objects if both ends choose pickle."""

import pickle
import random

import pytest
from plane import NUMBERS, Task, drain, emit_all, exchange, numbers, open_gates, wait_until

import headgate as hg

SEGMENT = 65536
SIZES = [0, 1, 3, 4, 5, 100, SEGMENT - 5, SEGMENT - 4, SEGMENT - 3, SEGMENT, SEGMENT + 1, 300_000]
RECORDS = [random.Random(size).randbytes(size) for size in SIZES]


def test_records_of_all_sizes(link):
    records = RECORDS + RECORDS[::-1]
    producer, consumer = link()
    [got] = exchange(producer, consumer, emit_all(*records), serializer="bytes")
    assert got == records


def test_many_small_records_in_turn(link):
    records = [b"%d" % i for i in range(10_000)]
    producer, consumer = link()
    got = exchange(producer, consumer, emit_all(*records), n=3, serializer="bytes")
    assert got == [records[i::3] for i in range(3)]


def test_round_robin_starts_at_its_start(link):
    producer, consumer = link()
    selector = hg.RoundRobinSelector(start=5)
    got = exchange(
        producer, consumer, emit_all(b"a", b"b"), n=3, serializer="bytes", selector=selector
    )
    assert got == [[b"b"], [], [b"a"]]


def test_bytearrays_and_memoryviews_are_bytes(environment):
    producer = environment()
    records = [bytearray(b"abc"), memoryview(b"defg")[1:], memoryview(b"abcdef")[::2]]
    [got] = exchange(producer, producer, emit_all(*records), serializer="bytes")
    assert got == [b"abc", b"efg", b"ace"]


def test_broadcast_bytes(link):
    producer, consumer = link()
    got = exchange(
        producer,
        consumer,
        emit_all(*RECORDS),
        n=3,
        serializer="bytes",
        selector=hg.BroadcastSelector(),
    )
    assert got == [RECORDS] * 3


def test_a_function_chooses_for_each_record(link):
    producer, consumer = link()
    records = [bytes([i]) * i for i in range(50)]
    got = exchange(
        producer,
        consumer,
        emit_all(*records),
        n=4,
        serializer="bytes",
        selector=lambda record: len(record) % 4,
    )
    assert got == [records[i::4] for i in range(4)]


@pytest.mark.parametrize("chosen", [-1, 2, 2**40, 1.0, None, "0", True, [0]], ids=repr)
def test_a_wrong_choice_loses_nothing_else(environment, chosen):
    producer = environment()

    def write(writer):
        writer.emit(b"first")
        with pytest.raises(hg.errors.SelectorError):
            writer.emit(b"wrong")
        writer.emit(b"last")

    got = exchange(
        producer,
        producer,
        write,
        n=2,
        serializer="bytes",
        selector=lambda record: chosen if record == b"wrong" else 1,
    )
    assert got == [[], [b"first", b"last"]]


@pytest.mark.parametrize("record", ["text", 5, None, ["list"]], ids=repr)
def test_other_records_than_bytes_are_refused(environment, record):
    producer = environment()

    def write(writer):
        writer.emit(b"first")
        with pytest.raises(hg.errors.OptionError, match=type(record).__name__):
            writer.emit(record)
        writer.emit(b"last")

    [got] = exchange(producer, producer, write, serializer="bytes")
    assert got == [b"first", b"last"]


OBJECTS = [None, 0, -(2**70), "grüße", b"x" * 100_000, [1, {"a": (2.5, {3})}], range(5), int]


def test_objects(link):
    producer, consumer = link()
    got = exchange(producer, consumer, emit_all(*OBJECTS), n=2, serializer="pickle")
    assert got == [OBJECTS[0::2], OBJECTS[1::2]]


def test_objects_by_a_function_and_by_broadcast(link):
    producer, consumer = link()

    def write(writer):
        for number in range(10):
            writer.emit(number)
        writer.broadcast_emit("all")

    got = exchange(producer, consumer, write, n=2, serializer="pickle", selector=lambda n: n % 2)
    assert got == [[0, 2, 4, 6, 8, "all"], [1, 3, 5, 7, 9, "all"]]


class Unreadable:
    """An object whose own code fails when it is unpickled."""

    def __reduce__(self):
        return int, ("no number",)


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        (pickle.dumps([1, 2])[:-1], pickle.UnpicklingError),
        (pickle.dumps(b"x" * 100_000)[:70_000], pickle.UnpicklingError),
        (b"", EOFError),
        (pickle.dumps(Unreadable()), ValueError),
    ],
    ids=["cut", "wide and cut", "empty", "code that fails"],
)
def test_a_record_that_cannot_be_unpickled_is_an_error_with_its_cause(link, record, cause):
    producer, consumer = link()
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(record)
        writer.emit(pickle.dumps("whole"))
    reader = hg.RecordReader(gate, serializer="pickle")
    error = Task(next, reader).error()
    assert type(error) is hg.errors.SchemaMismatchError
    assert type(error.__cause__) is cause
    assert f"a record of {len(record)} bytes cannot be unpickled: {cause.__name__}: " in str(error)
    assert Task(list, reader).result() == ["whole"]


class Trap:
    """An object that notes when it is unpickled."""

    sprung = False

    def __reduce__(self):
        return spring, ()


def spring():
    Trap.sprung = True
    return "sprung"


def test_a_reader_without_the_opt_in_gets_the_bytes(link):
    producer, consumer = link()
    Trap.sprung = False
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition, serializer="pickle") as writer:
        writer.emit(Trap())
    got = Task(drain, gate, serializer="bytes").result()
    assert got == [pickle.dumps(Trap(), protocol=5)]
    assert not Trap.sprung


def test_an_arrow_reader_never_unpickles(link):
    producer, consumer = link()
    Trap.sprung = False
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition, serializer="pickle") as writer:
        writer.emit(Trap())
    assert isinstance(Task(drain, gate, schema=NUMBERS).error(), hg.HeadgateError)
    assert not Trap.sprung


@pytest.mark.parametrize("serializer", ["bytes", "pickle"])
def test_a_reader_of_records_refuses_batches(link, serializer):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(5))
    error = Task(drain, gate, serializer=serializer).error()
    assert isinstance(error, hg.errors.SchemaMismatchError), repr(error)


def test_records_appear_before_a_buffer_is_full(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition, serializer="bytes")
    got = []
    reading = Task(lambda: got.extend(hg.RecordReader(gate, serializer="bytes")))
    for number in range(3):
        writer.emit(b"%d" % number)
        writer.flush()
        wait_until(lambda n=number: len(got) == n + 1)
    assert reading.running
    writer.finish()
    reading.result()
    assert got == [b"0", b"1", b"2"]


def test_the_objects_of_a_writer_cannot_be_hashed(environment):
    partition = environment().create_result_partition(2)
    with pytest.raises(hg.errors.SelectorError):
        hg.RecordWriter(partition, serializer="bytes", selector=hg.HashSelector(["k"]))


def test_unknown_serializers_are_refused(environment):
    producer = environment()
    partition = producer.create_result_partition(1)
    with pytest.raises(hg.errors.OptionError, match="json"):
        hg.RecordWriter(partition, serializer="json")
    with pytest.raises(hg.errors.OptionError, match="json"):
        hg.RecordReader(producer.create_input_gate(), serializer="json")
