"""Timers against a set of pairs, with snapshots between."""

from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs
from tests.kit import keys as k

from headgate.errors import StateError
from headgate.stream import (
    KeyedStateBackend,
    ProcessFunction,
    SnapshotFolder,
    ValueStateDescriptor,
)
from headgate.stream.graph.operator import OperatorContext
from headgate.stream.operators.process import ProcessOperator
from headgate.stream.state.backend import wall_clock


def fired(batch):
    *keys, times = batch.columns
    assert times.to_pylist() == sorted(times.to_pylist())
    return sorted(zip(map(k.frozen, k.rows_of(keys)), times.to_pylist(), strict=True))


def due(model, until):
    return sorted((key, time) for key, time in model if time <= until)


@settings(max_examples=40, deadline=None)
@given(k.many_keys, st.data())
def test_timers_are_a_set_of_keys_and_timestamps(given, data):
    kind, batches = given
    backend = KeyedStateBackend(k.SCHEMAS[kind])
    store = SnapshotFolder("task", fs._MockFileSystem())
    models = {"event": set(), "processing": set()}
    for number, keys in enumerate(batches):
        name = data.draw(st.sampled_from(sorted(models)))
        model = models[name]
        timers = backend.event_timers if name == "event" else backend.processing_timers
        # As if all slots were taken.
        timers.space.sweep()
        backend.set_keys(k.batch(kind, keys))
        times = data.draw(st.lists(st.integers(-2, 9), min_size=len(keys), max_size=len(keys)))
        pairs = list(zip(map(k.frozen, keys), times, strict=True))
        step = data.draw(
            st.sampled_from(["register", "register", "delete", "advance", "snapshot", "restore"])
        )
        if step == "register":
            timers.register(pa.array(times, pa.int64()))
            model.update(pairs)
        elif step == "delete":
            timers.delete(pa.array(times, pa.int64()))
            model.difference_update(pairs)
        elif step == "advance":
            until = data.draw(st.integers(-3, 10))
            assert fired(timers.advance(until)) == due(model, until)
            models[name] = {(key, time) for key, time in model if time > until}
        else:
            backend.snapshot(number).write(store)
            backend.complete(number)
            if step == "restore":
                backend = KeyedStateBackend.restore([(store, number)])
    assert fired(backend.event_timers.advance(100)) == due(models["event"], 100)
    assert fired(backend.processing_timers.advance(100)) == due(models["processing"], 100)
    assert fired(backend.event_timers.advance(100)) == []


def test_fired_keys_are_the_keys_of_state():
    backend = KeyedStateBackend(k.SCHEMAS["several"])
    state = backend.get_state(ValueStateDescriptor("v", pa.int64()))
    backend.set_keys(k.batch("several", [(1, "a", None), (None, None, None)]))
    state.put([10, 20])
    backend.event_timers.register([7, 5])
    found = backend.event_timers.advance(7)
    assert found.schema.names == ["id", "name", "at", "timestamp"]
    backend.set_keys(found.select(["id", "name", "at"]))
    assert state.get().to_pylist() == [20, 10]


def test_deleted_timers_leave_the_queue():
    backend = KeyedStateBackend(k.SCHEMAS["long"])
    timers = backend.event_timers
    for start in range(0, 100_000, 1000):
        keys = pa.array(range(start, start + 1000), pa.int64())
        backend.set_keys([keys])
        timers.register(keys)
        timers.delete(keys)
    assert len(timers._queue) <= 8192
    assert timers.space.capacity <= 8192
    assert timers.advance(1 << 40).num_rows == 0


def test_timestamps_are_checked():
    backend = KeyedStateBackend(k.SCHEMAS["long"])
    backend.set_keys([pa.array([1, 2])])
    with pytest.raises(StateError, match="1 values"):
        backend.event_timers.register([1])
    with pytest.raises(StateError, match="null"):
        backend.event_timers.register([1, None])
    backend.get_state(ValueStateDescriptor("processing timers", pa.int64()))
    with pytest.raises(StateError, match="name of timers"):
        _ = backend.processing_timers


def test_timers_in_parts():
    backend = KeyedStateBackend(k.SCHEMAS["long"])
    timers = backend.event_timers
    backend.set_keys([pa.array(range(10))])
    timers.register(pa.array(range(10)))
    parts = timers.advance_in_parts(7, 3)
    assert next(parts)["timestamp"].to_pylist() == [0, 1, 2]
    # As the call for the first part may do: it deletes one, registers one again, and adds one.
    backend.set_keys([pa.array([3, 4, 11])])
    timers.delete(pa.array([3, 4, 11]))
    backend.set_keys([pa.array([4, 11])])
    timers.register(pa.array([4, 5]))
    assert [part["timestamp"].to_pylist() for part in parts] == [[4, 5], [6, 7]]
    assert timers.advance(7).to_pydict() == {"id": [11], "timestamp": [5]}
    assert [part.num_rows for part in timers.advance_in_parts(7, 3)] == [0]
    assert timers.advance(9)["timestamp"].to_pylist() == [8, 9]


def test_a_function_gets_many_timers_in_parts():
    class Counts(ProcessFunction):
        def process(self, rows, context):
            context.event_timers.register(rows["id"])
            return []

        def on_event_timers(self, timers, context):
            assert context.keys.num_rows == timers.num_rows
            return timers.select(["id"])

    found = []
    schema = k.SCHEMAS["long"]
    operator = ProcessOperator(Counts(), schema, schema, {})
    operator.open(
        OperatorContext(
            "uid", 0, 1, 128, lambda b, _: found.append(b), "job", "a", wall_clock, False
        )
    )
    operator.process(pa.record_batch([pa.array(range(25))], schema=schema))
    with patch("headgate.stream.operators.process._MOST_TIMERS", 10):
        operator.advance_watermark(100)
    assert [batch.num_rows for batch in found] == [10, 10, 5]
    assert [key for batch in found for key in batch["id"].to_pylist()] == list(range(25))
