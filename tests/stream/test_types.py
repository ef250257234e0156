"""Every type of Arrow is taken, or refused with HG-4002 at the call: as key, value, map key, sum, least and greatest."""

import datetime as dt
import decimal
import uuid

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs
from tests.kit.windows import WINDOWS, operator

from headgate.errors import UnsupportedTypeError
from headgate.source import NumberSequenceSource
from headgate.stream import (
    Aggregate,
    CoProcessFunction,
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    SnapshotFolder,
    ValueStateDescriptor,
    stream,
)

D = decimal.Decimal
DAY = dt.date(2026, 1, 2)
NOON = dt.datetime.fromisoformat("2026-01-02T12:00:00")
INT = pa.int64()
#: Each type with two values.
TYPES = [
    (pa.bool_(), [True, False]),
    *(
        (getattr(pa, f"{sign}int{bits}")(), [1, 2])
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    ),
    (pa.float16(), [np.float16(1), np.float16(2)]),
    (pa.float32(), [1.0, 2.0]),
    (pa.float64(), [1.0, 2.0]),
    *((of, ["a", "b"]) for of in (pa.string(), pa.large_string(), pa.string_view())),
    *(
        (of, [b"abc", b"abd"])
        for of in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3))
    ),
    *((of, [DAY, DAY + dt.timedelta(1)]) for of in (pa.date32(), pa.date64())),
    *(
        (of, [dt.time(1), dt.time(2)])
        for of in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    ),
    *(
        (pa.timestamp(unit, zone), [NOON, NOON + dt.timedelta(1)])
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "Asia/Kathmandu")
    ),
    *((pa.duration(unit), [dt.timedelta(1), dt.timedelta(2)]) for unit in ("s", "ms", "us", "ns")),
    (pa.month_day_nano_interval(), [(1, 2, 3), (2, 2, 3)]),
    (pa.decimal32(5, 2), [D("1.00"), D("2.00")]),
    (pa.decimal64(12, 2), [D("1.00"), D("2.00")]),
    (pa.decimal128(38, 2), [D("1.00"), D("2.00")]),
    (pa.decimal256(76, 2), [D("1.00"), D("2.00")]),
    *(
        (of, [[1, 2], [3, None]])
        for of in (
            pa.list_(INT),
            pa.large_list(INT),
            pa.list_view(INT),
            pa.large_list_view(INT),
            pa.list_(INT, 2),
        )
    ),
    (pa.list_view(pa.float64()), [[1.0], [2.0]]),
    (pa.list_(pa.string_view()), [["a"], ["b"]]),
    (pa.map_(pa.string(), INT), [[("a", 1)], [("b", 2)]]),
    (pa.struct([("a", INT)]), [{"a": 1}, {"a": 2}]),
    (pa.struct([pa.field("a", INT, nullable=False)]), [{"a": 1}, {"a": 2}]),
    (pa.struct([]), [{}, {}]),
    (pa.struct([("a", pa.string_view())]), [{"a": "a"}, {"a": "b"}]),
    (pa.struct([("a", pa.dictionary(pa.int32(), pa.string()))]), [{"a": "a"}, {"a": "b"}]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b"]),
    (pa.dictionary(pa.int8(), pa.float64()), [1.0, 2.0]),
    (pa.run_end_encoded(pa.int32(), pa.string()), ["a", "b"]),
    (pa.uuid(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes]),
    (pa.null(), [None, None]),
]
IDS = [str(of) for of, _ in TYPES]


def array_of(of, values):
    if pa.types.is_run_end_encoded(of):
        return pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(values))
    return pa.array(values, of)


def taken_or_refused(call):
    """Return what a call returns, or None if it raises HG-4002."""
    try:
        return call()
    except UnsupportedTypeError:
        return None


def restored(backend):
    store = SnapshotFolder("task", fs._MockFileSystem())
    number = backend._last_number + 1
    backend.snapshot(number).write(store)
    return KeyedStateBackend.restore([(store, number)])


@pytest.mark.parametrize(("of", "values"), TYPES, ids=IDS)
def test_a_key_of_any_type(of, values):
    schema = pa.schema([("k", of)])
    backend = taken_or_refused(lambda: KeyedStateBackend(schema))
    keyed = stream(NumberSequenceSource(0, 9)).map(lambda batch: batch, schema=schema)
    if backend is None:
        with pytest.raises(UnsupportedTypeError, match="key column 'k'"):
            keyed.key_by("k")
        return
    assert keyed.key_by("k").keys == ("k",)
    array = array_of(of, [*values, None, *values])
    count = backend.get_state(ReducingStateDescriptor("n", "count", INT))
    backend.set_keys([array])
    count.add([1] * 5)
    expected = [*dict.fromkeys(map(repr, array.to_pylist()))]
    assert list(map(repr, backend.keys["k"].to_pylist())) == expected
    table = restored(backend).states["n"].table()
    assert table.schema.field("k").type == of
    assert sorted(map(repr, table["k"].to_pylist())) == sorted(expected)
    assert sum(table["value"].to_pylist()) == 5


