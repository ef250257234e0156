"""Writes of state for some of the rows or keys of a batch, against the same writes one row at a time."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import SchemaMismatchError, StateError, UnsupportedTypeError
from headgate.stream import (
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

KEYS = pa.schema([("k", pa.string())])
SUM = ReducingStateDescriptor("sum", "sum", pa.int64())
COUNT = ReducingStateDescriptor("count", "count", pa.int64())
TEXT = ReducingStateDescriptor(
    "text", lambda a, b: pc.binary_join_element_wise(a, b, ""), pa.string()
)


ROW_WRITES = {
    "sum.add": ["numbers"],
    "count.add": ["texts"],
    "text.add": ["texts"],
    "list.add": ["numbers"],
    "map.put": ["texts", "numbers"],
    "map.remove": ["texts"],
    "timers.register": ["numbers"],
    "timers.delete": ["numbers"],
}
KEY_WRITES = {
    **{f"{state}.clear": [] for state in ("value", "sum", "text", "list", "map")},
    "value.put": ["numbers"],
    "list.put": ["lists"],
}
#: The forms in which booleans are taken.
FORMS = {
    "Arrow": lambda mask: pa.array(mask, pa.bool_()),
    "chunks": lambda mask: pa.chunked_array([pa.array(mask, pa.bool_())]),
    "numpy": lambda mask: np.array([bool(one) for one in mask], np.bool_),
    "list": list,
}


def arguments(name, numbers):
    """Return arrays for the parameters of a write, made of numbers."""
    made = {
        "numbers": pa.array(numbers, pa.int64()),
        "texts": pa.array([str(number % 3) for number in numbers], pa.string()),
        "lists": pa.array([[number] * (number % 3) for number in numbers], pa.list_(pa.int64())),
    }
    return [made[one] for one in (ROW_WRITES | KEY_WRITES)[name]]


class States:
    """A backend with a state of each kind."""

    def __init__(self):
        self.backend = KeyedStateBackend(KEYS)
        get = self.backend.get_state
        self.states = {
            "value": get(ValueStateDescriptor("value", pa.int64())),
            "sum": get(SUM),
            "count": get(COUNT),
            "text": get(TEXT),
            "list": get(ListStateDescriptor("list", pa.int64())),
            "map": get(MapStateDescriptor("map", pa.string(), pa.int64())),
            "timers": self.backend.event_timers,
        }

    def call(self, name, keys, arguments, **where):
        state, _, method = name.partition(".")
        self.backend.set_keys([pa.array(keys, pa.string())])
        getattr(self.states[state], method)(*arguments, **where)

    def all(self):
        tables = {name: state.table().sort_by("k") for name, state in self.states.items()}
        tables["map"] = tables["map"].sort_by([("k", "ascending"), ("map_key", "ascending")])
        tables["timers"] = tables["timers"].sort_by(
            [("k", "ascending"), ("timestamp", "ascending")]
        )
        return {name: table.to_pydict() for name, table in tables.items()}


def chosen_of(by, of, mask, rows, keys):
    """Return the positions among rows or keys that a mask by row or by key chooses."""
    keys_of_mask = rows if by == "row" else keys
    if by == of:
        return [at for at, one in enumerate(mask) if one]
    chosen = {key for key, one in zip(keys_of_mask, mask, strict=True) if one}
    return [at for at, key in enumerate(rows if of == "row" else keys) if key in chosen]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), max_size=6), st.data())
def test_a_write_with_where_is_the_write_of_a_batch_without_the_other_rows(batches, data):
    ours, model = States(), States()
    for rows in batches:
        keys = list(dict.fromkeys(rows))
        name = data.draw(st.sampled_from(sorted(ROW_WRITES | KEY_WRITES)))
        of = "row" if name in ROW_WRITES else "key"
        by = data.draw(st.sampled_from(["row", "key"]))
        count = len(rows) if by == "row" else len(keys)
        mask = data.draw(st.lists(st.none() | st.booleans(), min_size=count, max_size=count))
        form = FORMS[data.draw(st.sampled_from(sorted(FORMS)))]
        subjects = rows if of == "row" else keys
        numbers = [data.draw(st.integers(0, 5)) for _ in subjects]
        chosen = chosen_of(by, of, mask, rows, keys)
        values = arguments(name, numbers)
        if data.draw(st.booleans()):
            # Values of the others do not matter, also if they are null.
            holes = pa.array(
                [at if at in chosen else None for at in range(len(subjects))], pa.int64()
            )
            values = [value.take(holes) for value in values]
        ours.call(name, rows, values, where=form(mask))
        model.call(
            name, [subjects[at] for at in chosen], arguments(name, [numbers[at] for at in chosen])
        )
        assert ours.all() == model.all()


def test_only_the_values_that_are_chosen_have_to_fit_the_type():
    backend = KeyedStateBackend(KEYS)
    state = backend.get_state(ListStateDescriptor("l", pa.int8()))
    backend.set_keys([pa.array(["a", "b"])])
    state.add([1, 1000], where=[True, False])
    assert state.get().to_pylist() == [[1], []]
    with pytest.raises(SchemaMismatchError, match="int8"):
        state.add([1, 1000])


def test_a_wrong_length_is_said_with_what_is_needed():
    backend = KeyedStateBackend(KEYS)
    value = backend.get_state(ValueStateDescriptor("v", pa.int64()))
    items = backend.get_state(ListStateDescriptor("l", pa.int64()))
    entries = backend.get_state(MapStateDescriptor("m", pa.string(), pa.int64()))
    backend.set_keys([pa.array(["a", "b", "a"])])
    with pytest.raises(
        StateError, match="3 values were given where 2 are needed, one per distinct key"
    ) as per_key:
        value.put([1, 2, 3])
    assert per_key.value.have == "a batch of 3 rows with 2 distinct keys"
    assert "one per row" in per_key.value.remedy
    with pytest.raises(
        StateError, match="2 values were given where 3 are needed, one per row"
    ) as per_row:
        items.add([1, 2])
    assert "values.take(context.rows)" in per_row.value.remedy
    items.add(pa.array([5, 6]).take(backend.rows))
    assert items.get().to_pylist() == [[5, 5], [6]]
    for call in (
        lambda: entries.put(["x"], [1]),
        lambda: entries.get(["x"]),
        lambda: backend.event_timers.register([1]),
    ):
        with pytest.raises(StateError, match="1 values were given where 3 are needed, one per row"):
            call()
    with pytest.raises(StateError, match="where= has 4 booleans"):
        value.clear(where=[True] * 4)
    with pytest.raises(StateError, match="where= has values of type int64"):
        value.clear(where=[1, 0])
    with pytest.raises(SchemaMismatchError, match="no array"):
        value.put([1, "a"])
    with pytest.raises(SchemaMismatchError, match="no array"):
        value.clear(where=object())


def test_descriptors_are_checked_when_they_are_made():
    for make in (
        lambda of: ValueStateDescriptor("v", of),
        lambda of: ListStateDescriptor("v", of),
        lambda of: ReducingStateDescriptor("v", "max", of),
        lambda of: ReducingStateDescriptor("v", lambda a, b: a, of),
        lambda of: MapStateDescriptor("v", pa.string(), of),
        lambda of: MapStateDescriptor("v", of, pa.string()),
    ):
        for wrong in (int, "int64", None):
            with pytest.raises(StateError, match="is no Arrow type"):
                make(wrong)
        with pytest.raises(UnsupportedTypeError, match="string_view"):
            make(pa.string_view())
    for wrong in ("", None, 3):
        with pytest.raises(StateError, match="no name of a state"):
            ValueStateDescriptor(wrong, pa.int64())
    with pytest.raises(StateError, match="no StateTtlConfig"):
        ValueStateDescriptor("v", pa.int64(), ttl=3600)
