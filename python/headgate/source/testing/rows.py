"""Comparison of records row by row, so that the size of a batch does not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, Final

import pyarrow as pa

#: Rows that a difference shows.
_SHOWN: Final = 3


def rows_of(record: Any) -> list[Any]:
    """Return the rows of a batch or table as tuples, or any other record as the only row."""
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
    """Return a key to count a row by: its repr if it is a tuple (NaN, lists) or not hashable."""
    if isinstance(row, tuple):
        return repr(row)
    return row if isinstance(row, Hashable) else repr(row)


def difference(actual: Iterable[Any], expected: Iterable[Any]) -> str:
    """Return the missing and the surplus rows as a string, which is empty if there are none."""
    have, want = Counter(map(key_of, actual)), Counter(map(key_of, expected))
    return " and ".join(
        text
        for text in (_sample("missing", want - have), _sample("too much", have - want))
        if text is not None
    )


def _sample(what: str, rows: Counter[Hashable]) -> str | None:
    if not rows:
        return None
    shown = ", ".join(str(row) for row in list(rows)[:_SHOWN])
    more = ", ..." if len(rows) > _SHOWN else ""
    return f"{rows.total()} of {what}: {shown}{more}"
