"""The column by which rows are equal, for calls whose results are remembered. Decision: ADR 0060."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate._kinds import kind_of
from headgate.errors import UserFunctionError
from headgate.stream.operators.calls.rows import DIGEST
from headgate.stream.state.values import storage_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Values that a function of a row may return: of others the text differs from run to run.
_PLAIN: Final = (str, bytes, int, float, Decimal, date, datetime, time, timedelta, type(None))


class DigestColumn:
    """Adds the column by which rows are equal; called with each batch.

    Args:
        schema: of the rows.
        columns: positions of those that make rows equal, if there is no function.
        keys: positions of the keys of the stream, by which rows are told apart first.
        function: of a row as a dict, whose value makes rows equal.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: Sequence[int],
        keys: Sequence[int],
        function: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        self.schema = pa.schema([*schema, pa.field(DIGEST, pa.binary(), nullable=False)])
        self._columns, self._keys = tuple(columns), tuple(keys)
        self._function = function

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the column.

        Raises:
            UserFunctionError: the function returned what has no content.
        """
        places = self._keys if self._function else (*self._keys, *self._columns)
        columns: list[Sequence[Any]] = [_plain_values(batch.column(at)) for at in places]
        if self._function is not None:
            columns.append([_checked(self._function(row)) for row in batch.to_pylist()])
        # The texts of values are the same in all processes, other than their hashes.
        digests = [_digest(repr(row)) for row in zip(*columns, strict=True)]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(digests, pa.binary())], schema=self.schema
        )


def _plain_values(column: pa.Array) -> list[Any]:
    """Return the values; times as numbers, since Python has no ns."""
    stored = storage_type(column.type)
    is_as_stored = stored is None or stored == column.type
    return (column if is_as_stored else column.view(stored)).to_pylist()  # type: ignore[no-any-return]


def _checked(value: Any) -> Any:
    parts = value if isinstance(value, (tuple, list)) else (value,)
    if not all(isinstance(part, _PLAIN) for part in parts):
        raise UserFunctionError(
            f"memo= returned {kind_of(value)}, which has no content to compare",
            have="a text, bytes, a number, a time, None, or a tuple of these",
            remedy='memo=lambda row: (row["model"], row["text"])',
        )
    return value


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
