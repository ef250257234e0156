"""Partial aggregation: a user's combine merges rows of a task before they are sent, or before reduce gets them.

Decision: ADR 0049.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.schema_cast import ExactCast
from headgate.spark.tasks.timing import FUNCTION, INPUT
from headgate.spark.tasks.user_function import Source, apply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from headgate.batches import BatchFunction
    from headgate.spark.tasks.timing import Clock

#: Bytes of rows for one call of combine.
CALL_BYTES: Final = 16 << 20
#: Share of the bytes of a call that combine may return and still be worth the next call.
_WORTH: Final = 0.8


def combined(
    batches: Iterable[pa.RecordBatch],
    combine: BatchFunction,
    schema: pa.Schema,
    call_bytes: int = CALL_BYTES,
    *,
    leaves_few: bool = False,
    clock: Clock | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows after calls of combine with several of them, each with the results of the calls before.

    A call that returns nearly as many bytes as it gets is the last one: the other rows are yielded as they are.

    Args:
        batches: of the schema. The memory under a batch may change once the next one is asked for.
        combine: merges rows; see ``exchange()``.
        schema: of the rows, and of those that combine returns.
        call_bytes: bytes of rows for one call.
        leaves_few: True to yield rows for less than one call as they are.
        clock: counts the calls as the user's function, and the time before and after as waits for input.
    """
    rows = ExactCast(schema, "what combine gets").all(batches)
    waiting: list[pa.RecordBatch] = []
    size, calls = 0, 0
    for batch in rows:
        if not batch.num_rows:
            continue
        waiting.append(_copied(batch))
        size += batch.nbytes
        if size < call_bytes:
            continue
        waiting, calls = _called(combine, waiting, schema, clock), calls + 1
        before, size = size, sum(batch.nbytes for batch in waiting)
        if size > _WORTH * before:
            yield from waiting
            yield from rows
            return
        if 2 * size > call_bytes:
            yield from waiting
            waiting, size = [], 0
    if waiting and (calls or not leaves_few):
        waiting = _called(combine, waiting, schema, clock)
    yield from waiting


def _called(
    combine: BatchFunction, batches: list[pa.RecordBatch], schema: pa.Schema, clock: Clock | None
) -> list[pa.RecordBatch]:
    """Return copies of what one call returns: a function may change its own batches later."""
    if clock is not None:
        clock.enter(FUNCTION)
        try:
            return _called(combine, batches, schema, None)
        finally:
            clock.enter(INPUT)
    source = Source(iter(batches), schema, lambda _: None)
    returned = ExactCast(schema, "combine").all(apply("combine", combine, source))
    return [_copied(batch) for batch in returned if batch.num_rows]


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    # Arrow copies the memory when it joins batches, an empty one included.
    return pa.concat_batches([batch, batch.slice(0, 0)])