@pytest.mark.parametrize(("of", "values"), TYPES, ids=IDS)
@pytest.mark.parametrize("kind", [ValueStateDescriptor, ListStateDescriptor, MapStateDescriptor])
def test_a_value_of_any_type(kind, of, values):
    extra = [INT] if kind is MapStateDescriptor else []
    descriptor = taken_or_refused(lambda: kind("v", *extra, of))
    if descriptor is None:
        return
    backend = KeyedStateBackend(pa.schema([("id", INT)]))
    state = backend.get_state(descriptor)
    array = array_of(of, values)
    for _ in range(2):
        backend.set_keys([pa.array([1, 2])])
        if kind is MapStateDescriptor:
            state.put([7, 7], array)
            assert state.get([7, 7]).to_pylist() == array.to_pylist()
        elif kind is ListStateDescriptor:
            state.clear()
            state.add(array)
            assert state.get().to_pylist() == [[one] for one in array.to_pylist()]
        else:
            state.put(array)
            assert state.get().to_pylist() == array.to_pylist()
        backend = restored(backend)
        state = backend.get_state(descriptor)


@pytest.mark.parametrize(("of", "values"), TYPES, ids=IDS)
def test_a_map_key_of_any_type(of, values):
    backend = KeyedStateBackend(pa.schema([("id", INT)]))
    state = taken_or_refused(lambda: backend.get_state(MapStateDescriptor("v", of, INT)))
    if state is None or of == pa.null():
        return
    array = array_of(of, values)
    backend.set_keys([pa.array([1, 2])])
    state.put(array, [1, 2])
    backend = restored(backend)
    backend.set_keys([pa.array([1, 2])])
    state = backend.get_state(MapStateDescriptor("v", of, INT))
    assert state.get(array).to_pylist() == [1, 2]
    assert [[key for key, _ in one] for one in state.items().to_pylist()] == [
        [one] for one in array.to_pylist()
    ]


@pytest.mark.parametrize(("of", "values"), TYPES, ids=IDS)
@pytest.mark.parametrize("reduce", ["sum", "min", "max", "count"])
def test_a_reduction_of_any_type(reduce, of, values):
    array = array_of(of, values)
    kept = INT if reduce == "count" else of
    is_null = of == pa.null()
    descriptor = taken_or_refused(lambda: ReducingStateDescriptor("v", reduce, kept))
    schema = pa.schema([("user", pa.string()), ("at", INT), ("price", of)])
    aggregates = [Aggregate(reduce, "price")]
    for name in ("tumbling", "session"):
        window = taken_or_refused(
            lambda name=name: operator(WINDOWS[name], schema, aggregates=aggregates)
        )
        if window is None:
            continue
        columns = [pa.array(["a", "b"]), pa.array([1, 1]), array]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        window.process(pa.concat_batches([batch, batch]))
        window.process(batch)
        result = window.advance_watermark(100).results[aggregates[0].result]
        if reduce == "count":
            assert result.to_pylist() == [0 if is_null else 3] * 2
        elif reduce != "sum":
            assert result.to_pylist() == array.to_pylist()
        else:
            assert result.to_pylist() == [3 * one for one in array.to_pylist()]
    if descriptor is not None:
        backend = KeyedStateBackend(pa.schema([("id", INT)]))
        state = backend.get_state(descriptor)
        backend.set_keys([pa.array([1, 2])])
        state.add(array)
        state.add(array)
        assert state.get().type == kept
        assert state.get().null_count == (2 if is_null else 0)


class Both(CoProcessFunction):
    def process_first(self, batch, context):
        return batch

    process_second = process_first


@pytest.mark.parametrize("of", [pa.string_view(), pa.binary_view()], ids=str)
def test_streams_refuse_what_would_fail_while_they_run(of):
    schema = pa.schema([("k", INT), ("at", pa.timestamp("ms")), ("text", of)])
    rows = stream(NumberSequenceSource(0, 9)).map(lambda batch: batch, schema=schema)
    with pytest.raises(UnsupportedTypeError, match="column 'text'"):
        rows.filter(lambda batch: batch["k"])
    with pytest.raises(UnsupportedTypeError, match="column 'text'"):
        rows.key_by("k").window(WINDOWS["tumbling"], time="at", aggregates=[Aggregate("count")])
    with pytest.raises(UnsupportedTypeError, match="column 'text'"):
        rows.key_by("k").connect(rows.key_by("k")).process(Both, schema=schema)


@pytest.mark.parametrize("of", [pa.string(), pa.float64(), INT], ids=str)
def test_a_window_needs_a_column_of_times(of):
    schema = pa.schema([("user", pa.string()), ("at", of)])
    made = taken_or_refused(
        lambda: operator(WINDOWS["session"], schema, aggregates=[Aggregate("count")])
    )
    assert (made is None) == (of != INT)
