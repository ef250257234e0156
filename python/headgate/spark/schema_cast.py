"""Gives batches the schema that was declared: columns by name, types where nothing is lost.

What ``map`` and ``reduce`` return and what a source reads goes through it, on the way to the writer
and on the way to Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

#: Most columns that an error names, of each kind.
_NAMED: Final = 8
#: Names of types that hold the same values.
_ENCODINGS: Final = (
    {"string", "large_string", "string_view"},
    {"binary", "large_binary", "binary_view"},
)


class SchemaCast:
    """Casts batches to a schema; a batch that has it already is returned as it is.

    Names and types are compared once per schema that comes, not once per batch.

    Args:
        schema: the declared one.
        function: the name of what returns the batches, for the error text.
        option: the option that declares the schema, for the error text.
        accepts: returns True for a type that the receiver takes for another one without a cast.
    """

    def __init__(
        self,
        schema: pa.Schema,
        function: str,
        option: str = "schema",
        accepts: Callable[[pa.DataType, pa.DataType], bool] | None = None,
    ) -> None:
        self._schema = schema
        self._function = function
        self._option = option
        self._accepts = accepts or same_type
        self._not_null = [i for i, field in enumerate(schema) if _forbids_nulls(field)]
        self._seen: pa.Schema | None = None
        #: For each declared column its place in the batch and True where it needs a cast; None where
        #: all columns are in their places and of their types.
        self._steps: list[tuple[int, bool]] | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the declared columns.

        Raises:
            SchemaMismatchError: a column is missing, unexpected or of a type that may lose something;
                a value does not fit; a null in a column that must not have one.
        """
        given = batch.schema
        if self._seen is None or not (given is self._seen or given == self._seen):
            self._steps = self._steps_from(given)
            self._seen = given
        if self._steps is not None:
            batch = self._cast(batch, self._steps)
        for index in self._not_null:
            if _has_forbidden_null(batch.column(index), self._schema.field(index)):
                raise self._error(
                    given,
                    f"null in column {self._schema.names[index]!r}, which is declared NOT NULL",
                )
        return batch

    def all(self, made: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """Yield what a function returns, batches or tables of any Arrow library, cast.

        Raises:
            SchemaMismatchError: as for one batch; something that is neither a batch nor a table.
        """
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        for item in made:
            if isinstance(item, pa.RecordBatch):
                yield self(item)
            elif hasattr(item, "__arrow_c_stream__"):
                yield from map(self, pa.RecordBatchReader.from_stream(item))
            elif hasattr(item, "__arrow_c_array__"):
                yield self(pa.record_batch(item))
            else:
                raise SchemaMismatchError(
                    f"{self._function} returned a {type(item).__name__}, not a record batch",
                    asked=_words(self._schema),
                    remedy="yield pyarrow.RecordBatch.from_pylist(rows)",
                )

    def _steps_from(self, given: pa.Schema) -> list[tuple[int, bool]] | None:
        want = self._schema
        if given.names == want.names:
            places = list(range(len(want)))
        else:
            missing = [name for name in want.names if name not in given.names]
            extra = [name for name in given.names if name not in want.names]
            if missing or extra or len(given) != len(want):
                raise self._error(given, _difference(missing, extra, given, want), extra=extra)
            if len(set(want.names)) < len(want):
                raise self._error(given, "columns of the same name in another order")
            places = [given.get_field_index(name) for name in want.names]
        steps = []
        for place, field in zip(places, want, strict=True):
            have = given.field(place).type
            needs_cast = not self._accepts(have, field.type)
            if needs_cast and not is_lossless(have, field.type):
                raise self._error(
                    given, f"{have} in column {field.name!r}, which is declared {field.type}"
                )
            steps.append((place, needs_cast))
        if any(needs_cast for _, needs_cast in steps) or places != list(range(len(want))):
            return steps
        return None

    def _cast(self, batch: pa.RecordBatch, steps: list[tuple[int, bool]]) -> pa.RecordBatch:
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        columns: list[pa.Array] = []
        fields: list[pa.Field] = []
        for (place, needs_cast), field in zip(steps, self._schema, strict=True):
            column = batch.column(place)
            if needs_cast:
                try:
                    column = cast(column, field.type)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    problem = f"a value in column {field.name!r} that {field.type} cannot hold"
                    raise self._error(batch.schema, problem, why=str(error)) from error
            columns.append(column)
            fields.append(pa.field(field.name, column.type, field.nullable))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _error(
        self, given: pa.Schema, problem: str, *, extra: Iterable[str] = (), why: str = ""
    ) -> SchemaMismatchError:
        lines = []
        if extra and set(self._schema.names) <= set(given.names):
            lines.append(f"yield batch.select({self._schema.names!r})")
        elif why:
            lines.append("round or cast the column in the function")
        declaration = _ddl(given)
        if declaration and not why:
            lines.append(f'{self._option}="{declaration}"')
        return SchemaMismatchError(
            f"{self._function} returned {problem}",
            asked=_words(self._schema),
            have=_words(given) + (f": {why}" if why else ""),
            remedy=" · ".join(lines),
        )


def same_type(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether two types are one for Spark, which takes time stamps of any zone as instants."""
    if have == want:
        return True
    return str(have).startswith("timestamp[us, ") and str(want).startswith("timestamp[us, ")


def same_on_the_wire(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether the writer encodes a type as the other one without a cast before."""
    from pyarrow import types  # noqa: PLC0415 - slow to import

    if same_type(have, want):
        return True
    if types.is_dictionary(have):
        have = have.value_type
    return any({str(have), str(want)} <= names for names in _ENCODINGS)


def is_lossless(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a cast keeps each value or raises, and means the same afterwards."""
    from pyarrow import types  # noqa: PLC0415 - slow to import

    if types.is_dictionary(have):
        return is_lossless(have.value_type, want)
    if have == want or types.is_null(have):
        return True
    if _is_list(have):
        return types.is_list(want) and _is_lossless_inside(have.value_type, want.value_type)
    if types.is_map(have):
        return (
            types.is_map(want)
            and _is_lossless_inside(have.key_type, want.key_type)
            and _is_lossless_inside(have.item_type, want.item_type)
        )
    if types.is_struct(have):
        mine, theirs = list(have), list(want) if types.is_struct(want) else []
        return [field.name for field in mine] == [field.name for field in theirs] and all(
            _is_lossless_inside(a.type, b.type) for a, b in zip(mine, theirs, strict=True)
        )
    return _is_lossless_value(have, want)


def _is_lossless_inside(have: pa.DataType, want: pa.DataType) -> bool:
    # Of views inside other columns Arrow itself would make the cast, see `cast`.
    return not _is_view_of_list(have) and is_lossless(have, want)


def _is_lossless_value(have: pa.DataType, want: pa.DataType) -> bool:
    from pyarrow import types  # noqa: PLC0415 - slow to import

    if types.is_integer(have):
        # Pyarrow compares each value with the limits, of a float with those of its whole numbers.
        return bool(types.is_integer(want) or types.is_floating(want) or types.is_decimal(want))
    if types.is_floating(have):
        return bool(types.is_floating(want) and have.bit_width <= want.bit_width)
    if types.is_timestamp(have):
        return bool(types.is_timestamp(want) and (have.tz is None) == (want.tz is None))
    kinds = (types.is_decimal, types.is_duration, types.is_date)
    name = "binary" if types.is_fixed_size_binary(have) else str(have)
    return any(is_kind(have) and is_kind(want) for is_kind in kinds) or any(
        {name, str(want)} <= names for names in _ENCODINGS
    )


def cast(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Return the column as another type.

    Raises:
        ArrowInvalid: a value does not fit.
        ArrowNotImplementedError: this pyarrow has no such cast.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import
    from pyarrow import types  # noqa: PLC0415 - slow to import

    have = column.type
    if types.is_dictionary(have):
        # Arrow 26 cannot decode a dictionary of views, which polars gives.
        return cast(column.dictionary, want).take(column.indices)
    if _is_view_of_list(have):
        # Arrow 26 drops values where it casts a view and its values at once.
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
        offsets = [0]
        for length in lengths:
            offsets.append(offsets[-1] + length)
        values = cast(column.flatten(), want.value_type)
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), values, want, mask=column.is_null()
        )
    return column.cast(want)


def _is_list(kind: pa.DataType) -> bool:
    from pyarrow import types  # noqa: PLC0415 - slow to import

    plain = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(plain) or _is_view_of_list(kind)


def _is_view_of_list(kind: pa.DataType) -> bool:
    # By name: the oldest pyarrow that we support has no views.
    return str(kind).startswith(("list_view", "large_list_view"))


def _forbids_nulls(field: pa.Field) -> bool:
    from pyarrow import types  # noqa: PLC0415 - slow to import

    kind = field.type
    if not field.nullable:
        return True
    if types.is_list(kind):
        return _forbids_nulls(kind.value_field)
    if types.is_map(kind):
        return _forbids_nulls(kind.item_field)
    return types.is_struct(kind) and any(_forbids_nulls(inner) for inner in kind)


def _has_forbidden_null(column: pa.Array, field: pa.Field) -> bool:
    from pyarrow import types  # noqa: PLC0415 - slow to import

    if not field.nullable and column.null_count:
        return True
    kind = field.type
    if types.is_list(kind) and _forbids_nulls(kind.value_field):
        return _has_forbidden_null(column.flatten(), kind.value_field)
    if types.is_map(kind) and _forbids_nulls(kind.item_field):
        entries = column.drop_null()  # what a null map hides counts for nobody
        start, end = (entries.offsets[place].as_py() for place in (0, len(entries)))
        return _has_forbidden_null(entries.items[start:end], kind.item_field)
    if types.is_struct(kind):
        inner = column.drop_null().flatten()
        return any(_has_forbidden_null(child, of) for child, of in zip(inner, kind, strict=True))
    return False


def _difference(missing: list[str], extra: list[str], given: pa.Schema, want: pa.Schema) -> str:
    parts = []
    for word, names in (("no column", missing), ("an unexpected column", extra)):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            parts.append(f"{word} {', '.join(map(repr, names[:_NAMED]))}{more}")
    return " and ".join(parts) or f"{len(given)} columns where {len(want)} are declared"


def _words(schema: pa.Schema) -> str:
    not_null = (" not null", "")
    return ", ".join(f"{f.name}: {f.type}{not_null[f.nullable]}" for f in schema) or "no columns"


def _ddl(schema: pa.Schema) -> str:
    """Return a schema as the line that declares it in Spark; empty where Spark has no such type."""
    from headgate.errors import UnsupportedTypeError  # noqa: PLC0415 - only in an error
    from headgate.spark.source_schema import spark_schema  # noqa: PLC0415 - only in an error

    try:
        fields = spark_schema(schema).fields
    except UnsupportedTypeError:
        return ""
    names = [name if name.isidentifier() else f"`{name}`" for name in schema.names]
    kinds = [field.dataType.simpleString() for field in fields]
    return ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
