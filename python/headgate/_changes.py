"""The change column: rows that insert, update and delete, as operators emit them and sinks apply them. ADR 0054.

Names and values are those of Delta's change data feed. Without the column, all rows are inserts. An update is two rows in
this order: the row before, then the row after.

A stream whose updates lack the rows before is one of *upserts* by key: the field of its change column names the keys in its
metadata (:func:`upsert_keys`), since it cannot be counted, summed or filtered as others can. That of a stream with several
rows of a key names the key in the same way (:func:`shared_keys`), since no sink can tell these rows apart by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import SchemaMismatchError

CHANGE_TYPE: Final = "_change_type"
INSERT: Final = "insert"
UPDATE_BEFORE: Final = "update_before"
UPDATE_AFTER: Final = "update_after"
DELETE: Final = "delete"
#: By their codes: those from 2 on take a row away.
CHANGES: Final = (INSERT, UPDATE_AFTER, UPDATE_BEFORE, DELETE)

#: Metadata of the field: the names of the key columns, each followed by a zero byte; and of those that rows share.
_UPSERTS: Final = b"headgate.upserts"
_SHARED: Final = b"headgate.shared"
_FIRST_NEGATIVE: Final = CHANGES.index(UPDATE_BEFORE)
#: Name of a column of row numbers, which no column of a user has.
_ROW: Final = "\0row"


def change_field(
    upserts: Sequence[str] | None = None, shared: Sequence[str] | None = None
) -> pa.Field:
    """Return the field of the change column.

    Args:
        upserts: the key columns, if updates come without the rows before them.
        shared: key columns of which several rows have the same values.
    """
    metadata = {
        name: b"".join(key.encode() + b"\0" for key in keys)
        for name, keys in ((_UPSERTS, upserts), (_SHARED, shared))
        if keys is not None
    }
    return pa.field(CHANGE_TYPE, pa.string(), metadata=metadata or None)


def is_changing(schema: pa.Schema) -> bool:
    """Return True if rows of a schema are changes."""
    return CHANGE_TYPE in schema.names


def upsert_keys(schema: pa.Schema) -> tuple[str, ...] | None:
    """Return the key columns of a stream of upserts; None if no rows before updates are missing."""
    return _keys_in(schema, _UPSERTS)


def shared_keys(schema: pa.Schema) -> tuple[str, ...] | None:
    """Return key columns of which several rows of a stream have the same values; None if none are known."""
    return _keys_in(schema, _SHARED)


def _keys_in(schema: pa.Schema, name: bytes) -> tuple[str, ...] | None:
    if not is_changing(schema):
        return None
    keys = (schema.field(CHANGE_TYPE).metadata or {}).get(name)
    return None if keys is None else tuple(keys.decode().split("\0")[:-1])


def without_changes(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the change column."""
    return pa.schema([field for field in schema if field.name != CHANGE_TYPE])


def change_codes(batch: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return the position of each row's change in :data:`CHANGES`; 0 for all if there is no change column.

    Raises:
        SchemaMismatchError: a value that is no change, such as null.
    """
    if not is_changing(batch.schema):
        return pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
    values = batch[CHANGE_TYPE]
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = pc.cast(values, pa.string())
    codes = pc.index_in(values, pa.array(CHANGES, values.type))
    if codes.null_count:
        wrong = values.filter(codes.is_null())[0].as_py()
        raise SchemaMismatchError(
            f"{wrong!r} in column {CHANGE_TYPE} is no change",
            have=", ".join(sorted(CHANGES)),
            remedy=f"rename the column, if it is about something else than {INSERT}s and {DELETE}s",
        )
    return codes


def change_signs(batch: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return 1 for each row that is there after its change, and -1 for one that is taken away, as int8.

    Raises:
        SchemaMismatchError: a value that is no change.
    """
    is_gone = pc.greater_equal(change_codes(batch), _FIRST_NEGATIVE)
    return pc.if_else(is_gone, pa.scalar(-1, pa.int8()), pa.scalar(1, pa.int8()))


def changes_of(codes: pa.Array) -> pa.Array:
    """Return the change column of positions in :data:`CHANGES`."""
    return pa.array(CHANGES, pa.string()).take(codes)


def last_changes(table: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return the last row of each key: those that are there, and those that are gone, without the change column.

    Args:
        table: changes in their order.
        keys: columns that name a row; null is a value.

    Raises:
        SchemaMismatchError: a value that is no change.
    """
    rows = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), table.num_rows))
    numbered = table.select(keys).append_column(_ROW, rows)
    last = numbered.group_by(list(keys)).aggregate([(_ROW, "max")])[f"{_ROW}_max"]
    table = table.take(pc.subtract(last.take(pc.sort_indices(last)), 1))
    there = pc.greater(change_signs(table), 0)
    table = table.select(without_changes(table.schema).names)
    return table.filter(there), table.filter(pc.invert(there))
