"""Batches are cast to the declared schema: columns by name, types only without loss."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import SchemaMismatchError
from headgate.schema_cast import is_castable, is_lossless, same_on_the_wire
from headgate.spark.ddl_cast import DdlCast

PAIR = pa.schema([("id", pa.int64()), ("v", pa.int64())])

#: Types of returned columns, declared types, and their values.
NUMBERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
REALS = [pa.float32(), pa.float64()]
DECIMALS = [pa.decimal128(20, 0), pa.decimal128(10, 2), pa.decimal128(38, 3)]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)]
TIMES = [pa.timestamp(unit, tz) for unit in ("s", "ms", "us", "ns") for tz in (None, "UTC")]
SPANS = [pa.duration(unit) for unit in ("s", "ms", "us", "ns")]
OTHERS = [pa.bool_(), pa.date32(), pa.date64(), pa.null()]
ALL = [*NUMBERS, *REALS, *DECIMALS, *TEXTS, *BYTES, *TIMES, *SPANS, *OTHERS]
#: Types that a Spark schema can declare.
DECLARED = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), *REALS, *DECIMALS, pa.bool_(), pa.date32()),
    *(pa.string(), pa.binary(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("us")),
]


def values_of(kind):
    """Return a strategy of values of a type, small and at its limits."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    found = st.none()
    if pa.types.is_integer(kind):
        signed = str(kind)[0] != "u"
        bits = kind.bit_width - signed
        found = st.integers(-(2**bits) if signed else 0, 2**bits - 1)
    elif pa.types.is_floating(kind):
        found = st.floats(width=kind.bit_width, allow_nan=False)
    elif pa.types.is_decimal(kind):
        most = 10 ** (kind.precision - kind.scale) - 1
        found = st.decimals(-most, most, places=kind.scale)
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        found = st.integers(-(10**9), 10**9).map(lambda n: n * 1000 if kind.unit == "ns" else n)
    elif kind in TEXTS:
        found = st.text(max_size=20)
    elif kind in BYTES:
        found = st.binary(min_size=2, max_size=2)
    elif pa.types.is_date64(kind):
        found = st.integers(0, 10**4).map(lambda days: days * 86_400_000)
    elif kind != pa.null():
        found = st.booleans() if pa.types.is_boolean(kind) else st.dates()
    return found


def array_of(kind, values):
    if pa.types.is_temporal(kind) and not all(hasattr(v, "year") or v is None for v in values):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def one(array, name="c"):
    return pa.RecordBatch.from_arrays([array], names=[name])


def is_floats_of_whole(have, want):
    return pa.types.is_floating(have) and pa.types.is_integer(want)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_cast_is_pyarrows_safe_one_or_is_refused(data):
    have = data.draw(st.sampled_from(ALL))
    want = data.draw(st.sampled_from(DECLARED))
    array = array_of(have, data.draw(st.lists(st.none() | values_of(have), max_size=5)))
    cast = DdlCast(pa.schema([("c", want)]), "reduce")
    try:
        made = cast(one(array)).column(0)
    except SchemaMismatchError:
        if is_floats_of_whole(have, want):
            most = 2**24 if have == pa.float32() else 2**53
            bad = [
                v for v in array.to_pylist() if v is not None and not (v % 1 == 0 and abs(v) < most)
            ]
            limit = 2 ** (want.bit_width - 1)
            assert bad or any(not -limit <= (v or 0) < limit for v in array.to_pylist())
        elif is_lossless(have, want):
            with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
                array.cast(want)
        return
    made.validate(full=True)
    assert is_castable(have, want)
    assert made.equals(array.cast(want, safe=True))
    assert made.null_count == array.null_count
    # The reverse cast loses nothing, apart from a dictionary's order and a float's digits.
    if not pa.types.is_dictionary(have) and not pa.types.is_null(have):
        assert made.cast(have, safe=False).equals(array)


@pytest.mark.parametrize("have", ALL, ids=str)
@pytest.mark.parametrize("want", DECLARED, ids=str)
def test_a_type_of_another_meaning_is_refused(have, want):
    groups = [NUMBERS + REALS + DECIMALS, TEXTS, BYTES, SPANS, [pa.date32(), pa.date64()]]
    groups += [[t for t in TIMES if (t.tz is None) == naive] for naive in (True, False)]
    together = any(have in group and want in group for group in groups)
    if not together and have not in {want, pa.null()}:
        assert not is_lossless(have, want)


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (pa.uint32(), pa.int64()),
        (pa.int32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float32(), pa.float64()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.large_list(pa.uint32()), pa.list_(pa.field("element", pa.int64()))),
        (pa.list_(pa.int32(), 2), pa.list_(pa.field("element", pa.int64()))),
        (pa.list_(pa.float32()), pa.list_(pa.float32(), 2)),
        (pa.large_list(pa.int32()), pa.list_(pa.int64(), 2)),
        (pa.list_view(pa.int32()), pa.list_(pa.field("element", pa.int64()))),
        (pa.large_list_view(pa.large_string()), pa.list_(pa.field("element", pa.string()))),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "Asia/Tokyo")),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())])),
        (pa.map_(pa.large_string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
        (pa.null(), pa.string()),
    ],
    ids=str,
)
def test_what_other_libraries_give(have, want):
    values = {
        "list": [[1, 2], None, [3, 4]],
        "large_list_view": [["a"], None, ["b", "c"], []],
        "struct": [{"a": 1}, None],
        "map": [[("x", 1)], None],
    }
    texts = "string" in str(have) and "list" not in str(have) and "map" not in str(have)
    plain = ["a", None] if texts else [None] if have == pa.null() else [1, None]
    kinds = (name for name in ("large_list_view", "list", "struct", "map") if name in str(have))
    given_values = values.get(next(kinds, ""), plain)
    array = (
        pa.array(given_values, have)
        if not pa.types.is_temporal(have)
        else pa.array([2000, None], pa.int64()).cast(have)
    )
    made = DdlCast(pa.schema([("c", want)]), "reduce")(one(array)).column(0)
    made.validate(full=True)
    assert made.type == want
    assert made.null_count == array.null_count
    if not pa.types.is_temporal(have):
        assert made.to_pylist() == given_values


