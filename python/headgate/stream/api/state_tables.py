"""State of jobs as tables: read from a savepoint, or written for a job to start from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
import pyarrow as pa

from headgate._arguments import names, refuse, text, whole_number
from headgate._arguments import path as checked_path
from headgate._kinds import kind_of
from headgate._matches import close_matches
from headgate.batches import batches_of
from headgate.errors import CheckpointError, StateError, UnknownColumnError
from headgate.key_groups import MAX_KEY_GROUPS
from headgate.stream.graph.stages import MAX_PARALLELISM
from headgate.stream.job.store import CheckpointStore
from headgate.stream.state.backend import KeyedStateBackend
from headgate.stream.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headgate.stream.state.files import SnapshotFolder
from headgate.stream.state.locations import TASKS, absolute, below, is_relative, safe_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.stream.job.store import Completed

#: Kinds of state of which a column has one per key.
_WRITABLE: Final = (
    ValueStateDescriptor,
    ReducingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
)
#: Rows of a table that become state in one call.
_ROWS: Final = 1 << 20
#: Polars has views of texts, of which Arrow cannot choose rows.
_PLAIN: Final = {"string_view": pa.string(), "binary_view": pa.binary()}
#: Number of the snapshot that state is written as, and of its checkpoint: before the first of a job.
_NUMBER: Final = 0


@overload
def read_state(savepoint: str, uid: str, state: str) -> pa.Table: ...
@overload
def read_state(savepoint: str, uid: str, state: str, *, spark: SparkSession) -> DataFrame: ...
@overload
def read_state(savepoint: str, uid: str) -> dict[str, pa.Table]: ...
def read_state(
    savepoint: str, uid: str, state: str | None = None, *, spark: SparkSession | None = None
) -> pa.Table | DataFrame | dict[str, pa.Table]:
    """Return the state of an operator in a savepoint, or in the last checkpoint of a folder, without the job.

    Args:
        savepoint: folder or URI of a savepoint, or of a job's checkpoints. The job may go on meanwhile, but may delete what
            is read of its checkpoints.
        uid: ``name=`` of the operator.
        state: name of the state; None for all of the operator.
        spark: a session, for a DataFrame. All state is in the memory of this process before.

    Returns:
        A table with a row per key: the key columns, those of a window, and ``value``, with a list for a list state. A map
        has a row per entry, with ``map_key`` and ``value``, and timers have ``timestamp``. Expired values are left out as
        far as the job had declared a time to live. A dict of tables by name without ``state``.

    Raises:
        CheckpointError: there is no savepoint or checkpoint.
        StateError: it has no such operator or state, or the job had ended, so that no state was written.
        SnapshotError: a file is missing or damaged.
    """
    if state is not None:
        text("state", state)
    if spark is not None and type(spark).__name__ != "SparkSession":
        raise refuse("spark", spark, f"is {kind_of(spark)}", "a SparkSession")
    text("uid", uid)
    completed = _completed(absolute(checked_path("savepoint", savepoint)))
    operators = completed.fields["operators"]
    entry = operators.get(uid)
    snapshots = [] if entry is None else [part for part in entry["state"] if part]
    if not snapshots:
        have = sorted(name for name, other in operators.items() if any(other["state"]))
        is_left_out = entry is not None and entry.get("left_out")
        raise StateError(
            f"{savepoint} has no state of {uid!r}"
            + (", because its job had ended" if is_left_out else ""),
            have=", ".join(have) or "no state of any operator",
            remedy=" · ".join(f"uid={name!r}" for name in close_matches(uid, have))
            or "stop(savepoint=...) for one with all state",
        )
    folders = [
        (SnapshotFolder(below(completed.base, name) if is_relative(name) else name), number)
        for name, number in snapshots
    ]
    backend = KeyedStateBackend.restore(folders)
    if state is None:
        return {name: of_name.table() for name, of_name in backend.states.items()}
    if state not in backend.states:
        raise StateError(
            f"{uid!r} has no state {state!r} in {savepoint}",
            have=", ".join(sorted(backend.states)),
            remedy=" · ".join(map(repr, sorted(backend.states))) or "another operator",
        )
    table = backend.states[state].table()
    return table if spark is None else spark.createDataFrame(table)


def _completed(folder: str) -> Completed:
    """Return a savepoint, or the newest checkpoint of a folder.

    Raises:
        CheckpointError: there is neither.
    """
    try:
        return CheckpointStore.savepoint(folder)
    except CheckpointError as error:
        newest = CheckpointStore(folder).newest_checkpoint()
        if newest is None:
            raise error from None
        return newest


def write_state(
    folder: str,
    uid: str,
    rows: Any,
    *,
    keys: Sequence[str],
    states: Sequence[StateDescriptor] | None = None,
    max_parallelism: int = MAX_PARALLELISM,
) -> str:
    """Write state for an operator into a savepoint that a new job starts from: ``start(savepoint=folder)``.

    Several calls with one folder write the state of several operators. Sources begin at their beginning, and sinks as at
    the first start of a job. All rows of a call are in the memory of this process.

    Args:
        folder: a new folder or URI, or one of an earlier call.
        uid: ``name=`` of the operator, a ``process()`` on a keyed stream.
        rows: a table or DataFrame of any library, Spark's too, with a row per key: the key columns, and a column for each
            state by its name. A null says that the key has no value. A list state has a column of lists, a map state one
            of maps.
        keys: the key columns, in the order of ``key_by()``, and of the same types.
        states: descriptors, as the function declares them; by default each other column is a value state of its type.
        max_parallelism: number of key groups of the job.

    Returns:
        The folder.

    Raises:
        OptionError: an argument is of a wrong kind.
        UnknownColumnError: the table has no column of a key or a state.
        StateError: a key is there twice, or the folder has state of the operator already.
        SchemaMismatchError: values that cannot be cast to the type of their state.
        CheckpointError: the folder has something else, or cannot be written.
    """
    folder = absolute(checked_path("folder", folder))
    text("uid", uid)
    keys = names("keys", keys)
    whole_number("max_parallelism", max_parallelism, 1, MAX_KEY_GROUPS)
    table = _table_of(rows)
    if not keys:
        raise refuse("keys", keys, "is empty", "names of columns", 'keys=["user"]')
    columns = [_column(table, key) for key in keys]
    if states is None:
        others = [name for name in table.column_names if name not in keys]
        states = [ValueStateDescriptor(name, table.schema.field(name).type) for name in others]
    is_several = isinstance(states, (list, tuple))
    if not is_several or not all(isinstance(each, _WRITABLE) for each in states):
        raise refuse(
            "states",
            states,
            f"is {kind_of(states)}",
            "a list of descriptors of value, reducing, list or map states",
            'states=[ValueStateDescriptor("n", pa.int64())]',
        )
    for descriptor in states:
        _column(table, descriptor.name)
    fields = _begun(folder, uid, max_parallelism)
    schema = pa.schema([table.schema.field(at) for at in columns])
    backend = KeyedStateBackend(schema, max_parallelism=max_parallelism)
    for descriptor in states:
        backend.get_state(descriptor)
    for batch in table.to_batches(max_chunksize=_ROWS):
        _put(backend, batch, columns, states)
    name = f"{TASKS}/0-0-{safe_name(uid)}"
    backend.snapshot(_NUMBER, savepoint=True).write(SnapshotFolder(below(folder, name)))
    entry = {"parallelism": 1, "state": [[name, _NUMBER]], "committables": [], "watermark": None}
    fields["operators"] = {**fields["operators"], uid: entry}
    CheckpointStore.write_savepoint(folder, fields, replace=True)
    return folder


def _table_of(rows: Any) -> pa.Table:
    """Return rows as a table.

    Raises:
        OptionError: they are none.
    """
    to_arrow = getattr(rows, "toArrow", None)  # of a DataFrame of Spark
    rows = to_arrow() if callable(to_arrow) else rows
    if not isinstance(rows, pa.Table):
        batches = list(batches_of(rows, "write_state()"))
        if not batches or not all(isinstance(batch, pa.RecordBatch) for batch in batches):
            raise refuse(
                "rows",
                rows,
                f"is {kind_of(rows)}",
                "a table, a batch or a DataFrame with rows",
                'pa.table({"user": ["ann"], "count": [7]})',
            )
        rows = pa.Table.from_batches(batches)
    table = rows
    fields = [field.with_type(_PLAIN.get(str(field.type), field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _column(table: pa.Table, name: str) -> int:
    """Return the position of a column."""
    columns = table.column_names
    if columns.count(name) != 1:
        raise UnknownColumnError(
            f"{'more than one' if name in columns else 'no'} column {name!r} in the rows of write_state()",
            have=", ".join(columns),
            remedy="a column for each key, and for each state by its name",
        )
    return int(columns.index(name))


def _begun(folder: str, uid: str, max_parallelism: int) -> dict[str, Any]:
    """Return what a savepoint has before an operator's state is added.

    Raises:
        CheckpointError: the folder has something that :func:`write_state` has not made.
        StateError: it has state of the operator, or another number of key groups.
    """
    try:
        fields = dict(CheckpointStore.savepoint(folder).fields)
    except CheckpointError:
        CheckpointStore.refuse_savepoint(folder)
        return {
            "checkpoint": _NUMBER,
            "max_parallelism": max_parallelism,
            "is_initial": True,
            "operators": {},
            "sources": {},
            "stages": {},
        }
    if not fields.get("is_initial"):
        CheckpointStore.refuse_savepoint(folder)
    if uid in fields["operators"]:
        raise StateError(f"{folder} has state of {uid!r} already", remedy="another folder")
    if fields["max_parallelism"] != max_parallelism:
        raise StateError(
            f"max_parallelism={max_parallelism} is not that of {folder}",
            have=f"max_parallelism={fields['max_parallelism']}",
            remedy=f"max_parallelism={fields['max_parallelism']}",
        )
    return fields


def _put(
    backend: KeyedStateBackend,
    batch: pa.RecordBatch,
    keys: Sequence[int],
    states: Sequence[StateDescriptor],
) -> None:
    """Set the state of a row's key for each row.

    Raises:
        StateError: a key is there twice.
    """
    columns = backend.space.checked(batch.select(keys))
    is_known = backend.space.num_keys and (backend.space.find(columns) >= 0).any()
    backend.set_keys(columns)
    if is_known or backend.keys.num_rows != batch.num_rows:
        raise StateError(
            "a key is there twice, and a key has one state",
            asked=f"a row per key of {', '.join(backend.space.schema.names)}",
            remedy="aggregate the rows by key before",
        )
    for descriptor in states:
        values = batch.column(descriptor.name)
        if isinstance(descriptor, MapStateDescriptor):
            rows = pa.array(np.repeat(np.arange(len(values)), _lengths(values)))
            backend.set_keys(columns.take(rows))
            entries = values.drop_null()
            first, last = (entries.offsets[at].as_py() for at in (0, len(entries)))
            maps = backend.get_state(descriptor)
            maps.put(entries.keys[first:last], entries.items[first:last])
            backend.set_keys(columns)
        elif isinstance(descriptor, ListStateDescriptor):
            backend.get_state(descriptor).put(values)
        elif isinstance(descriptor, (ValueStateDescriptor, ReducingStateDescriptor)):
            backend.get_state(descriptor).set_values(values)


def _lengths(maps: pa.MapArray) -> Any:
    """Return the number of entries of each map; 0 for null."""
    offsets = maps.offsets.to_numpy()
    return np.where(maps.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
