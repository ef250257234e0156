"""Calls in checkpoints: rows that wait or are called, and results that are not sent, by key groups.

Rows of a keyed stream are in the group of their key, others in the groups of the task in turn. The rows of a call are in one
group, so that a rescale divides no call. Decision: ADR 0060.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headgate.stream.operators.calls.call import Call
from headgate.stream.operators.calls.rows import error_schema
from headgate.stream.state.descriptors import ListStateDescriptor
from headgate.stream.state.groups import key_groups_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from headgate.stream.graph.operator import OperatorContext
    from headgate.stream.state.backend import KeyedStateBackend
    from headgate.stream.state.lists import ListState

#: The key columns of the state: an integer whose key group is that of what it stands for.
KEY: Final = pa.schema([("group", pa.int64())])


class CallState:
    """The calls of a checkpoint, filled when a snapshot is taken: calls alone change no state.

    Args:
        backend: of the operator.
        context: of the operator.
        rows: schema of the stream.
        keys: the key columns of the stream.
        schema: of the result.
    """

    def __init__(
        self,
        backend: KeyedStateBackend,
        context: OperatorContext,
        rows: pa.Schema,
        keys: tuple[str, ...],
        schema: pa.Schema,
    ) -> None:
        self._backend = backend
        self._key_groups, self._most = context.key_groups, context.max_parallelism
        self._keys_of_groups = keys_of_groups(self._key_groups, self._most)
        self._rows, self._keys, self._schema = rows, keys, schema
        waiting = [("first", pa.int64()), ("call_id", pa.string()), ("failed", pa.int32())]
        result = [("first", pa.int64()), ("order", pa.int32()), ("row", struct_of(schema))]
        self._waiting_type = pa.struct([*waiting, ("row", struct_of(rows))])
        self._result_type = pa.struct([*result, ("refused", struct_of(error_schema(rows)))])
        states = (("waiting", self._waiting_type), ("results", self._result_type))
        self._waiting, self._results = (
            backend.get_state(ListStateDescriptor(name, of)) for name, of in states
        )

    def store(self, calls: Iterable[Call], waiting: Iterable[tuple[pa.RecordBatch, int]]) -> None:
        """Replace what is there.

        Args:
            calls: that were not sent.
            waiting: rows without a call, each with the number of the first row.
        """
        self._set_all_keys()
        self._waiting.clear()
        self._results.clear()
        rows = [self._row_elements(part, first) for part, first in waiting]
        results: list[tuple[Any, pa.StructArray]] = []
        for call in calls:
            if call.outcome is None:
                rows.append(self._row_elements(call.rows, call.first, call.call_id, call.failed))
            else:
                results += self._result_elements(call)
        self._add(self._waiting, rows)
        self._add(self._results, results)

    def load(self, *, has_batches: bool) -> tuple[list[Call], pa.RecordBatch]:
        """Return the calls in the order of their rows, and the rows without a call; the state is empty behind that.

        The numbers of tasks that are one now are independent of each other.

        Args:
            has_batches: True if a call may have several rows. Else the rows of one that has are without a call.
        """
        self._set_all_keys()
        calls: list[Call] = []
        _, elements = self._read(self._waiting)
        rows = as_rows(elements.field("row"), self._rows)
        firsts = elements.field("first").to_numpy()
        by_call: dict[tuple[int, str | None], list[int]] = {}
        for at, call_id in enumerate(elements.field("call_id").to_pylist()):
            by_call.setdefault((int(firsts[at]), call_id), []).append(at)
        failed = elements.field("failed").to_pylist()
        alone: list[int] = []
        for (first, call_id), places in by_call.items():
            if call_id is None or (len(places) > 1 and not has_batches):
                alone += places
                continue
            batch = rows.take(pa.array(places))
            call = Call(first, call_id, batch, 0, batch.num_rows, batch.nbytes)
            call.failed = failed[places[0]]
            calls.append(call)
        calls += self._loaded_results()
        self._waiting.clear()
        self._results.clear()
        return sorted(calls, key=_first), rows.take(pa.array(alone, pa.int64()))

    def _loaded_results(self) -> Iterator[Call]:
        groups, elements = self._read(self._results)
        numbers = np.stack(
            [elements.field("first").to_numpy(), groups, elements.field("order").to_numpy()]
        )
        # Calls of different tasks may have one number.
        by_call = np.lexsort(numbers[::-1])
        numbers, elements = numbers[:, by_call], elements.take(pa.array(by_call))
        firsts, groups, orders = numbers
        starts = np.flatnonzero((np.diff(numbers, prepend=-1) != 0).any(axis=0))
        for start, stop in pairwise([*starts, len(firsts)]):
            of_call = elements.slice(start, stop - start)
            results, refused = (
                as_rows(of_call.field(name).drop_null(), schema)
                for name, schema in (("row", self._schema), ("refused", error_schema(self._rows)))
            )
            call = Call(int(firsts[start]), "", results.slice(0, 0), 0, 0, of_call.nbytes)
            call.order, call.group = int(orders[start]), int(groups[start])
            call.outcome = [results] if results.num_rows else []
            call.refused = refused if refused.num_rows else None
            yield call

    def set_groups(self, groups: npt.NDArray[np.int64]) -> None:
        """Let states be about key groups of this task."""
        self._backend.set_keys([pa.array(self._keys_of_groups[groups])])

    def _set_all_keys(self) -> None:
        groups = self._key_groups
        keys = self._keys_of_groups[groups.start : groups.stop]
        self._backend.set_keys([pa.array(keys)])

    def _read(self, state: ListState) -> tuple[npt.NDArray[np.int64], pa.StructArray]:
        """Return all elements in the order of their calls, with the key group of each."""
        lists = state.get()
        lengths = lists.value_lengths().to_numpy()
        groups = np.repeat(np.arange(self._key_groups.start, self._key_groups.stop), lengths)
        elements = lists.flatten()
        order = np.argsort(elements.field("first").to_numpy(), kind="stable")
        return groups[order], elements.take(pa.array(order))

    def _add(self, state: ListState, parts: list[tuple[Any, pa.StructArray]]) -> None:
        """Add elements to the lists of their key groups."""
        if parts:
            groups = np.concatenate([of for of, _ in parts])
            self.set_groups(groups)
            state.add(pa.concat_arrays([elements for _, elements in parts]))

    def groups(self, rows: pa.RecordBatch, first: int = 0) -> npt.NDArray[np.int64]:
        """Return the key group of each row.

        Args:
            rows: of the stream.
            first: number of the first one, by which rows without keys are in the groups in turn.
        """
        if self._keys:
            return key_groups_of(rows.select(self._keys), self._most).astype(np.int64)
        groups = self._key_groups.start + (first + np.arange(rows.num_rows)) % len(self._key_groups)
        return groups.astype(np.int64)

    def _row_elements(
        self, rows: pa.RecordBatch, first: int, call_id: str | None = None, failed: int = 0
    ) -> tuple[Any, pa.StructArray]:
        number = rows.num_rows
        groups = self.groups(rows, first)
        # Rows of a call have its number, and are in their order.
        numbers = first + np.arange(number) * (call_id is None)
        columns = [
            pa.array(numbers),
            pa.array([call_id] * number, pa.string()),
            pa.array([failed] * number, pa.int32()),
            as_structs(rows),
        ]
        elements = pa.StructArray.from_arrays(columns, fields=list(self._waiting_type))
        return (groups if call_id is None else np.repeat(groups[:1], number)), elements

    def _result_elements(self, call: Call) -> Iterator[tuple[Any, pa.StructArray]]:
        group = call.group
        if group is None:
            group = int(self.groups(call.rows.slice(0, 1), call.first)[0])
        fields = list(self._result_type)
        parts = [(batch, 0) for batch in call.outcome or ()]
        if call.refused is not None:
            parts.append((call.refused, 1))
        for rows, place in parts:
            number = rows.num_rows
            columns = [pa.nulls(number, field.type) for field in fields]
            columns[0] = pa.array([call.first] * number, pa.int64())
            columns[1] = pa.array([call.order] * number, pa.int32())
            columns[2 + place] = as_structs(rows)
            yield np.full(number, group), pa.StructArray.from_arrays(columns, fields=fields)


def struct_of(schema: pa.Schema) -> pa.DataType:
    """Return the type of rows in lists."""
    return pa.struct([field.with_nullable(True) for field in schema])


def as_structs(rows: pa.RecordBatch) -> pa.StructArray:
    """Return rows as an array."""
    return pa.StructArray.from_arrays(rows.columns, fields=list(struct_of(rows.schema)))


def as_rows(structs: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of an array."""
    return pa.RecordBatch.from_arrays(structs.flatten(), schema=schema)


def keys_of_groups(groups: range, max_parallelism: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return an integer for each key group, at its number: the first one whose hash is in the group; -1 for other groups."""
    keys = np.full(max_parallelism, -1)
    start, count = 0, 8 * max_parallelism
    while (keys[groups.start : groups.stop] < 0).any():
        numbers = np.arange(start, start + count)
        of = key_groups_of(pa.record_batch([pa.array(numbers)], schema=KEY), max_parallelism)
        # From behind, so that the first one of a group stays.
        new = np.full(max_parallelism, -1)
        new[of[::-1]] = numbers[::-1]
        keys = np.where(keys < 0, new, keys)
        start += count
    return keys


def _first(call: Call) -> int:
    return call.first