def test_lists_that_do_not_have_the_size_of_all_are_refused():
    cast = DdlCast(pa.schema([("c", pa.list_(pa.float32(), 2))]), "reduce")
    with pytest.raises(SchemaMismatchError, match="expected size"):
        cast(one(pa.array([[1.0, 2.0], [3.0]], pa.list_(pa.float32()))))
    sizes = [pa.list_(pa.float32(), 3), pa.list_(pa.float64()), pa.list_view(pa.float32())]
    assert not any(is_lossless(kind, pa.list_(pa.float32(), 2)) for kind in sizes)


def test_a_dictionary_of_views_is_decoded():
    names = pa.array(["a", "b"], pa.string_view())
    array = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), names)
    made = DdlCast(pa.schema([("c", pa.string())]), "reduce")(one(array))
    assert made.to_pydict() == {"c": ["b", None, "a"]}


def test_columns_go_by_name():
    swapped = pa.RecordBatch.from_pydict({"v": [1, 2], "id": [3, 4]})
    cast = DdlCast(PAIR, "reduce")
    assert cast(swapped).to_pydict() == {"id": [3, 4], "v": [1, 2]}
    assert cast(swapped).schema == PAIR


def test_a_batch_of_the_schema_is_returned_as_it_is():
    batch = pa.RecordBatch.from_pydict({"id": [1], "v": [2]})
    cast = DdlCast(PAIR, "reduce")
    assert cast(batch) is batch
    assert cast(batch) is batch


def test_only_the_columns_that_need_it_are_copied():
    wide = pa.array([1, 2])
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.uint32()), wide], ["v", "id"])
    made = DdlCast(PAIR, "reduce")(batch)
    assert made.column("id").buffers()[1].address == wide.buffers()[1].address


def test_the_types_are_compared_once_for_all_batches_of_a_schema(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "headgate.schema_cast.is_lossless", lambda *pair: asked.append(pair) or True
    )
    cast = DdlCast(PAIR, "reduce")
    for number in range(5):
        cast(pa.RecordBatch.from_arrays([pa.array([number], pa.int32())] * 2, ["v", "id"]))
    assert len(asked) == 2
    cast(pa.RecordBatch.from_arrays([pa.array([number], pa.int16())] * 2, ["v", "id"]))
    assert len(asked) == 4


def refused(batch, schema=PAIR, **more):
    with pytest.raises(SchemaMismatchError) as caught:
        DdlCast(schema, "reduce", **more)(batch)
    return caught.value


def test_a_missing_column_is_refused_with_the_schema_that_fits():
    error = refused(
        pa.RecordBatch.from_pydict({"id": [1], "user name": ["a"]}), option="map_schema"
    )
    assert error.summary == "reduce returned no column 'v' and an unexpected column 'user name'"
    assert error.remedy == 'map_schema="id bigint, `user name` string"'


@pytest.mark.parametrize(
    ("have", "want", "how"),
    [
        (pa.float64(), pa.float32(), "df['c'].astype(\"float32\")"),
        (pa.float64(), pa.decimal128(9, 2), "Decimal(str(round(value, 2)))"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "pc.assume_timezone(column, zone)"),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), "pc.local_timestamp(column)"),
        (pa.string(), pa.decimal128(9, 2), "column.cast(pa.decimal128(9, 2))"),
        (pa.int8(), pa.bool_(), "column.cast(pa.bool_())"),
    ],
    ids=str,
)
def test_the_error_says_what_to_write_in_the_function(have, want, how):
    error = refused(one(pa.nulls(1, have)), pa.schema([("c", want)]))
    assert how in error.remedy.split(" · schema=")[0]


