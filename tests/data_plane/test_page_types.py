"""Every type that pages can carry arrives unchanged; errors name other types."""

import columns
import pyarrow as pa
import pytest
from plane import assert_same, emit_all, exchange, numbers

import headgate as hg

UNION = pa.dense_union([pa.field("a", pa.int32())])
#: All types that are refused are in rust_core/record/tests/page_format.rs.
UNSUPPORTED = [
    UNION,
    pa.map_(pa.string(), UNION),
    # Arrays of these types cannot be rebuilt from the rows of a page.
    pa.list_(pa.dictionary(pa.int32(), pa.null())),
    pa.dictionary(pa.int8(), pa.string()),
    pa.run_end_encoded(pa.int16(), pa.int64()),
]


@pytest.mark.parametrize("data_type", columns.TYPES, ids=str)
def test_each_type_arrives_bit_by_bit(environment, data_type):
    producer = environment()
    batch = pa.record_batch({"c": columns.array(data_type)})
    [got] = exchange(producer, producer, emit_all(batch), schema=batch.schema)
    assert_same(got, batch)


def test_all_types_at_once_across_the_link(link):
    batch = columns.batch()
    producer, consumer = link()
    [got] = exchange(producer, consumer, emit_all(batch, batch), schema=batch.schema)
    assert_same(got, [batch, batch])


def test_sliced_batches_of_all_types(environment):
    batch = columns.batch()
    slices = [batch.slice(start, length) for start in range(9) for length in (1, 3, 9 - start)]
    producer, consumer = environment(), environment()
    [got] = exchange(producer, consumer, emit_all(*slices), schema=batch.schema)
    assert_same(got, slices)


def test_rows_of_all_types_scattered(environment):
    batch = columns.batch()
    ids = [2, 0, 0, 1, 2, 2, 0, 1, 0]
    producer, consumer = environment(), environment()
    got = exchange(
        producer,
        consumer,
        emit_all(batch),
        n=3,
        schema=batch.schema,
        selector=lambda _: ids,
    )
    for index, table in enumerate(got):
        rows = [row for row, chosen in enumerate(ids) if chosen == index]
        assert_same(table, batch.take(pa.array(rows)))


@pytest.mark.parametrize(
    ("written", "got"),
    [
        (pa.string(), pa.large_string()),
        (pa.string(), pa.string_view()),
        (pa.large_string(), pa.string()),
        (pa.large_string(), pa.string_view()),
        (pa.binary(), pa.large_binary()),
        (pa.binary(), pa.binary_view()),
        (pa.large_binary(), pa.binary()),
        (pa.large_binary(), pa.binary_view()),
    ],
    ids=str,
)
def test_strings_and_binaries_of_the_same_family(environment, written, got):
    values = columns.TEXTS if "string" in str(written) else columns.BLOBS
    schema = pa.schema([("c", written)])
    source = pa.record_batch({"c": pa.array(values, got)})
    sliced = source.slice(2, 5)
    producer, consumer = environment(), environment()
    [table] = exchange(producer, consumer, emit_all(source, sliced), schema=schema)
    expected = pa.array(values + values[2:7], written)
    assert_same(table, pa.table({"c": expected}))


RUNS = pa.run_end_encoded(pa.int32(), pa.string())
WORDS = ["a", "a", None, None, "bb", "bb", "a"]


def packed(data_type):
    """Return the words as an array of a string-like type, or of lists of it."""
    if data_type == RUNS:
        return pa.RunEndEncodedArray.from_arrays(
            pa.array([2, 4, 6, 7], pa.int32()), pa.array(["a", None, "bb", "a"]), RUNS
        )
    if pa.types.is_nested(data_type):
        return pa.array([None if word is None else [word] for word in WORDS], data_type)
    return pa.array(WORDS).cast(data_type)


