"""The key groups of any columns: savepoints hold them, so they never change."""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate import _native
from headgate.key_groups import MAX_KEY_GROUPS, key_groups
from headgate.selectors import KeyedStateSelector
from headgate.stream import key_groups_of

DAYS = pa.array([20_455, 0, None], pa.int32())
#: A key column and the groups of its keys, of 32768.
GROUPS = {
    "bool": (pa.array([True, False, None]), [11725, 32003, 32003]),
    "int8": (pa.array([-7, 0, None], pa.int8()), [15777, 31198, 31198]),
    "int16": (pa.array([-7, 0, None], pa.int16()), [15777, 31198, 31198]),
    "int32": (pa.array([-7, 1, None], pa.int32()), [15777, 16342, 31198]),
    "int64": (pa.array([-7, 2**40, None]), [19602, 32054, 31198]),
    "float": (pa.array([0.5, math.nan, None], pa.float32()), [14082, 19795, 31198]),
    "double": (pa.array([0.5, -0.0, None]), [9100, 31198, 31198]),
    "string": (pa.array(["flink", "\U0001d11e", None]), [16610, 10059, 31198]),
    "large string": (pa.array(["flink", "", None], pa.large_string()), [16610, 31198, 31198]),
    "string view": (pa.array(["flink", "", None], pa.string_view()), [7549, 19804, 42]),
    "dictionary": (pa.array(["flink", "", None]).dictionary_encode(), [7549, 19804, 42]),
    "binary": (pa.array([b"flink", b"", None]), [7549, 19804, 42]),
    "date": (DAYS.cast(pa.date32()), [12657, 11919, 42]),
    "timestamp": (
        DAYS.cast(pa.date32()).cast(pa.timestamp("us")),
        [21590, 14429, 42],
    ),
    "decimal": (
        pa.array([Decimal("1.50"), Decimal(0), None], pa.decimal128(10, 2)),
        [3342, 14429, 42],
    ),
    "list": (pa.array([[1, None], [], None], pa.list_(pa.int64())), [5277, 42, 42]),
    "struct": (
        pa.array(
            [{"a": -0.0, "b": "x"}, {"a": None, "b": None}, None],
            pa.struct([("a", pa.float64()), ("b", pa.string())]),
        ),
        [2809, 42, 42],
    ),
    "null": (pa.nulls(3), [42, 42, 42]),
}


@pytest.mark.parametrize("name", GROUPS)
def test_the_groups_of_a_column_are_those_of_old_savepoints(name):
    column, expected = GROUPS[name]
    assert key_groups_of(pa.record_batch([column], ["k"]), MAX_KEY_GROUPS).tolist() == expected
    behind = pa.concat_arrays([column.slice(1, 1), column]).slice(1)
    assert key_groups_of(pa.record_batch([behind], ["k"]), MAX_KEY_GROUPS).tolist() == expected


def test_the_groups_of_two_columns_are_those_of_old_savepoints_whatever_their_names():
    for names in (["a", "b"], ["k", "k"]):
        both = pa.record_batch([GROUPS["int64"][0], GROUPS["string"][0]], names)
        assert key_groups_of(both, MAX_KEY_GROUPS).tolist() == [477, 16056, 42]


def test_a_column_of_an_extension_type_has_the_groups_of_old_savepoints():
    class Money(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.int64(), "headgate.test.money")

        def __hash__(self):
            return hash(self.extension_name)

        def __arrow_ext_serialize__(self):
            return b""

    column = pa.ExtensionArray.from_storage(Money(), GROUPS["int64"][0])
    found = key_groups_of(pa.record_batch([column], ["k"]), MAX_KEY_GROUPS).tolist()
    assert found == [30816, 16953, 42]


def by_formula(keys, groups):
    """Return the key groups as numpy and the functions for one column and for Spark's hash compute them."""
    [column, *more] = keys.columns
    of = column.type
    has_code = any(
        is_one(of)
        for is_one in (pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_floating)
    )
    if not more and (has_code or of in (pa.string(), pa.large_string())):
        zero = "" if not has_code else False if pa.types.is_boolean(of) else 0
        found = key_groups(column.fill_null(zero) if column.null_count else column, groups)
    else:
        found = _native.hash_partition_ids(keys, keys.schema.names, groups)
    return found.to_numpy()


VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=5),
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=5),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
}


@settings(deadline=None)
@given(st.data(), st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=3), st.integers(2, 400))
def test_rows_go_to_the_task_that_owns_the_group_of_their_key(data, types, groups):
    rows = data.draw(st.integers(1, 20))
    tasks = data.draw(st.integers(1, min(groups, 7)))
    column = lambda of: data.draw(  # noqa: E731
        st.lists(st.none() | VALUES[of], min_size=rows, max_size=rows)
    )
    keys = [pa.array(column(of), of) for of in types]
    names = [f"k{at}" for at in range(len(keys))]
    batch = pa.record_batch([*keys, pa.array(range(rows))], [*names, "row"])
    owned = by_formula(batch.select(names), groups).astype(np.int64)
    assert key_groups_of(batch.select(names), groups).tolist() == owned.tolist()
    with hg.ShuffleEnvironment() as env:
        partition = env.create_result_partition(tasks, schema=batch.schema)
        gates = [env.create_input_gate([partition.address(task)]) for task in range(tasks)]
        with hg.RecordWriter(
            partition, selector=KeyedStateSelector(tuple(names), groups)
        ) as writer:
            writer.emit(batch)
        got = [hg.RecordReader(gate).read_all()["row"].to_pylist() for gate in gates]
    expected = owned * tasks // groups
    assert got == [np.flatnonzero(expected == task).tolist() for task in range(tasks)]