@pytest.mark.parametrize("kind", REALS, ids=str)
def test_whole_floats_are_taken_back_as_whole_numbers(kind):
    most = 2**24 - 1 if kind == pa.float32() else 2**53 - 1
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1.0, None, -0.0], kind), pa.array([most, -most, 0], kind)], ["id", "v"]
    )
    assert DdlCast(PAIR, "reduce")(batch).to_pydict() == {
        "id": [1, None, 0],
        "v": [most, -most, 0],
    }


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf"), 2.0**53, -(2.0**53), 1e300])
def test_other_floats_are_no_whole_numbers_and_no_double_is_recommended(value):
    error = refused(pa.RecordBatch.from_pydict({"id": [value, None], "v": [1, 2]}))
    assert error.summary == "reduce returned a value in column 'id' that int64 cannot hold"
    assert "double" not in error.remedy
    missing = refused(pa.RecordBatch.from_pydict({"id": [1.0], "x": [1.0]}))
    assert missing.remedy == 'schema="id bigint, x double"'


def test_a_value_that_does_not_fit_is_refused():
    schema = pa.schema([("t", pa.timestamp("us"))])
    error = refused(one(pa.array([1], pa.timestamp("ns")), "t"), schema)
    assert error.summary == "reduce returned a value in column 't' that timestamp[us] cannot hold"
    assert "would lose data: 1" in error.have
    small = pa.schema([("n", pa.int8())])
    assert "n: int16" in refused(one(pa.array([300], pa.int16()), "n"), small).have


def test_columns_of_one_name_keep_their_places():
    twice = pa.schema([("a", pa.int64()), ("a", pa.string())])
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int32()), pa.array(["x"])], ["a", "a"])
    assert DdlCast(twice, "reduce")(batch).schema == twice
    fewer = pa.RecordBatch.from_arrays([pa.array([1])], ["a"])
    assert refused(fewer, twice).summary == "reduce returned 1 columns where 2 are declared"


NOT_NULL = [
    (pa.field("c", pa.int64(), nullable=False), [1, None]),
    (pa.field("c", pa.list_(pa.field("element", pa.int64(), nullable=False))), [[1], None, [None]]),
    (pa.field("c", pa.struct([pa.field("a", pa.int64(), nullable=False)])), [None, {"a": None}]),
    (pa.field("c", pa.map_(pa.string(), pa.field("value", pa.int64(), False))), [[("k", None)]]),
]


@pytest.mark.parametrize(("field", "values"), NOT_NULL, ids=["value", "list", "struct", "map"])
def test_a_null_where_none_may_be_is_refused_at_any_depth(field, values):
    kinds = {
        "list": pa.list_(pa.int64()),
        "struct": pa.struct([("a", pa.int64())]),
        "map": pa.map_(pa.string(), pa.int64()),
    }
    kind = kinds.get(str(field.type).partition("<")[0], pa.int64())
    schema = pa.schema([field])
    error = refused(one(pa.array(values, kind)), schema)
    # Arrow's cast refuses a null in a struct first, with another text.
    assert "null" in error.summary + error.have
    assert DdlCast(schema, "reduce")(one(pa.array([], kind))).num_rows == 0


def test_what_hides_below_a_null_is_no_null():
    field = pa.field("c", pa.struct([pa.field("a", pa.int64(), nullable=False)]))
    batch = one(pa.array([None, {"a": 1}], pa.struct([("a", pa.int64())])))
    # Arrow refuses to cast a child with nulls, so only a batch of the declared type gets here.
    declared = pa.StructArray.from_arrays(
        [batch.column(0).field(0)], fields=list(field.type), mask=pa.array([True, False])
    )
    DdlCast(pa.schema([field]), "reduce")(one(declared))


def test_encodings_that_the_writer_takes_are_left_to_it():
    schema = pa.schema([("s", pa.string()), ("n", pa.int64())])
    cast = DdlCast(schema, "map", accepts=same_on_the_wire)
    for array in (pa.array(["a"]).dictionary_encode(), pa.array(["a"], pa.large_string())):
        batch = pa.RecordBatch.from_arrays([array, pa.array([1])], ["s", "n"])
        assert cast(batch) is batch
        swapped = pa.RecordBatch.from_arrays([pa.array([1], pa.uint8()), array], ["n", "s"])
        assert cast(swapped).schema.types == [array.type, pa.int64()]


def test_tables_and_frames_of_other_libraries_are_taken():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {"v": [1, 2], "id": [3, 4]}, schema={"v": polars.UInt32, "id": polars.Int8}
    )
    table = pa.table({"v": [5], "id": [6]})
    made = list(DdlCast(PAIR, "reduce").all([frame, table]))
    assert pa.Table.from_batches(made).to_pydict() == {"id": [3, 4, 6], "v": [1, 2, 5]}
    with pytest.raises(SchemaMismatchError, match="returned a dict, not a record batch"):
        list(DdlCast(PAIR, "reduce").all([{"id": 1}]))


def test_decimals_keep_their_digits():
    schema = pa.schema([("d", pa.decimal128(10, 2))])
    array = pa.array([Decimal("1.5")], pa.decimal128(5, 1))
    assert DdlCast(schema, "reduce")(one(array, "d")).to_pydict() == {"d": [Decimal("1.50")]}
    assert "data loss" in refused(one(pa.array([Decimal("1.555")]), "d"), schema).have
