"""Bytes records of any size, and Python objects if both ends choose pickle."""

import pickle

import pytest
from plane import NUMBERS, Task, drain, emit_all, exchange, numbers, open_gates

import headgate as hg


def test_bytearrays_and_memoryviews_are_bytes(environment):
    producer = environment()
    records = [bytearray(b"abc"), memoryview(b"defg")[1:], memoryview(b"abcdef")[::2]]
    [got] = exchange(producer, producer, emit_all(*records), serializer="bytes")
    assert got == [b"abc", b"efg", b"ace"]


def test_a_function_chooses_for_each_record(environment):
    producer, consumer = environment(), environment()
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


def test_objects(environment):
    producer, consumer = environment(), environment()
    got = exchange(producer, consumer, emit_all(*OBJECTS), n=2, serializer="pickle")
    assert got == [OBJECTS[0::2], OBJECTS[1::2]]


def test_objects_by_a_function_and_by_broadcast(environment):
    producer, consumer = environment(), environment()

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
def test_a_record_that_cannot_be_unpickled_is_an_error_with_its_cause(environment, record, cause):
    producer, consumer = environment(), environment()
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


def test_a_reader_without_the_opt_in_gets_the_bytes(environment):
    producer, consumer = environment(), environment()
    Trap.sprung = False
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition, serializer="pickle") as writer:
        writer.emit(Trap())
    got = Task(drain, gate, serializer="bytes").result()
    assert got == [pickle.dumps(Trap(), protocol=5)]
    assert not Trap.sprung


def test_an_arrow_reader_never_unpickles(environment):
    producer, consumer = environment(), environment()
    Trap.sprung = False
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition, serializer="pickle") as writer:
        writer.emit(Trap())
    assert isinstance(Task(drain, gate, schema=NUMBERS).error(), hg.HeadgateError)
    assert not Trap.sprung


@pytest.mark.parametrize("serializer", ["bytes", "pickle"])
def test_a_reader_of_records_refuses_batches(environment, serializer):
    producer, consumer = environment(), environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(5))
    error = Task(drain, gate, serializer=serializer).error()
    assert isinstance(error, hg.errors.SchemaMismatchError), repr(error)


def test_unknown_serializers_are_refused(environment):
    producer = environment()
    partition = producer.create_result_partition(1)
    with pytest.raises(hg.errors.OptionError, match="json"):
        hg.RecordWriter(partition, serializer="json")
    with pytest.raises(hg.errors.OptionError, match="json"):
        hg.RecordReader(producer.create_input_gate(), serializer="json")
