"""Running aggregates by key: an update for each key that has changed. ADR 0054."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate._changes import CHANGE_TYPE, change_field, change_signs, is_changing
from headgate.stream.graph.operator import UNKNOWN_DELETES
from headgate.stream.operators.mini_batches import MiniBatches, MiniBatchOperator
from headgate.stream.operators.multisets import KINDS, Multisets, MultisetState, joined
from headgate.stream.operators.updates import update_rows
from headgate.stream.state.keys import numbered
from headgate.stream.windows.accumulators import combined, declared
from headgate.stream.windows.aggregates import Aggregate, Aggregates

if TYPE_CHECKING:
    from headgate.stream.graph.operator import OperatorContext
    from headgate.stream.state.descriptors import StateTtlConfig
    from headgate.stream.state.table import Slots
    from headgate.stream.windows.accumulators import PaneState

#: Counts the rows of a key, which is there while it has some.
_ROWS: Final = Aggregate("count", name="\0rows")
_KEY: Final = "key_{}"
#: Rows per key from which on it is worth to combine them before they are sent, and mini-batches after one that was not.
_WORTH: Final = 2
_PASSING: Final = 31


class RunningAggregates:
    """The columns of running aggregates: of the input, on the way to the task of the key, and of the result.

    Args:
        schema: of the input, which may have changes.
        keys: the key columns.
        aggregates: the columns of the result.
        update_before: True if an update has the row before it.

    Raises:
        UnknownColumnError: the input has no column of a name.
        UnsupportedTypeError: a column of a type that has no such aggregate.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate],
        *,
        update_before: bool,
    ) -> None:
        self.keys = tuple(keys)
        self.key_schema = pa.schema([schema.field(key) for key in keys])
        self.update_before = update_before
        self.names = [aggregate.result for aggregate in aggregates]
        self._is_changing = is_changing(schema)
        #: Positions of the columns of the input that count; all of them if there are filters, which do not say theirs.
        self.columns = list(range(len(schema)))
        if all(item.where is None for item in aggregates):
            needed = {*keys, CHANGE_TYPE, *(item.column for item in aggregates)}
            self.columns = [at for at, name in enumerate(schema.names) if name in needed]
        kinds = KINDS if self._is_changing else frozenset()
        self.multisets = Multisets(schema, [item for item in aggregates if item.kind in kinds])
        aggregates = [item for item in aggregates if item.kind not in kinds]
        counts = [
            replace(item, kind="count", name=f"\0{item.result}")
            for item in aggregates
            if self._is_changing and item.column is not None
        ]
        self._aggregates = Aggregates(schema, [*aggregates, _ROWS, *counts])
        self.accumulators = self._aggregates.accumulators
        self.rows = next(iter(Aggregates(schema, [_ROWS]).accumulators))
        #: By accumulator of a sum, the one that counts its values: it is null again when the last of them is gone.
        self._counted: dict[str, str] = {}
        for item, count in zip(filter(attrgetter("column"), aggregates), counts, strict=False):
            (counter,) = Aggregates(schema, [count]).accumulators
            for name in Aggregates(schema, [item]).accumulators:
                if name != counter:
                    self._counted[name] = counter
        fields = [pa.field(_KEY.format(at), field.type) for at, field in enumerate(self.key_schema)]
        values = [(name, item.type) for name, item in self.accumulators.items()]
        changes = [(multiset.name, multiset.changes) for multiset in self.multisets.all]
        self.partial = pa.schema([*fields, *values, *changes])
        results = self._aggregates.results(
            {name: pa.array([], item.type) for name, item in self.accumulators.items()}
        )
        types = {name: column.type for name, column in results.items()} | self.multisets.types
        columns = [pa.field(name, types[name]) for name in self.names]
        upserts = None if update_before else self.keys
        self.schema = pa.schema([*self.key_schema, *columns, change_field(upserts)])

    @property
    def partial_keys(self) -> list[str]:
        """Names of the key columns on the way."""
        return [_KEY.format(at) for at in range(len(self.keys))]

    def partials(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the input as those on the way: the keys and what each accumulator takes."""
        values = self._aggregates.inputs(batch)
        changes = []
        if self._is_changing:
            signs = change_signs(batch)
            changes = self.multisets.partials(batch, signs)
            is_gone = pc.less(signs, 0)
            if is_gone.true_count:
                values = {
                    name: pc.if_else(is_gone, pc.negate_checked(column), column)
                    for name, column in values.items()
                }
        keys = [batch[key] for key in self.keys]
        return pa.RecordBatch.from_arrays([*keys, *values.values(), *changes], schema=self.partial)

    def combined(self, rows: pa.RecordBatch, groups: Slots, first: Slots) -> pa.RecordBatch:
        """Return one row on the way for each key, of several ones.

        Args:
            rows: on the way.
            groups: number of each row's key.
            first: the first row of each number.

        Raises:
            StateError: a sum exceeds its type.
        """
        at = pa.array(first)
        columns = [column.take(at) for column in rows.columns[: len(self.keys)]]
        columns += [
            combined(item.merging, groups, rows[item.name], len(first))
            for item in self.accumulators.values()
        ]
        columns += [joined(groups, rows[of.name], len(first)) for of in self.multisets.all]
        return pa.RecordBatch.from_arrays(columns, schema=self.partial)

    def results(
        self, values: Mapping[str, pa.Array], of_multisets: Mapping[tuple[str, str], pa.Array]
    ) -> list[pa.Array]:
        """Return the columns of the result, without keys and changes.

        Args:
            values: of the accumulators.
            of_multisets: those of the multisets.
        """
        there = {
            name: pc.if_else(pc.greater(values[count], 0), values[name], None)
            for name, count in self._counted.items()
        }
        results = self._aggregates.results({**values, **there})
        results |= self.multisets.results(of_multisets)
        return [results[name] for name in self.names]


class PartialOperator(MiniBatchOperator):
    """Makes rows on the way to the task of their key, of those of the input: one for each key of a mini-batch.

    If there are nearly as many keys as rows, that is not worth its time, and most of the next mini-batches pass as they are.

    Args:
        aggregates: the columns.
        batches: how long rows wait for others.
    """

    def __init__(self, aggregates: RunningAggregates, batches: MiniBatches) -> None:
        super().__init__(batches)
        self._aggregates = aggregates
        #: Mini-batches that pass before the keys are counted again.
        self._passing = 0

    def process(self, batch: pa.RecordBatch) -> None:
        """Let the columns wait that count."""
        super().process(batch.select(self._aggregates.columns))

    def _handle(self, rows: pa.RecordBatch) -> None:
        of = self._aggregates
        rows = of.partials(rows)
        if self._passing:
            self._passing -= 1
        else:
            groups, first = numbered(rows.select(range(len(of.keys))))
            if rows.num_rows >= _WORTH * len(first):
                rows = of.combined(rows, groups, first)
            else:
                self._passing = _PASSING
        self._context.emit(rows, None)


class RunningOperator(MiniBatchOperator):
    """Adds rows to the aggregates of their keys, and emits the keys that have changed.

    Args:
        aggregates: the columns.
        batches: how long rows wait for others.
        ttl: time to live of keys without rows.
    """

    def __init__(
        self, aggregates: RunningAggregates, batches: MiniBatches, ttl: StateTtlConfig | None
    ) -> None:
        super().__init__(batches)
        self._aggregates, self._ttl = aggregates, ttl
        #: Rows to be taken away that were not there.
        self._unknown_deletes = 0

    def open(self, context: OperatorContext) -> None:
        """Restore the aggregates."""
        super().open(context)
        backend = self._restore(context, self._aggregates.key_schema)
        self._states = {
            name: declared(backend, item.merging, counts=True)
            for name, item in self._aggregates.accumulators.items()
        }
        self._multisets = [
            MultisetState(backend, multiset) for multiset in self._aggregates.multisets.all
        ]
        self._opened(context, self._ttl)

    def _handle(self, rows: pa.RecordBatch) -> None:
        of, backend = self._aggregates, self._backend
        if backend is None:
            return
        keys = len(of.keys)
        backend.set_keys(rows.columns[:keys])
        if self._lives is not None:
            self._lives.touch()
        before = self._values()
        states: list[PaneState | MultisetState] = [*self._states.values(), *self._multisets]
        for state, values in zip(states, rows.columns[keys:], strict=True):
            state.add(values)
        after = self._values()
        counts = [np.asarray(v[of.rows].fill_null(0).to_numpy()) for v, _ in (before, after)]
        empty = counts[1] <= 0
        if empty.any():
            self._unknown_deletes -= int(counts[1][empty].sum())
            for state in states:
                state.clear(where=pa.array(empty))
            if self._lives is not None:
                self._lives.end(empty)
        names = backend.keys.columns
        emitted = update_rows(
            of.schema,
            [*names, *of.results(*before)],
            [*names, *of.results(*after)],
            counts[0] > 0,
            counts[1] > 0,
            with_before=of.update_before,
        )
        if emitted is not None:
            self._context.emit(emitted, None)

    def _values(self) -> tuple[dict[str, pa.Array], dict[tuple[str, str], pa.Array]]:
        """Return the values of the accumulators, and those of the multisets, of the current keys."""
        values = {name: state.get() for name, state in self._states.items()}
        return values, dict(ChainMap(*(state.values() for state in self._multisets)))

    @property
    def dropped(self) -> Mapping[str, int]:
        """Keys that were forgotten, and rows to be taken away that were not there."""
        return {**super().dropped, UNKNOWN_DELETES: self._unknown_deletes}
