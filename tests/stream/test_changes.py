"""The change column: its codes and signs, upserts in the schema, and the last change of each key."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import _changes as changes
from headgate.errors import SchemaMismatchError

changed_rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]), st.integers(0, 2), st.sampled_from(changes.CHANGES)
    ),
    max_size=12,
)


def table_of(rows):
    user, shard, change = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "user": pa.array(user, pa.string()),
            "shard": pa.array(shard, pa.int64()),
            "at": pa.array(range(len(rows)), pa.int64()),
            changes.CHANGE_TYPE: pa.array(change, pa.string()),
        }
    )


@settings(max_examples=60, deadline=None)
@given(rows=changed_rows, keys=st.sampled_from([["user"], ["shard"], ["user", "shard"]]))
def test_the_last_change_of_each_key_wins(rows, keys):
    table = table_of(rows)
    there, gone = changes.last_changes(table, keys)
    last = {tuple(row[key] for key in keys): row for row in table.to_pylist()}
    wanted = sorted(last.values(), key=lambda row: row["at"])
    names = {changes.INSERT, changes.UPDATE_AFTER}
    assert there.to_pylist() == [
        {k: v for k, v in row.items() if k != changes.CHANGE_TYPE}
        for row in wanted
        if row[changes.CHANGE_TYPE] in names
    ]
    assert [row["at"] for row in gone.to_pylist()] == [
        row["at"] for row in wanted if row[changes.CHANGE_TYPE] not in names
    ]


def test_signs_and_codes_of_strings_and_dictionaries():
    values = ["insert", "update_before", "update_after", "delete"]
    for column in (pa.array(values), pa.array(values).dictionary_encode()):
        batch = pa.record_batch({changes.CHANGE_TYPE: column})
        assert changes.change_signs(batch).to_pylist() == [1, -1, 1, -1]
        codes = changes.change_codes(batch)
        assert changes.changes_of(codes).to_pylist() == values
    plain = pa.record_batch({"n": [1, 2]})
    assert not changes.is_changing(plain.schema)
    assert changes.change_signs(plain).to_pylist() == [1, 1]


@pytest.mark.parametrize("value", ["upsert", None, ""])
def test_a_value_that_is_no_change_is_refused(value):
    batch = pa.record_batch({changes.CHANGE_TYPE: pa.array(["insert", value], pa.string())})
    with pytest.raises(SchemaMismatchError, match="is no change"):
        changes.change_signs(batch)


def test_the_schema_names_the_keys_of_upserts():
    plain = pa.schema([("n", pa.int64())])
    assert changes.upsert_keys(plain) is None
    assert changes.upsert_keys(plain.append(changes.change_field())) is None
    for keys in [("user",), ("user", "shard"), ("a b", "c,d"), ()]:
        schema = plain.append(changes.change_field(keys))
        assert changes.upsert_keys(schema) == keys
        assert changes.without_changes(schema) == plain
