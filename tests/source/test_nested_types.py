"""Types with other types inside are rebuilt with other fields, in files with timestamps of 96 bits too."""

import datetime as dt
import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
import pytest

from headgate._nested import with_inner
from headgate.source import FileSource
from headgate.source.local import read

LOCAL, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
TIME = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)

#: A type around another one -> the value around another one.
AROUND = {
    "list": (pa.list_, lambda value: [value, None]),
    "large list": (pa.large_list, lambda value: [value]),
    "fixed list": (lambda kind: pa.list_(kind, 2), lambda value: [value, value]),
    "struct": (
        lambda kind: pa.struct([("n", pa.int8()), pa.field("it", kind)]),
        lambda value: {"n": 1, "it": value},
    ),
    "map": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("key", value)]),
}
OTHERS = {
    "sorted map": lambda kind: pa.map_(kind, kind, keys_sorted=True),
    "named": lambda kind: pa.list_(pa.field("e", kind, nullable=False, metadata={"a": "b"})),
    "sparse union": lambda kind: pa.sparse_union([pa.field("a", kind), pa.field("b", pa.int8())]),
    "dense union": lambda kind: pa.dense_union([pa.field("a", kind)], type_codes=[7]),
    "empty struct": lambda _: pa.struct([]),
    "list view": pa.list_view,
    "large list view": pa.large_list_view,
}
LEAVES = [
    pa.dictionary(pa.int8(), pa.list_(LOCAL)),
    pa.run_end_encoded(pa.int32(), LOCAL),
    pa.uuid(),
    pa.null(),
    pa.string_view(),
    pa.decimal128(3, 1),
]


def instants(kind):
    """Replace times without a zone, at any depth."""
    if kind.equals(LOCAL):
        return INSTANT
    return with_inner(kind, lambda field: field.with_type(instants(field.type)))


def all_types():
    makers = {**{name: make for name, (make, _) in AROUND.items()}, **OTHERS}
    for (outer, around), (inner, inside) in itertools.product(makers.items(), repeat=2):
        yield pytest.param(lambda leaf, a=around, i=inside: a(i(leaf)), id=f"{outer} of {inner}")


@pytest.mark.parametrize("make", list(all_types()))
def test_all_nested_types_are_rebuilt(make):
    assert instants(make(LOCAL)).equals(make(INSTANT), check_metadata=True)
    assert instants(make(pa.int8())).equals(make(pa.int8()), check_metadata=True)


@pytest.mark.parametrize("kind", LEAVES, ids=str)
def test_types_without_inner_fields_stay(kind):
    assert with_inner(kind, lambda field: field.with_type(pa.int8())) is kind


def test_no_nested_type_of_pyarrow_is_missing():
    tested = {make(LOCAL).id for make in OTHERS.values()}
    tested |= {make(LOCAL).id for make, _ in AROUND.values()} | {kind.id for kind in LEAVES}
    nested = {getattr(pt.lib, f"Type_{name}") for name in names_of_nested()}
    assert len(nested) >= 9
    assert nested <= tested


def names_of_nested():
    return [
        name.removeprefix("Type_")
        for name in vars(pt.lib)
        if name.startswith("Type_")
        and any(word in name for word in ("LIST", "STRUCT", "MAP", "UNION", "DICT", "RUN_END"))
    ]


class Pair(pa.ExtensionType):
    """A type that has two columns of a Parquet file."""

    def __init__(self):
        super().__init__(pa.struct([("a", pa.int8()), ("b", pa.string())]), "tests.pair")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


@pytest.mark.parametrize("has_schema", [True, False])
@pytest.mark.parametrize(("outer", "inner"), list(itertools.product(AROUND, repeat=2)))
def test_times_of_96_bits_at_any_depth(tmp_path, outer, inner, has_schema):
    (a, value_of), (b, inside) = AROUND[outer], AROUND[inner]
    values = [value_of(inside(TIME)), None]
    table = pa.table(
        {
            "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "nested": pa.array(values, a(b(INSTANT))),
            "at": pa.array([TIME, None], INSTANT),
        }
    )
    pq.write_table(
        table,
        tmp_path / "a.parquet",
        use_deprecated_int96_timestamps=True,
        store_schema=has_schema,
    )
    rows = pa.Table.from_batches(read(FileSource(tmp_path)))
    assert rows.to_pylist() == table.to_pylist()
    assert rows.schema.field("at").type == INSTANT


def test_an_extension_type_with_several_columns_before_times_of_96_bits(tmp_path):
    storage = pa.array([{"a": 1, "b": "x"}], Pair().storage_type)
    pa.register_extension_type(Pair())
    try:
        table = pa.table(
            {
                "pair": pa.ExtensionArray.from_storage(Pair(), storage),
                "n": pa.array([3]),
                "at": pa.array([TIME], INSTANT),
            }
        )
        pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
        source = FileSource(tmp_path)
        assert source.schema.types == [Pair(), pa.int64(), INSTANT]
        assert pa.Table.from_batches(read(source)).to_pylist() == table.to_pylist()
    finally:
        pa.unregister_extension_type("tests.pair")
