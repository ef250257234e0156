"""The libraries that a user's function may ask for. None of them is a dependency of the wheel."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from headgate.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

Library: TypeAlias = Literal["arrow", "polars", "pandas", "pandas_nullable"]
LIBRARIES: Final[tuple[str, ...]] = get_args(Library)
#: Forms of a group: an object of a library, or an iterator of its batches.
GroupForm: TypeAlias = Literal["arrow", "polars", "pandas", "pandas_nullable", "batches"]
#: The libraries that have one missing value: a NaN of theirs is a null.
PANDAS: Final = frozenset({"pandas", "pandas_nullable"})
#: From here on a float may stand for several whole numbers.
_INEXACT: Final = 2**53


def as_library(table: pa.Table, library: Library) -> Any:
    """Return the table as an object of the library: itself, or a DataFrame.

    Raises:
        SchemaMismatchError: pandas would make floats of whole numbers that floats do not hold.
    """
    if library == "arrow":
        return table
    if library == "polars":
        import polars as pl  # noqa: PLC0415 - only if the user asks for it

        return pl.from_arrow(table, rechunk=False)  # no copy of a large group
    is_nullable = library == "pandas_nullable"
    for name, column in zip(table.column_names, table.columns, strict=True):
        _check_whole(name, column, is_nested=False, is_nullable=is_nullable)
    return table.to_pandas(types_mapper=_nullable_type if is_nullable else None)


def _nullable_type(kind: pa.DataType) -> Any:
    """Return the type of pandas that has nulls, for whole numbers and booleans; None for others."""
    from pyarrow import types  # noqa: PLC0415

    pd = import_module("pandas")  # only if the user asks for it
    if types.is_boolean(kind):
        return pd.BooleanDtype()
    if not types.is_integer(kind):
        return None
    unsigned = "U" if types.is_unsigned_integer(kind) else ""
    return getattr(pd, f"{unsigned}Int{kind.bit_width}Dtype")()


def _check_whole(
    name: str, column: pa.ChunkedArray | pa.Array, *, is_nested: bool, is_nullable: bool
) -> None:
    """Refuse whole numbers beside nulls that are too large for the floats that pandas makes of them."""
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import
    from pyarrow import types  # noqa: PLC0415

    kind = column.type
    if types.is_integer(kind):
        if not column.null_count or (is_nullable and not is_nested):
            return
        ends = pc.min_max(column).as_py()
        if ends["min"] is None or (ends["min"] > -_INEXACT and ends["max"] < _INEXACT):
            return
        raise SchemaMismatchError(
            f"column {name!r} has nulls and numbers of which pandas would make other ones",
            asked='as_="pandas", which makes floats of whole numbers beside nulls',
            have=f"{ends['min']} to {ends['max']}",
            remedy='as_="arrow" · as_="polars"'
            + ("" if is_nested else ' · as_="pandas_nullable", which gives Int64'),
        )
    for child in _children(column):
        _check_whole(name, child, is_nested=True, is_nullable=is_nullable)


def _children(column: pa.ChunkedArray | pa.Array) -> Iterator[pa.Array]:
    """Yield the columns inside a nested one."""
    from pyarrow import types  # noqa: PLC0415

    kind = column.type
    if not types.is_nested(kind):
        return
    for chunk in getattr(column, "chunks", [column]):
        if types.is_struct(kind):
            yield from chunk.flatten()
        elif types.is_map(kind):
            yield from (chunk.keys, chunk.items)
        elif hasattr(chunk, "flatten"):
            yield chunk.flatten()
