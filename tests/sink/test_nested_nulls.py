"""Nulls below null structs, where a field takes no null: taken, as Delta and Spark do; others are refused."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import SchemaMismatchError
from headgate.sink import CommitterContext, WriterContext
from headgate.sink.delta import DeltaSink
from headgate.sink.file_writer import SinkCast

STRICT = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
LOOSE = pa.struct([("a", pa.int64()), ("b", pa.string())])
DEEP = pa.struct([pa.field("q", STRICT, nullable=False), pa.field("r", pa.list_(STRICT))])


def hidden(fields=LOOSE):
    """Return structs of which the second is null, and has a null in its field too."""
    parts = [pa.array([1, None, 2]), pa.array(["x", None, None])]
    return pa.StructArray.from_arrays(
        parts, fields=list(fields), mask=pa.array([False, True, False])
    )


OFFSETS = pa.array([0, 2, None, 3], pa.int32())
CASES = {
    "struct": (STRICT, hidden()),
    "struct of the type": (STRICT, hidden(STRICT)),
    "slice": (STRICT, hidden().slice(1)),
    "struct in struct": (
        pa.struct([pa.field("q", STRICT, nullable=False)]),
        pa.StructArray.from_arrays([hidden()], names=["q"], mask=pa.array([False, True, False])),
    ),
    "list": (pa.list_(STRICT), pa.ListArray.from_arrays(OFFSETS, hidden())),
    "map": (
        pa.map_(pa.string(), STRICT),
        pa.MapArray.from_arrays(OFFSETS, pa.array(["k", "l", "m"]), hidden()),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_delta_table_takes_null_structs(tmp_path, name):
    delta_type, column = CASES[name]
    sink = DeltaSink(str(tmp_path / "table"), schema=pa.schema([("column", delta_type)]))
    committer = sink.create_committer(CommitterContext("job"))
    committer.start(None)
    writer = sink.create_writer(WriterContext("job", 0, 1, "attempt"))
    writer.write(pa.record_batch({"column": column}))
    committer.commit(1, [writer.prepare_commit(1)])
    assert sink.table().to_pyarrow_table()["column"].to_pylist() == column.to_pylist()


def test_a_null_in_a_struct_that_is_there_is_refused():
    batch = pa.record_batch({"column": pa.array([{"a": None, "b": "x"}], LOOSE)})
    with pytest.raises(SchemaMismatchError, match="in column 'column'"):
        SinkCast(pa.schema([("column", STRICT)]))(batch)


def structs(of):
    return st.one_of(st.none(), of)


strict = st.fixed_dictionaries(
    {"a": st.integers(-9, 9), "b": st.one_of(st.none(), st.sampled_from("xy"))}
)
deep = st.fixed_dictionaries(
    {"q": strict, "r": st.one_of(st.none(), st.lists(structs(strict), max_size=3))}
)


def loosened(data_type):
    """Return a type whose fields all take nulls."""
    if pa.types.is_struct(data_type):
        return pa.struct([(field.name, loosened(field.type)) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(loosened(data_type.value_type))
    return data_type


def with_nulls_below(values):
    """Return structs with nulls in all fields of those that are null: as a gather leaves them."""
    array = pa.array(values, loosened(DEEP))
    mask = array.is_null()
    return pa.StructArray.from_arrays(array.flatten(), fields=list(array.type), mask=mask)


@settings(max_examples=150, deadline=None)
@given(st.lists(structs(deep), max_size=8), st.integers(0, 3))
def test_values_stay_as_they_are(values, cut):
    batch = pa.record_batch({"column": with_nulls_below(values).slice(cut)})
    found = SinkCast(pa.schema([("column", DEEP)]))(batch)
    assert found["column"].to_pylist() == values[cut:]
    found.validate(full=True)
