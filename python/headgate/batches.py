"""The batches that ``map`` and ``reduce`` get, and those that they may return."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, Self, TypeAlias

from headgate._arguments import refuse
from headgate._columns import table_of
from headgate._kinds import kind_of
from headgate.errors import SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowStream(Protocol):
    """A table, a DataFrame of polars or pandas, a reader: what other libraries read as batches."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a PyCapsule of an Arrow stream."""


class ArrowBatch(Protocol):
    """A record batch of any library."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        """Return PyCapsules of an Arrow schema and an Arrow array."""


Rows: TypeAlias = ArrowStream | ArrowBatch
#: The type of ``map`` and ``reduce``: each parameter is a :class:`Batches`.
BatchFunction: TypeAlias = Callable[..., Iterable[Rows] | Rows]


_NOT_A_BATCH: Final = "this is an iterator of batches, not a batch: for batch in batches: batch{0} · batches.read_all(){0}"


class Batches:
    """An iterator of record batches that other libraries take as an Arrow stream.

    So ``pl.DataFrame(batches)``, ``duckdb.from_arrow(batches)``, ``pa.table(batches)`` and
    ``batches.read_all().to_pandas()`` work, also if there are no batches. Each of them takes the batches
    that were not taken yet.

    Args:
        batches: the batches, of one schema.
        schema: of the batches if there are none; that of the first batch otherwise.

    Example:
        >>> import pyarrow as pa
        >>> from headgate.batches import Batches
        >>> batch = pa.record_batch({"user": ["ann", "bob"], "n": [1, 2]})
        >>> batches = Batches([batch, batch], batch.schema)
        >>> batches.schema.names
        ['user', 'n']
        >>> next(batches).num_rows
        2
        >>> pa.table(batches).column("n").to_pylist()
        [1, 2]
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        if isinstance(batches, (str, bytes, Mapping)) or not isinstance(batches, Iterable):
            raise refuse("batches", batches, f"is {kind_of(batches)}", "record batches")
        self._batches = iter(batches)
        self._schema = schema
        #: The first batch if only its schema was asked for.
        self._first: pa.RecordBatch | None = None
        self._has_begun = False

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches. It waits for the first one."""
        try:
            return self._known_schema()
        except AttributeError as error:
            # Python would take it for a missing attribute of this class.
            raise RuntimeError(f"the first batch could not be had: {error}") from error

    def _known_schema(self) -> pa.Schema:
        if not self._has_begun:
            self._first = next(self, None)
        return self._schema

    def read_all(self) -> pa.Table:
        """Return the rows of all batches that were not taken yet."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        schema = self._known_schema()
        return pa.Table.from_batches(self, schema)

    def was_left_early(self) -> bool:
        """Return True if batches were taken and others were left; one of these is lost."""
        return self._has_begun and self._first is None and next(self, None) is not None

    def __iter__(self) -> Self:
        """Return itself."""
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch."""
        first, self._first = self._first, None
        if first is not None:
            return first
        try:
            batch = self._take()
        finally:
            has_begun, self._has_begun = self._has_begun, True
        if not has_begun:
            if not hasattr(batch, "schema"):
                raise refuse("batches", batch, f"is {kind_of(batch)}", "record batches")
            self._schema = batch.schema
        return batch

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a PyCapsule of an Arrow stream over the batches that were not taken yet."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        reader = pa.RecordBatchReader.from_batches(self._known_schema(), self)
        return reader.__arrow_c_stream__(requested_schema)

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error that says what to do, if a batch or a table has the attribute."""
        import pyarrow as pa  # noqa: PLC0415 - only in an error

        if hasattr(pa.RecordBatch, name) or hasattr(pa.Table, name):
            raise AttributeError(_NOT_A_BATCH.format(f".{name}"), name=name, obj=self)
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
        )

    def __getitem__(self, key: object) -> NoReturn:
        """Raise an error that says what to do."""
        raise TypeError(_NOT_A_BATCH.format(f"[{key!r}]"))

    def _take(self) -> pa.RecordBatch:
        """Return the next batch of the origin."""
        return next(self._batches)


def returned(name: str, result: Any) -> Iterator[Any]:
    """Return the batches of what a function returned; what has none is left as it is.

    Args:
        name: of the function.
        result: an iterable of batches, of tables or of DataFrames of any library with Arrow's PyCapsule
            interface, or of pandas; or one of these.

    Raises:
        SchemaMismatchError: it cannot have rows, or has a None among its batches.
    """
    return _flat(name, _items(name, result))


