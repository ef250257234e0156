"""Records made comparable: batches become rows, so that where a batch ends does not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, Final

import pyarrow as pa

_SHOWN: Final = 3


def rows_of(record: Any) -> list[Any]:
    """Return the rows of a batch or table as tuples, any other record as the only row."""
    if isinstance(record, pa.RecordBatch | pa.Table):
        columns = [column.to_pylist() for column in record.columns]
        return list(zip(*columns, strict=True)) if columns else [()] * record.num_rows
    return [record]


def all_rows(records: Any) -> list[Any]:
    """Return the rows of one table or batch, or of many records."""
    if isinstance(records, pa.RecordBatch | pa.Table):
        return rows_of(records)
    return [row for record in records for row in rows_of(record)]


def key_of(row: Any) -> Hashable:
    """Return what a row is counted by: its text if it is of a batch (NaN, lists) or not hashable."""
    if isinstance(row, tuple):
        return repr(row)
    return row if isinstance(row, Hashable) else repr(row)


def difference(found: Iterable[Any], expected: Iterable[Any]) -> str:
    """Return what is missing and what is too much, in any order; "" when nothing is."""
    have, want = Counter(map(key_of, found)), Counter(map(key_of, expected))
    return " and ".join(
        text
        for text in (_some("missing", want - have), _some("too much", have - want))
        if text is not None
    )


def _some(what: str, rows: Counter[Hashable]) -> str | None:
    if not rows:
        return None
    shown = ", ".join(str(row) for row in list(rows)[:_SHOWN])
    more = ", ..." if len(rows) > _SHOWN else ""
    return f"{rows.total()} of {what}: {shown}{more}"
