"""Schemas that differ are refused, and the error names both."""

import dataclasses

import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, drain, exchange, numbers

import headgate as hg

OTHER = pa.schema([("n", pa.float64())])
errors = hg.errors


def test_unknown_key_column_names_it_and_the_columns(environment):
    producer = environment()
    partition = producer.create_result_partition(2)
    schema = pa.schema([("user", pa.int32()), ("amount", pa.int32())])
    with pytest.raises(errors.UnknownColumnError, match="usr") as caught:
        hg.RecordWriter(partition, schema, selector=hg.HashSelector(["usr"]))
    assert "user" in str(caught.value)


@pytest.mark.parametrize(
    "data_type", [pa.uint8(), pa.float16(), pa.duration("s"), pa.time64("us"), pa.decimal256(50)]
)
def test_a_key_that_cannot_be_hashed_is_named(environment, data_type):
    partition = environment().create_result_partition(2)
    schema = pa.schema([("fine", pa.int32()), ("odd one", data_type)])
    with pytest.raises(errors.UnsupportedTypeError, match="odd one"):
        hg.RecordWriter(partition, schema, selector=hg.HashSelector(["odd one"]))


DRIFTS = {
    "type": pa.record_batch({"n": pa.array([1.5])}),
    "narrower": pa.record_batch({"n": pa.array([1], pa.int32())}),
    "name": pa.record_batch({"m": pa.array([1], pa.int64())}),
    "missing": numbers(1).select([]),
    "extra": pa.record_batch({"n": pa.array([1], pa.int64()), "x": pa.array([1])}),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_drift_between_batches_loses_nothing(environment, drift):
    producer, consumer = environment(), environment()

    def write(writer):
        writer.emit(numbers(1000))
        for emit in (writer.emit, writer.broadcast_emit):
            with pytest.raises(errors.SchemaMismatchError) as caught:
                emit(DRIFTS[drift])
            name = {"name": "n", "extra": "x"}.get(drift, "n")
            assert f'"{name}"' in str(caught.value)
        writer.emit(numbers(1000, 1000))

    [got] = exchange(producer, consumer, write, schema=NUMBERS)
    assert_same(got, numbers(2000))


def test_drift_within_a_stream_keeps_the_batches_before_it(environment):
    producer = environment()

    def batches():
        yield numbers(10)
        raise ValueError("the source broke")

    def write(writer):
        with pytest.raises(Exception, match="the source broke"):
            writer.emit(pa.RecordBatchReader.from_batches(NUMBERS, batches()))
        writer.emit(numbers(10, 10))

    [got] = exchange(producer, producer, write, schema=NUMBERS)
    assert_same(got, numbers(20))


def test_nulls_in_a_column_without_nulls(environment):
    producer, consumer = environment(), environment()
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])

    def write(writer):
        writer.emit(pa.record_batch([pa.array([1, 2])], schema=schema))
        with pytest.raises(errors.SchemaMismatchError, match='"n"'):
            writer.emit(pa.record_batch({"n": pa.array([3, None], pa.int64())}))
        writer.emit(pa.record_batch([pa.array([4])], schema=schema))

    [got] = exchange(producer, consumer, write, schema=schema)
    assert got.column("n").to_pylist() == [1, 2, 4]


def without_schema(address):
    return dataclasses.replace(address, schema=None)


def test_a_writer_of_another_schema_than_an_early_consumer_expects(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1)
    gate = consumer.create_input_gate([partition.address(0)], schema=OTHER)
    reading = Task(drain, gate)
    writing = Task(write_five, partition)
    error = reading.outcome(5)
    assert isinstance(error, hg.HeadgateError), f"int64 was read as float64: {error}"
    writing.outcome(5)


def write_five(partition):
    with hg.RecordWriter(partition, NUMBERS) as writer:
        writer.emit(numbers(5))


@pytest.mark.parametrize("known", [True, False], ids=["gate knows", "gate does not know"])
def test_a_reader_of_another_schema_is_refused(link, known):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    write_five(partition)
    address = partition.address(0)
    gate = consumer.create_input_gate([address if known else without_schema(address)])
    error = Task(lambda: drain(gate, schema=OTHER)).outcome(5)
    assert isinstance(error, errors.SchemaMismatchError), f"int64 was read as float64: {error!r}"


def test_a_partition_keeps_the_schema_it_was_made_with(environment):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    with pytest.raises(errors.SchemaMismatchError):
        hg.RecordWriter(partition, OTHER)


def test_a_writer_without_a_schema(environment):
    partition = environment().create_result_partition(1)
    with pytest.raises(errors.OptionError, match="schema="):
        hg.RecordWriter(partition)


def test_a_reader_without_a_schema(environment):
    gate = environment().create_input_gate()
    with pytest.raises(errors.OptionError, match="schema"):
        hg.RecordReader(gate)


@pytest.mark.parametrize("thing", [5, "text", None, [1, 2], {"n": [1]}], ids=repr)
def test_objects_that_are_not_batches_are_refused(environment, thing):
    producer = environment()

    def write(writer):
        writer.emit(numbers(3))
        with pytest.raises((TypeError, ValueError)):
            writer.emit(thing)
        writer.emit(numbers(3, 3))

    [got] = exchange(producer, producer, write, schema=NUMBERS)
    assert_same(got, numbers(6))