def refuse_early_return(name: str, result: Any, sources: Iterable[Batches]) -> None:
    """Refuse one batch that is returned before all batches were taken, as by ``return`` in a loop.

    A table may be of a library that stops at a limit, so it is not refused.

    Args:
        name: of the function.
        result: what it returned.
        sources: what it was given.

    Raises:
        SchemaMismatchError: some batches would be dropped.
    """
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    if isinstance(result, pa.RecordBatch) and any(source.was_left_early() for source in sources):
        raise SchemaMismatchError(
            f"{name} returned a batch before it had taken all batches",
            asked=f"the rows of all batches from {name}",
            remedy="yield each batch, in place of return · batches.read_all() takes all rows",
            details={"function": name},
        )


def _flat(name: str, items: Iterable[Any]) -> Iterator[Any]:
    try:
        for item in items:
            if item is None:
                raise _is_none(name, "yielded")
            yield from batches_of(item, name)
    finally:
        if isinstance(items, Generator):
            items.close()


def _items(name: str, result: Any) -> Iterable[Any]:
    """Return what a function returned as an iterable of objects that have rows."""
    is_one = hasattr(result, "__arrow_c_stream__") or hasattr(result, "__arrow_c_array__")
    if not isinstance(result, Batches) and (is_one or _is_pandas(result)):
        return (result,)
    if isinstance(result, Iterable) and not isinstance(result, (str, bytes, Mapping)):
        return result
    if result is None:
        raise _is_none(name, "returned")
    remedy = "yield each batch · return a table, or a DataFrame of polars or pandas"
    if isinstance(result, Mapping):
        remedy = "pyarrow.Table.from_pylist([...]) of dicts · a dict for each key is for per_key()"
    elif isinstance(result, Coroutine):
        result.close()  # nobody will await it
        remedy = "a plain function · map_async() of a stream, which awaits"
    raise SchemaMismatchError(
        f"{name} returned {kind_of(result)}, not batches",
        asked=f"an iterator of record batches from {name}",
        remedy=remedy,
    )


def _is_none(name: str, how: str) -> SchemaMismatchError:
    """Return the error for None: a forgotten ``return`` must not look like a function without rows."""
    return SchemaMismatchError(
        f"{name} {how} None",
        asked=f"record batches from {name}",
        remedy="return or yield batches, tables or DataFrames · [] or an empty one, such as "
        "batch.slice(0, 0), if there are no rows",
        details={"function": name},
    )


def batches_of(item: Any, name: str = "the function") -> Iterable[Any]:
    """Return the batches of a batch, a table or a DataFrame; the item itself if it is none of them.

    Args:
        item: what a function returned.
        name: of the function, for errors.

    Raises:
        SchemaMismatchError: a DataFrame of pandas has values that make no column.
    """
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    if isinstance(item, pa.RecordBatch):
        return (item,)
    if isinstance(item, pa.Table):
        return item.to_batches()  # type: ignore[no-any-return]
    if _is_pandas(item):
        batches: list[pa.RecordBatch] = table_of(item, name).to_batches()
        return batches
    try:
        if hasattr(item, "__arrow_c_stream__"):
            stream: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(item)
            return stream
        return (pa.record_batch(item),) if hasattr(item, "__arrow_c_array__") else (item,)
    except pa.ArrowInvalid:
        return (item,)  # a single column


def schema_of(name: str, result: Any) -> pa.Schema | None:
    """Return the schema of the first rows of what a function returned, which may be none; None if there is nothing.

    Args:
        name: of the function.
        result: as for :func:`returned`.

    Raises:
        SchemaMismatchError: it cannot have rows.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    for item in _items(name, result):
        if isinstance(item, (pa.RecordBatch, pa.Table)):
            return item.schema
        if _is_pandas(item):
            return table_of(item, name).schema
        with suppress(pa.ArrowInvalid):  # a single column
            if hasattr(item, "__arrow_c_stream__"):
                return pa.RecordBatchReader.from_stream(item).schema
            if hasattr(item, "__arrow_c_array__"):
                return pa.record_batch(item).schema
        raise SchemaMismatchError(
            f"{name} returned {kind_of(item)}, not a record batch",
            remedy="return batches, tables or DataFrames",
        )
    return None


def joined(items: Iterable[Any], batch_bytes: int) -> Iterator[Any]:
    """Yield the same rows in batches of up to ``batch_bytes``.

    A larger batch stays as it is. Batches are joined to those before them if they have the same columns;
    what is no batch is passed on.
    """
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    waiting: list[pa.RecordBatch] = []
    size = 0
    for item in items:
        more = item.nbytes if isinstance(item, pa.RecordBatch) else None
        fits = more is not None and size + more <= batch_bytes
        if waiting and not (fits and item.schema.equals(waiting[0].schema)):
            yield _joined(waiting)
            waiting, size = [], 0
        if more is None:
            yield item
        else:
            waiting.append(item)
            size += more
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    columns = [
        pa.concat_arrays([batch.column(place) for batch in batches])
        for place in range(first.num_columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=first.schema)


def _is_pandas(item: Any) -> bool:
    kind = type(item)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"
