"""Small parts of the driver: slots, schemas, user functions, the hash of Spark's shuffle."""

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from headgate.errors import SchemaMismatchError, UnknownColumnError, UnsupportedTypeError
from headgate.spark.plan.keys import Columns
from headgate.spark.plan.shuffle import keys_of_partitions, murmur3
from headgate.spark.schema import arrow_schema
from headgate.spark.slots import from_master, local_attempts
from headgate.spark.tasks.user_function import Source, UserFunctionFailed, apply


def batch(*numbers):
    return pa.RecordBatch.from_pydict({"n": list(numbers)})


@pytest.mark.parametrize(
    ("master", "cpus", "slots"),
    [
        ("local", 1, 1),
        ("local[1]", 1, 1),
        ("local[4]", 1, 4),
        ("local[ 4 ]", 2, 2),
        ("local[4, 3]", 1, 4),
        ("local-cluster[2,2,1024]", 1, 4),
        ("local-cluster[3, 5, 1024]", 2, 6),
    ],
)
def test_slots_of_a_master(master, cpus, slots):
    assert from_master(master, cpus).number == slots


@pytest.mark.parametrize(
    ("master", "attempts"),
    [("local", 1), ("local[*]", 1), ("local[ 4 ]", 1), ("local[4, 3]", 3), ("yarn", None)],
)
def test_attempts_of_a_local_master(master, attempts):
    assert local_attempts(master) == attempts


def test_slots_of_other_masters():
    assert from_master("local[*]").number >= 1
    assert from_master("spark://host:7077") is None
    assert from_master("yarn") is None


def test_every_type_that_is_sent():
    kinds = {
        t.BooleanType(): pa.bool_(),
        t.ByteType(): pa.int8(),
        t.ShortType(): pa.int16(),
        t.IntegerType(): pa.int32(),
        t.LongType(): pa.int64(),
        t.FloatType(): pa.float32(),
        t.DoubleType(): pa.float64(),
        t.StringType(): pa.string(),
        t.CharType(3): pa.string(),
        t.VarcharType(3): pa.string(),
        t.BinaryType(): pa.binary(),
        t.DateType(): pa.date32(),
        t.TimestampType(): pa.timestamp("us", "Europe/Paris"),
        t.TimestampNTZType(): pa.timestamp("us"),
        t.DecimalType(38, 9): pa.decimal128(38, 9),
        t.DayTimeIntervalType(): pa.duration("us"),
        t.ArrayType(t.LongType(), False): pa.list_(pa.field("element", pa.int64(), nullable=False)),
        t.MapType(t.StringType(), t.TimestampType()): pa.map_(
            pa.string(), pa.timestamp("us", "Europe/Paris")
        ),
        t.StructType([t.StructField("a", t.ArrayType(t.DateType()))]): pa.struct(
            [("a", pa.list_(pa.field("element", pa.date32())))]
        ),
    }
    schema = t.StructType([t.StructField(f"c{i}", k, i % 2 == 0) for i, k in enumerate(kinds)])
    sent = arrow_schema(schema, "Europe/Paris")
    assert sent.types == list(kinds.values())
    assert [field.nullable for field in sent] == [i % 2 == 0 for i in range(len(kinds))]


@pytest.mark.parametrize(
    "kind",
    [
        t.ArrayType(t.YearMonthIntervalType()),
        t.MapType(t.StringType(), t.VariantType()),
        t.StructType([t.StructField("a", t.NullType())]),
        t.YearMonthIntervalType(),
        t.NullType(),
        t.VariantType(),
    ],
)
def test_a_type_that_is_not_sent_is_named_with_its_column(kind):
    schema = t.StructType([t.StructField("fine", t.LongType()), t.StructField("odd", kind)])
    with pytest.raises(UnsupportedTypeError) as caught:
        arrow_schema(schema, "UTC")
    assert "'odd'" in str(caught.value)
    assert kind.simpleString() in str(caught.value)
    assert caught.value.details["column"] == "odd"


def test_keys_are_found_as_spark_finds_them():
    schema = t.StructType([t.StructField("User", t.LongType()), t.StructField("n", t.LongType())])
    assert Columns(schema, False, "x").keys(["user", "N"]) == ["User", "n"]
    with pytest.raises(UnknownColumnError) as caught:
        Columns(schema, True, "the input").keys(["user"])
    assert caught.value.details["close"] == ["User"]
    assert "the input" in str(caught.value)
    twice = t.StructType([t.StructField("a", t.LongType())] * 2)
    with pytest.raises(UnknownColumnError, match="more than one"):
        Columns(twice, True, "x").keys(["a"])


@pytest.mark.parametrize("kind", [t.DayTimeIntervalType(), t.StringType("UNICODE_CI")])
def test_what_spark_hashes_otherwise_is_no_key(kind):
    schema = t.StructType([t.StructField("k", kind)])
    with pytest.raises(UnsupportedTypeError, match="be a key"):
        Columns(schema, True, "x").keys(["k"])


def test_a_user_function_gets_the_batches_and_they_are_counted():
    seen = []
    source = Source([batch(1), batch(2, 3)], batch(1).schema, lambda b: seen.append(b.num_rows))
    assert [b.num_rows for b in apply("map", lambda it: (b for b in it), source)] == [1, 2]
    assert seen == [1, 2]
    assert source.ended


def raising(batches):
    for one in batches:
        yield one
        raise ValueError("my\nown mistake")


def test_a_user_exception_keeps_its_traceback_from_the_users_first_frame():
    with pytest.raises(UserFunctionFailed) as caught:
        list(apply("reduce", raising, Source([batch(1)], batch(1).schema, id)))
    failure = caught.value
    assert failure.summary == "reduce raised ValueError: my"
    assert "in raising" in failure.text
    assert "own mistake" in failure.text
    assert "user_function.py" not in failure.text
    assert isinstance(failure.error, ValueError)


def failing_source():
    yield batch(1)
    raise ConnectionError("the peer is gone")


def wrapping(batches):
    try:
        yield from batches
    except ConnectionError as error:
        raise RuntimeError("while reading") from error


@pytest.mark.parametrize("function", [wrapping, lambda it: (b for b in it), None])
def test_an_error_of_the_input_is_not_the_users(function):
    with pytest.raises(ConnectionError, match="the peer is gone"):
        list(apply("map", function, Source(failing_source(), batch(1).schema, id)))


def test_the_hash_of_an_int_is_sparks():
    # select hash(0), hash(1), hash(42)
    assert [murmur3(n) for n in (0, 1, 42)] == [933211791, -559580957, 29417773]
    keys = keys_of_partitions(7)
    assert [murmur3(key) % 7 for key in keys] == list(range(7))


def test_a_batch_that_is_returned_in_a_loop_over_several_is_refused():
    def source(*batches):
        return Source(batches, batch().schema, lambda _: None)

    def first(batches):
        for one in batches:
            return one
        return []

    with pytest.raises(SchemaMismatchError, match="f returned a batch before it had taken all"):
        list(apply("f", first, source(batch(1), batch(2))))
    assert list(apply("f", first, source(batch(1)))) == [batch(1)]
    constant = apply("f", lambda _: batch(7), source(batch(1), batch(2)))
    assert list(constant) == [batch(7)]
    some = apply("f", lambda batches: iter([next(batches)]), source(batch(1), batch(2)))
    assert list(some) == [batch(1)]
