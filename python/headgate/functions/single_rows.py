"""Rows that a function returns one by one, as dicts, put together into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate._columns import column_of
from headgate.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

#: Bytes of a number, and of each item of a list.
_NUMBER: Final = 8
_WHOSE: Final = "the dicts that the function by key returned"


class SingleRows:
    """Gathers rows until they make a batch.

    Args:
        batch_bytes: of a batch, by the sizes of the values.
        nan_is_null: True for values of pandas, which has one missing value.
    """

    def __init__(self, batch_bytes: int, *, nan_is_null: bool) -> None:
        self._batch_bytes = batch_bytes
        self._nan_is_null = nan_is_null
        self._names: list[str] = []
        self._columns: list[list[Any]] = []
        self._size = 0

    def add(self, row: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """Add a row; yield a batch if there are enough rows.

        Raises:
            SchemaMismatchError: the row has no columns, or other columns than those before it.
        """
        names = list(row)
        if names != self._names or not names:
            self._check(names)
        for column, name in zip(self._columns, self._names, strict=True):
            value = row[name]
            column.append(value)
            self._size += _size_of(value)
        if self._size >= self._batch_bytes:
            yield from self.take()

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that wait, if there are any.

        Raises:
            SchemaMismatchError: the values of a column have several types.
        """
        if not self._columns or not self._columns[0]:
            return
        import pyarrow as pa  # noqa: PLC0415 - only workers need it

        columns, self._columns, self._size = self._columns, [[] for _ in self._names], 0
        arrays = [
            column_of(values, name, _WHOSE, nan_is_null=self._nan_is_null)
            for name, values in zip(self._names, columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=self._names)

    def _check(self, names: list[str]) -> None:
        if self._names and set(names) == set(self._names):
            return  # in another order
        if not names or self._names:
            raise SchemaMismatchError(
                f"the function by key returned a dict with {_listed(names)}",
                asked=_listed(self._names or ["a value for each column"]),
                remedy="return the same columns each time, None where there is no value",
            )
        self._names = names
        self._columns = [[] for _ in names]


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "no columns"


def _size_of(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    if size is not None:
        return int(size)
    if isinstance(value, (str, bytes)):
        return _NUMBER + len(value)
    return _NUMBER * (1 + len(value) if isinstance(value, (list, tuple, dict)) else 1)
