"""Lookups: their arguments, and their operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headgate._arguments import arrow_schema, function, one_of, refuse, takes
from headgate._kinds import kind_of
from headgate.errors import StreamError
from headgate.source import Boundedness, FileSource, Source
from headgate.source.local import read
from headgate.stream.api.checks import OPERATOR, check_suffixes
from headgate.stream.api.stream_calls import StreamCalls, StreamT
from headgate.stream.operators.joining import joined_columns
from headgate.stream.operators.lookup import LookupOperator
from headgate.stream.operators.results import learned_schema
from headgate.stream.operators.sides import sides_of
from headgate.stream.state.groups import check_keys
from headgate.stream.state.types import check_columns, column_index, no_rows

if TYPE_CHECKING:
    from headgate.stream.graph.context import FunctionRows


def lookup_of(
    rows: pa.Schema, table: Any, *, on: Any, how: Any, schema: pa.Schema | None, suffixes: Any
) -> tuple[Callable[[], LookupOperator], pa.Schema]:
    """Return the operator that looks rows up, and the schema of its result.

    Args:
        rows: schema of the stream.
        table: as for :meth:`DataStream.lookup`, as are the others.
        on: the columns by which rows match.
        how: the kind of join.
        schema: of what a function returns.
        suffixes: what names get that both sides have.
    """
    one_of("inner", "left")("how", how)
    names = _on(on)
    check_columns(rows)
    for column in names:
        column_index(rows, column, "on={}")
    keys = pa.schema([rows.field(column) for column in names])
    check_keys(keys)
    load, function, of_table = _table(table, schema, keys)
    check_columns(of_table)
    for column, other in names.items():
        column_index(of_table, other, "on={}")
        types = rows.field(column).type, of_table.field(other).type
        if types[0] != types[1]:
            raise StreamError(
                f"lookup() by column {other!r} of another type than column {column!r}",
                asked=str(types[1]),
                have=str(types[0]),
                remedy="cast one of them",
            )
    sides = sides_of(rows, tuple(names), of_table, tuple(names.values()))
    columns = joined_columns(sides, how, check_suffixes(suffixes))
    return partial(LookupOperator, load, function, sides, columns, how), columns.schema


def _on(on: Any) -> dict[str, str]:
    """Return the columns of the stream, each with that of the table."""
    if isinstance(on, str):
        on = [on]
    if isinstance(on, Sequence):
        on = {column: column for column in on if isinstance(column, str)}
    texts = [*on.keys(), *on.values()] if isinstance(on, Mapping) else []
    if not texts or not all(isinstance(column, str) for column in texts):
        raise refuse(
            "on",
            on,
            f"is {kind_of(on)}",
            "a column, several, or a dict of columns of the stream and of the table",
            'on="user" · on=["user", "day"] · on={"user": "id"}',
        )
    if len(set(on.values())) < len(on):
        raise refuse("on", on, "has a column of the table twice", "different columns")
    return dict(on)


def _table(
    table: Any, schema: pa.Schema | None, keys: pa.Schema
) -> tuple[Callable[[], Iterable[pa.RecordBatch]] | None, Any, pa.Schema]:
    """Return what loads the rows to look up, or the function that finds them; and their schema.

    Raises:
        OptionError: no rows, or a source that never ends.
        UserFunctionError: the function failed without rows.
    """
    if isinstance(table, str):
        table = FileSource(table)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, (pa.Table, Source)):
        takes = "a Table of pyarrow · a path · a Source that ends · def f(keys): ..., which returns rows"
        function("table", table, 1, takes)
        if schema is None:
            schema = learned_schema("lookup()", table, no_rows(keys))
        return None, table, schema.remove_metadata()
    if schema is not None:
        raise refuse("schema", schema, "is there without a function", "None beside rows")
    if isinstance(table, pa.Table):
        return table.to_batches, None, table.schema.remove_metadata()
    if table.boundedness is not Boundedness.BOUNDED:
        raise refuse(
            "table",
            table,
            "never ends",
            "a source that ends",
            "join(other, as_of=) with a stream · a function that looks rows up",
        )
    if table.schema is None:
        raise refuse("table", table, "has no schema", "a source of record batches with a schema")
    return partial(_read, table), None, table.schema.remove_metadata()


def _read(source: Source[Any, Any, Any]) -> list[pa.RecordBatch]:
    with read(source) as batches:
        return list(batches)


class LookupCalls(StreamCalls[StreamT]):
    """A stream, as far as it looks up rows that are no stream."""

    @takes(schema=arrow_schema, **OPERATOR)
    def lookup(
        self,
        table: pa.Table
        | pa.RecordBatch
        | str
        | Source[Any, Any, Any]
        | Callable[[pa.RecordBatch], FunctionRows],
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: Literal["inner", "left"] = "inner",
        schema: pa.Schema | None = None,
        suffixes: tuple[str, str] = ("", "_right"),
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamT:
        """Add the columns of rows that do not come as a stream. A key with several rows gives all of them.

        Args:
            table: a table, which each worker gets with the job; a path of files or a source that ends, which each task reads
                when it starts, and again after a failure; or a function that gets a batch of the distinct keys of a
                batch, under the stream's names, and returns rows with the columns of ``on``.
            on: the columns by which rows match: of the same names in both, or a dict of columns of the stream and of the
                table. A null matches nothing.
            how: ``"left"`` to keep rows without a match, with nulls.
            schema: of what a function returns. If not given, it is called with a batch without rows, here.
            suffixes: what the columns of each side get behind a name that both sides have.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnknownColumnError: a column that is not there.
            UnsupportedTypeError: a column of a type that cannot be a key, or whose rows pyarrow cannot choose.
            StreamError: columns of ``on`` with different types; two columns of the result with one name.
            UserFunctionError: the function failed without rows.
        """
        make, result = lookup_of(
            self.schema, table, on=on, how=how, schema=schema, suffixes=suffixes
        )
        return self._then("lookup", name, make, result, parallelism)
