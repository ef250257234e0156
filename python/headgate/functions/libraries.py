"""The libraries that a user's function may ask for. None of them is a dependency of the wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    import pyarrow as pa

Library: TypeAlias = Literal["arrow", "polars", "pandas"]
LIBRARIES: Final[tuple[str, ...]] = get_args(Library)


def as_library(table: pa.Table, library: Library) -> Any:
    """Return the table as an object of the library: itself, or a DataFrame."""
    if library == "polars":
        import polars as pl  # noqa: PLC0415 - only if the user asks for it

        return pl.from_arrow(table)
    return table.to_pandas() if library == "pandas" else table
