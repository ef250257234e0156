"""Results of calls that are remembered by the content of their rows. Decision: ADR 0060."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headgate.errors import SchemaMismatchError
from headgate.stream.operators.calls.call import JointRows
from headgate.stream.operators.calls.journal import CallJournal
from headgate.stream.operators.calls.operator import AsyncCallOperator
from headgate.stream.operators.calls.rows import DIGEST, as_seen, is_same_column
from headgate.stream.operators.calls.state import as_rows, as_structs, struct_of
from headgate.stream.state.descriptors import MapStateDescriptor
from headgate.stream.state.files import SnapshotFolder
from headgate.stream.state.values import is_valid

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from headgate.stream.graph.operator import OperatorContext, OperatorSnapshot
    from headgate.stream.operators.calls.call import Call
    from headgate.stream.operators.calls.options import CallOptions
    from headgate.stream.state.descriptors import StateTtlConfig

#: Rows whose results are looked up at once: so many may be in memory beside ``in_flight_bytes``.
_LOOKED_UP: Final = 1024
#: Bytes that a call takes beside its rows: those that need no service may be many.
_BYTES: Final = 512
#: Columns of the journal.
_RECORD: Final = ["group", "at", "digest", "result"]


@dataclass(frozen=True, slots=True)
class _Remembered:
    """Results of rows that follow each other, as far as they are remembered.

    Attributes:
        first: number of the first row.
        rows: the results of all of them.
        ends: by row, the position behind its result.
        lengths: by row, of its result.
        has_result: by row.
    """

    first: int
    rows: pa.RecordBatch
    ends: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    has_result: npt.NDArray[np.bool_]

    def has(self, number: int) -> bool:
        """Return True if a row has a result."""
        return bool(self.has_result[number - self.first])

    def results(self, numbers: Sequence[int]) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """Return the results of rows that have one, and the number of rows of each."""
        at = np.asarray(numbers) - self.first
        lengths, ends = self.lengths[at], np.cumsum(self.lengths[at])
        places = np.arange(lengths.sum()) + np.repeat(self.ends[at] - ends, lengths)
        return self.rows.take(pa.array(places)), lengths


def _is_same(values: pa.Array, others: pa.Array) -> bool:
    """Return True if two arrays have the same values; NaN is one."""
    return values.equals(others) or repr(values.to_pylist()) == repr(others.to_pylist())


def _rows_of(calls: Sequence[Call]) -> pa.RecordBatch:
    """Return the rows of calls, as functions have them."""
    return as_seen(pa.concat_batches([call.rows for call in calls]))


class MemoCallOperator(AsyncCallOperator):
    """Calls a function for rows whose result is not remembered; equal rows wait for one call.

    Results are in keyed state, in the key group of the row: equal rows have the same keys, so they and their result are with
    one task, whatever the parallelism.

    Args:
        function: as of the base.
        rows: schema of the rows, with their digests.
        keys: the key columns, by which equal rows come to one task.
        schema: of the result.
        options: of the base; a call of several rows returns a row for each.
        ttl: time to live of a result; None if it is remembered for ever.
    """

    def __init__(
        self,
        function: Any,
        rows: pa.Schema,
        keys: tuple[str, ...],
        schema: pa.Schema,
        options: CallOptions,
        ttl: StateTtlConfig | None,
    ) -> None:
        super().__init__(function, rows, keys, schema, options)
        self._ttl = ttl
        self._type = struct_of(schema)
        self._journal: CallJournal | None = None
        self._named = list(dict.fromkeys([*keys, DIGEST]))
        #: Positions of columns that results have from their row, in the result and in the row: equal rows may differ there.
        self._copied = [
            (at, rows.get_field_index(field.name))
            for at, field in enumerate(schema)
            if is_same_column(rows, field)
        ]
        #: By digest of the rows that are called: those that wait for the result.
        self._followers: dict[bytes, deque[Call]] = {}
        #: Of the first rows that wait, and what calls have returned since it was looked up.
        self._remembered: _Remembered | None = None
        self._recent: dict[bytes, list[pa.RecordBatch]] = {}
        #: By call of several rows: the calls of these rows, which it stands for.
        self._members: dict[Call, list[Call]] = {}
        #: Calls whose result is to be remembered.
        self._new: list[Call] = []

    def _opened(self, context: OperatorContext, ttl: StateTtlConfig | None = None) -> None:
        if self._backend is not None:
            descriptor = MapStateDescriptor("memo", pa.binary(), pa.list_(self._type), self._ttl)
            self._memo = self._backend.get_state(descriptor)
        self._hits = context.metrics.counter("memo_hits")
        super()._opened(context, ttl)
        folder = None if context.folder is None else SnapshotFolder(context.folder)
        # No other file system shows what is written before a file is closed.
        if folder is not None and folder.storage.is_local:
            self._journal = CallJournal(folder, context.restored_checkpoint or 0)
            self._recover(self._journal, context)

    def _recover(self, journal: CallJournal, context: OperatorContext) -> None:
        """Remember the results that were paid for behind the checkpoint."""
        counter = context.metrics.counter("calls_recovered")
        life = None if self._ttl is None else self._ttl.millis
        groups = context.key_groups
        results: list[tuple[int, pa.RecordBatch]] = []
        for records in journal.read():
            if records.schema.names != _RECORD or records["result"].type != pa.list_(self._type):
                continue  # of a function with another schema
            of = records["group"].to_numpy()
            mine = (of >= groups.start) & (of < groups.stop)
            # All rows of a record have one time.
            at = records["at"][0].as_py()
            if mine.any() and (life is None or at + life > context.clock()):
                results.append((at, records.filter(pa.array(mine))))
        # The newest result of a row counts, whichever task has written it.
        for at, rows in sorted(results, key=lambda result: result[0]):
            self._call_state.set_groups(rows["group"].to_numpy())
            self._memo.put(rows["digest"], rows["result"], at=at)
            counter.add(rows.num_rows)

    def _to_begin(self, calls: list[Call]) -> list[Call]:
        waiting = super()._to_begin(calls)
        if waiting:
            rows = pa.concat_batches([call.rows for call in waiting])
            # The journal has those that ended behind the checkpoint.
            remembered = self._read(0, rows)
            for call, digest in zip(waiting, rows[DIGEST].to_pylist(), strict=True):
                call.digest = digest
            numbers = np.flatnonzero(remembered.has_result).tolist()
            self._answer_all([waiting[at] for at in numbers], numbers, remembered, rows, 0)
        return [call for call in waiting if call.outcome is None and not self._follow(call)]

    def _follow(self, call: Call) -> bool:
        """Let a call wait for that of an equal row; return False if there is none, and it is that one itself."""
        followers = self._followers.get(call.digest)
        if followers is None:
            self._followers[call.digest] = deque()
            return False
        followers.append(call)
        return True

    # --- rows ---

    def _about(self, call: Call) -> Any:
        rows = as_seen(call.rows)
        return rows if self._options.rows else rows.to_pylist()[0]

    def _next_calls(self, room: int) -> list[tuple[Call, Any]]:
        if self._options.rows is None:
            calls = self._calls_of_first_rows(room)
            rows = [] if not calls else _rows_of(calls).to_pylist()
            return list(zip(calls, rows, strict=True))
        calls = self._calls_of_one_batch(self._options.rows, self._options.bytes)
        if not calls:
            return []
        batch = _rows_of(calls)
        first = calls[0].first
        call = self._call(first, batch, 0, batch.num_rows, 0)
        call.call_id += "-batch"  # of its own, since a service sees it
        self._members[call] = calls
        return [(call, batch)]

    def _calls_of_one_batch(self, most: int, size: int | None) -> list[Call]:
        """Return the calls of rows that share one, at most so many, with about so many bytes."""
        calls: list[Call] = []
        left = math.inf if size is None else size
        while self._waiting and len(calls) < most:
            if self._size >= self._options.in_flight_bytes and (self._calls or self._ready):
                break
            rows = self._waiting[0].rows
            per_row = max(1, rows.nbytes / rows.num_rows)
            if calls and left < per_row:
                break
            new = self._calls_of_first_rows(max(1, int(min(most - len(calls), left / per_row))))
            left -= len(new) * per_row
            calls += new
        return calls

    def _calls_of_first_rows(self, most: int) -> list[Call]:
        """Return at most so many calls of the first rows that wait, and give the rows before them results that are there."""
        part, options = self._waiting[0], self._options
        per_row = part.rows.nbytes / part.rows.num_rows + _BYTES
        left = options.in_flight_bytes - self._size
        remembered = self._look_up(part.first, part.rows)
        number = min(
            max(1, int(left // per_row)),
            remembered.first + len(remembered.lengths) - part.first,
        )
        chosen = part.rows.slice(0, number)
        names = None if options.call_id is None else chosen[options.call_id].to_pylist()
        calls: list[Call] = []
        #: Those that have a result, and of these those whose result was looked up.
        answered: list[Call] = []
        hits: list[Call] = []
        for at, digest in enumerate(chosen[DIGEST].to_pylist()):
            first = part.first + at
            outcome = self._recent.get(digest)
            is_hit = outcome is None and remembered.has(first)
            is_known = is_hit or outcome is not None
            if len(calls) == most and not is_known and digest not in self._followers:
                number = at
                break
            call = self._call(first, chosen, at, 1, per_row)
            call.digest = digest
            call.order = 0 if part.orders is None else int(part.orders[at])
            if names is not None and names[at] is not None:
                call.call_id = str(names[at])
            self._add(call)
            if is_known:
                answered.append(call)
            if is_hit:
                hits.append(call)
            elif outcome is not None:
                self._answer(call, outcome)
            elif not self._follow(call):
                calls.append(call)
        self._answer_all(hits, [call.first for call in hits], remembered, chosen, part.first)
        for call in answered:
            self._line_up(call)
        self._take(number)
        return calls

    def _look_up(self, first: int, rows: pa.RecordBatch) -> _Remembered:
        """Return what is remembered for the first rows that wait."""
        last = self._remembered
        if last is not None and last.first <= first < last.first + len(last.lengths):
            return last
        self._remembered, self._recent = self._read(first, rows.slice(0, _LOOKED_UP)), {}
        return self._remembered

    def _read(self, first: int, rows: pa.RecordBatch) -> _Remembered:
        self._call_state.set_groups(self._call_state.groups(rows))
        lists = self._memo.get(rows[DIGEST])
        lengths = lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)
        results = as_rows(lists.flatten(), self._schema)
        return _Remembered(first, results, np.cumsum(lengths), lengths, is_valid(lists))

    def _answer_all(
        self,
        calls: Sequence[Call],
        numbers: Sequence[int],
        remembered: _Remembered,
        rows: pa.RecordBatch,
        first: int,
    ) -> None:
        """Give calls the results that were looked up for them, all at once: a column of them costs about as much as a value.

        Args:
            calls: of a row each.
            numbers: of these rows.
            remembered: has a result for each.
            rows: has these rows.
            first: number of the first one in it.
        """
        if not calls:
            return
        results, lengths = remembered.results(numbers)
        places = np.repeat(np.asarray(numbers) - first, lengths)
        results = self._with_own(results, rows, places)
        per_row = results.nbytes / max(1, results.num_rows)
        joint = JointRows(results, per_row) if (lengths == 1).all() else None
        start = 0
        for at, (call, length) in enumerate(zip(calls, lengths.tolist(), strict=True)):
            size = _BYTES + length * per_row
            self._size += size - call.size
            call.size, call.joint, call.place = size, joint, at
            call.outcome = [results.slice(start, length)] if length else []
            start += length
        self._hits.add(len(calls))

    def _answer(self, call: Call, outcome: list[pa.RecordBatch]) -> None:
        """Give a call a result that is there, with the columns that its own row has."""
        outcome = [self._as_of(call, batch) for batch in outcome]
        size = _BYTES + sum(batch.nbytes for batch in outcome)
        self._size += size - call.size
        call.size, call.outcome = size, outcome
        self._hits.add()

    def _as_of(self, call: Call, result: pa.RecordBatch) -> pa.RecordBatch:
        """Return a result with the columns that the row of a call has."""
        return self._with_own(result, call.batch, np.full(result.num_rows, call.start))

    def _with_own(
        self, results: pa.RecordBatch, rows: pa.RecordBatch, places: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        """Return results with the columns that their rows have, each at a place among others."""
        if not self._copied:
            return results
        columns = results.columns
        for at, of in self._copied:
            columns[at] = rows.column(of).take(pa.array(places))
        return pa.RecordBatch.from_arrays(columns, schema=results.schema)

    def _check_copied(self, call: Call) -> None:
        """Let a call fail that has changed a column of its row: equal rows would lose their own value, or get one of another."""
        for result in call.result or ():
            expected = self._as_of(call, result)
            for at, _ in self._copied:
                if not _is_same(result.column(at), expected.column(at)):
                    name = result.schema.names[at]
                    call.error = SchemaMismatchError(
                        f"a call of {self._uid} with memo= changed column {name!r}, which results have from their own row",
                        asked=f"call_id {call.call_id}",
                        remedy=f"another name for the result · a result without {name!r}",
                    )
                    call.result, call.joint = None, None
                    if self._loop is not None:
                        self._loop.count_failure(call)
                    return

    # --- results ---

    def _converted(self, result: Any, rows: int) -> Any:
        if self._options.rows is None:
            return super()._converted(result, rows)
        batches = self._results.batches(result)
        number = sum(batch.num_rows for batch in batches)
        if number != rows:
            raise SchemaMismatchError(
                f"a call with memo= returned {number} rows for {rows}",
                remedy="a row for each row of the batch, in their order · a call per row",
            )
        return batches

    def poll(self, *, is_end: bool) -> bool:
        """Send the results that are next, and begin further calls."""
        has_moved = super().poll(is_end=is_end)
        # Nothing tells the task of results that are remembered.
        first = next(iter(self._calls.values()), None)
        is_next = self._options.order is True and first is not None and first.outcome is not None
        return has_moved or bool(self._ready) or is_next

    def _collect(self) -> None:
        super()._collect()
        new, self._new = self._new, []
        if new:
            rows = pa.concat_batches([call.rows.select(self._named) for call in new])
            results = [batch for call in new for batch in call.outcome or ()]
            lengths = [sum(batch.num_rows for batch in call.outcome or ()) for call in new]
            structs = pa.array([], self._type)
            if results:
                structs = as_structs(pa.concat_batches(results))
            ends = pa.array(np.r_[0, np.cumsum(lengths)], pa.int32())
            groups, lists = self._call_state.groups(rows), pa.ListArray.from_arrays(ends, structs)
            self._call_state.set_groups(groups)
            self._memo.put(rows[DIGEST], lists)
            if self._journal is not None:
                times = pa.array(np.full(len(groups), self._context.clock()))
                columns = [pa.array(groups), times, rows[DIGEST], lists]
                self._journal.append(pa.RecordBatch.from_arrays(columns, names=_RECORD))

    def _settle(self, call: Call) -> None:
        members = self._members.pop(call, None)
        if members is None:
            self._settle_row(call)
            return
        # As many as one call are under way less.
        self._running += len(members) - 1
        rows = None if call.error is not None else pa.concat_batches(call.result or [])
        for at, member in enumerate(members):
            member.call_id, member.failed, member.error = call.call_id, call.failed, call.error
            member.result = None if rows is None else [rows.slice(at, 1)]
            self._settle_row(member)

    def _settle_row(self, call: Call) -> None:
        if call.error is None and self._copied:
            self._check_copied(call)
        has_failed = call.error is not None
        super()._settle(call)
        followers = self._followers.pop(call.digest)
        if not has_failed:
            outcome = call.outcome or []
            self._new.append(call)
            self._recent[call.digest] = outcome
            for follower in followers:
                self._answer(follower, outcome)
                self._line_up(follower)
        elif followers:
            # An error is not remembered: the next of the equal rows is called itself.
            self._restored.append(followers.popleft())
            self._followers[call.digest] = followers

    # --- checkpoints ---

    @property
    def has_state(self) -> bool:
        """True: a later run has the results."""
        return self._is_durable

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot | None:
        """Freeze rows that wait, calls and results, with those that are remembered."""
        for call, members in self._members.items():
            for member in members:
                member.failed = call.failed
        snapshot = super().snapshot(checkpoint, savepoint=savepoint)
        if self._journal is not None:
            self._journal.begin(checkpoint)
        return snapshot

    def complete(self, checkpoint: int) -> None:
        """Let later snapshots build on this one, and delete the journal before it."""
        super().complete(checkpoint)
        if self._journal is not None:
            self._journal.complete(checkpoint)

    def close(self) -> None:
        """End the calls, and close the function."""
        if self._journal is not None:
            self._journal.close()
        super().close()