@pytest.mark.parametrize(
    ("written", "got"),
    [
        (RUNS, RUNS),
        (RUNS, pa.string()),
        (pa.string(), RUNS),
        (pa.string(), pa.dictionary(pa.int8(), pa.string())),
        (pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.string())),
        (pa.dictionary(pa.uint32(), pa.string()), pa.string_view()),
        (pa.string_view(), pa.string_view()),
        (pa.list_view(pa.string()), pa.list_view(pa.string())),
        (pa.list_(pa.string()), pa.list_view(pa.string())),
        (pa.large_list(pa.string()), pa.list_(pa.field("other", pa.large_string()))),
    ],
    ids=str,
)
def test_types_that_encode_the_same_values(environment, written, got):
    source = pa.record_batch({"c": packed(got)})
    producer, consumer = environment(), environment()
    schema = pa.schema([("c", written)])
    [table] = exchange(producer, consumer, emit_all(source, source.slice(2, 3)), schema=schema)
    assert table.schema == schema
    words = [word if word is None or not pa.types.is_nested(written) else [word] for word in WORDS]
    if written == RUNS:
        words = WORDS
    assert table.column("c").to_pylist() == words + words[2:5]


def test_nulls_inside_a_type_that_forbids_them(environment):
    producer = environment()
    schema = pa.schema([("c", pa.list_(pa.field("element", pa.int32(), nullable=False)))])
    writer = hg.RecordWriter(producer.create_result_partition(1), schema)
    with pytest.raises(hg.errors.SchemaMismatchError, match='"c" is not nullable and has 1 nulls'):
        writer.emit(pa.record_batch({"c": pa.array([[1], [None]], pa.list_(pa.int32()))}))
    writer.emit(pa.record_batch({"c": pa.array([[1], None], pa.list_(pa.int32()))}))
    out_of_sight = pa.array([[1], [None], [2]], pa.list_(pa.int32())).slice(0, 1)
    writer.emit(pa.record_batch({"c": out_of_sight}))


def test_a_null_struct_has_no_nulls_inside(environment):
    """The reader's schema forbids nulls in `x`. It reads the batch: only a whole struct is null."""
    producer, consumer = environment(), environment()
    given = pa.schema([("s", pa.struct([("x", pa.int64()), ("t", pa.string())]))])
    strict = pa.struct([pa.field("x", pa.int64(), nullable=False), ("t", pa.string())])
    rows = [{"x": 1, "t": None}, None, {"x": 2, "t": "b"}]
    partition = producer.create_result_partition(1, schema=given)
    gate = consumer.create_input_gate([partition.address(0)])
    with hg.RecordWriter(partition) as writer:
        writer.emit(pa.record_batch({"s": pa.array(rows, given.field("s").type)}))
    [batch] = hg.RecordReader(gate, schema=pa.schema([("s", strict)]))
    assert batch.column("s").type == strict
    assert batch.column("s").to_pylist() == rows


def test_many_values_of_many_batches_in_one_dictionary(environment):
    schema = pa.schema([("c", pa.dictionary(pa.int32(), pa.string()))])
    batches = [
        pa.record_batch({"c": pa.array([f"{n} {i}" for i in range(100)]).dictionary_encode()})
        for n in range(5)
    ]
    producer, consumer = environment(), environment()
    [got] = exchange(producer, consumer, emit_all(*batches), schema=schema)
    assert_same(got, batches)


def test_map_entries_of_other_names(environment):
    schema = pa.schema([("m", pa.map_(pa.string(), pa.int32()))])
    keys, items = pa.array(["a", "b"]), pa.array([1, None], pa.int32())
    other = pa.map_(pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int32()))
    array = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), keys, items, other)
    producer, consumer = environment(), environment()
    [got] = exchange(producer, consumer, emit_all(pa.record_batch({"m": array})), schema=schema)
    assert got.column("m").to_pylist() == [[("a", 1)], [("b", None)]]


def test_structs_inside_structs_that_are_slices(environment):
    """Emit slices at every depth: arrow-rs 59 alone would read other rows of nested structs."""
    inner = pa.StructArray.from_arrays([pa.array(range(12)), pa.array("abcdefghijkl")], ["n", "s"])
    outer = pa.StructArray.from_arrays([inner, pa.array(range(12))], ["at", "m"])
    around = pa.StructArray.from_arrays([outer.slice(1, 6), inner.slice(5, 6)], ["o", "i"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 4, 4, 6, 6]), outer.slice(3, 8))
    keys = pa.array(list("kabcdefg")).slice(1)
    maps = pa.MapArray.from_arrays(pa.array([0, 0, 2, 3, 5, 5, 7]), keys, outer.slice(2, 7))
    pairs = pa.FixedSizeListArray.from_arrays(inner, 2)
    cut = pa.StructArray.from_arrays([inner.slice(3, 9)], ["i"]).slice(0, 6)
    whole = pa.record_batch(
        {"a": around, "l": lists, "m": maps, "o": outer.slice(4, 6), "p": pairs, "c": cut}
    )
    batches = [whole, whole.slice(2), whole.slice(1, 3)]
    producer, consumer = environment(), environment()
    table = pa.Table.from_batches([whole])
    [got] = exchange(producer, consumer, emit_all(*batches, table.slice(3)), schema=whole.schema)
    assert_same(got, [*batches, whole.slice(3)])
    picked = exchange(
        producer,
        consumer,
        emit_all(whole.slice(1)),
        n=2,
        schema=whole.schema,
        selector=lambda batch: [row % 2 for row in range(batch.num_rows)],
    )
    for index, part in enumerate(picked):
        assert_same(part, whole.slice(1).take(pa.array(range(index, 5, 2))))


def test_time_zones_of_another_label_are_the_same_type(environment):
    producer = environment()
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    source = pa.record_batch({"t": pa.array([1, None], pa.timestamp("us", "Europe/Berlin"))})
    [got] = exchange(producer, producer, emit_all(source), schema=schema)
    assert_same(got, pa.table({"t": pa.array([1, None], pa.timestamp("us", "UTC"))}))


def test_extension_types_pass_as_storage_and_metadata(environment):
    import uuid

    batch = pa.record_batch({"id": pa.array([uuid.UUID(int=i).bytes for i in range(5)], pa.uuid())})
    producer, consumer = environment(), environment()
    [got] = exchange(producer, consumer, emit_all(batch), schema=batch.schema)
    assert got.schema.field("id").type == pa.uuid()
    assert got.column("id").to_pylist() == batch.column("id").to_pylist()


def test_metadata_and_nullability_of_the_schema_are_kept(environment):
    fields = [
        pa.field("a", pa.int32(), nullable=False, metadata={"k": "v"}),
        pa.field("b", pa.string()),
    ]
    schema = pa.schema(fields, metadata={"whole": "schema"})
    batch = pa.record_batch([pa.array([1, 2], pa.int32()), pa.array(["x", None])], schema=schema)
    producer, consumer = environment(), environment()
    [got] = exchange(producer, consumer, emit_all(batch), schema=schema)
    assert got.schema.equals(schema, check_metadata=True)
    assert_same(got, batch)


@pytest.mark.parametrize("data_type", UNSUPPORTED, ids=str)
def test_unsupported_types_name_column_and_type(environment, data_type):
    producer = environment()
    partition = producer.create_result_partition(1)
    schema = pa.schema([("fine", pa.int32()), ("odd one", data_type)])
    with pytest.raises(hg.errors.UnsupportedTypeError, match='"odd one"') as caught:
        hg.RecordWriter(partition, schema)
    # Rust's name of the type, in the first line with the column.
    name = str(data_type).split("<")[0].split("[")[0].replace("_", "").lower()
    first = str(caught.value).splitlines()[0].lower()
    assert "type" in first
    assert name not in {"list", "struct", "map"} or name in first


def test_unsupported_types_are_refused_by_gates_and_readers(environment):
    producer, consumer = environment(), environment()
    partition = producer.create_result_partition(1)
    schema = pa.schema([("odd", UNION)])
    with pytest.raises(hg.errors.UnsupportedTypeError, match="odd"):
        consumer.create_input_gate([partition.address(0)], schema=schema)
    with pytest.raises(hg.errors.UnsupportedTypeError, match="odd"):
        hg.RecordReader(consumer.create_input_gate(), schema=schema)


def test_batches_without_columns_keep_their_rows(link):
    empty = numbers(7).select([])
    assert (empty.num_rows, empty.num_columns) == (7, 0)
    producer, consumer = link()
    schema = pa.schema([])
    partition = producer.create_result_partition(2, schema=schema)
    gates = [consumer.create_input_gate([partition.address(i)]) for i in range(2)]
    with hg.RecordWriter(partition) as writer:
        for _ in range(3):
            writer.emit(empty)
    rows = [sum(batch.num_rows for batch in hg.RecordReader(gate)) for gate in gates]
    assert rows == [14, 7]
