"""Casts batches to the declared schema: matches columns by name, casts types if no value is lost.

Batches from a function and from a source are cast before they are sent or returned to Spark.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headgate._kinds import kind_of
from headgate.batches import batches_of
from headgate.errors import SchemaMismatchError
from headgate.schemas import columns_text, difference, how_to_cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

#: Groups of types that hold the same values.
_ENCODINGS: Final = (
    {"string", "large_string", "string_view"},
    {"binary", "large_binary", "binary_view"},
)


class SchemaCast:
    """Casts batches to a schema; returns a batch that has the schema unchanged.

    Names and types are compared only when the schema of the batches changes, not for each batch.

    Args:
        schema: the declared schema.
        function: producer of the batches for the error text, such as "map".
        option: the option that declares the schema, for the error text; empty if there is none.
        accepts: returns True if the receiver takes the first type as the second one without a cast.
    """

    #: Between the producer and what is wrong with its batch, in the error text.
    verb: ClassVar[str] = "returned"

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
        #: Columns that may have no null, and True if that is so within their values too.
        self._not_null = [
            (i, bool(field.type.num_fields))
            for i, field in enumerate(schema)
            if _forbids_nulls(field)
        ]
        self._last_schema: pa.Schema | None = None
        #: For each declared column, its index in the batch and True if it needs a cast. None if the
        #: batch has the declared columns already.
        self._steps: list[tuple[int, bool]] | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the declared columns.

        Raises:
            SchemaMismatchError: A column is missing or not expected, or its type cannot be cast
                without loss; a value does not fit the declared type; a column that is declared NOT
                NULL has a null.
        """
        actual = batch.schema
        if self._last_schema is None or not (
            actual is self._last_schema or actual == self._last_schema
        ):
            self._steps = self._steps_from(actual)
            self._last_schema = actual
        if self._steps is not None:
            batch = self._cast(batch, self._steps)
        for index, is_nested in self._not_null:
            column = batch.column(index)
            if is_nested:
                has_null = _has_forbidden_null(column, self._schema.field(index))
            else:
                has_null = column.null_count > 0
            if has_null:
                raise self._error(
                    actual,
                    f"null in column {self._schema.names[index]!r}, which is declared NOT NULL",
                )
        return batch

    def all(self, items: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """Cast and yield all batches that a function returns.

        Tables and batches of any library with Arrow's PyCapsule interface are taken too.

        Raises:
            SchemaMismatchError: As for one batch; or an item is neither a batch nor a table.
        """
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        for item in items:
            for batch in batches_of(item, self._function):
                if not isinstance(batch, pa.RecordBatch):
                    what = kind_of(item)
                    raise SchemaMismatchError(
                        f"{self._function} returned {what}, not a record batch",
                        asked=columns_text(self._schema),
                        remedy="yield pyarrow.RecordBatch.from_pylist(rows)",
                    )
                yield self(batch)

    def _steps_from(self, actual: pa.Schema) -> list[tuple[int, bool]] | None:
        want = self._schema
        if actual.names == want.names:
            places = list(range(len(want)))
        else:
            names, wanted = set(actual.names), set(want.names)
            missing = [name for name in want.names if name not in names]
            extra = [name for name in actual.names if name not in wanted]
            if missing or extra or len(actual) != len(want):
                raise self._error(actual, difference(missing, extra, actual, want), extra=extra)
            if len(wanted) < len(want):
                raise self._error(actual, "several columns of one name, in another order")
            places = [actual.get_field_index(name) for name in want.names]
        steps = []
        for place, field in zip(places, want, strict=True):
            have = actual.field(place).type
            needs_cast = not self._accepts(have, field.type)
            if needs_cast and not is_castable(have, field.type):
                raise self._error(
                    actual,
                    f"{have} in column {field.name!r}, which is declared {field.type}",
                    how=how_to_cast(field.name, have, field.type),
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

    def _declaration(self, schema: pa.Schema) -> str:
        """Return the schema as a user writes it; empty if it is not known how."""
        fields = ", ".join(f"({field.name!r}, pa.{field.type}())" for field in schema)
        return f"pa.schema([{fields}])" if all(_is_plain(field.type) for field in schema) else ""

    def _error(
        self,
        actual: pa.Schema,
        problem: str,
        *,
        extra: Iterable[str] = (),
        why: str = "",
        how: str = "",
    ) -> SchemaMismatchError:
        lines = [how] if how else []
        if extra and set(self._schema.names) <= set(actual.names):
            lines.append(f"yield batch.select({self._schema.names!r})")
        elif why:
            lines.append("round or cast the column in the function")
        declaration = self._declaration(self._proposed(actual))
        if declaration and not why and self._option:
            lines.append(f"{self._option}={declaration}")
        return SchemaMismatchError(
            f"{self._function} {self.verb} {problem}",
            asked=columns_text(self._schema),
            have=columns_text(actual) + (f": {why}" if why else ""),
            remedy=" · ".join(lines),
        )

    def _proposed(self, actual: pa.Schema) -> pa.Schema:
        """Return the schema to declare for such batches, with each declared type that may hold the values."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        fields = []
        for field in actual:
            places = self._schema.get_all_field_indices(field.name)
            declared = self._schema.field(places[0]) if len(places) == 1 else None
            fits = declared is not None and is_castable(field.type, declared.type)
            fields.append(declared if fits else field)
        return pa.schema(fields)


class ExactCast(SchemaCast):
    """Casts batches to the very schema: its time zones, its nullability, no metadata.

    Args:
        schema: the declared schema.
        function: producer of the batches for the error text.
        option: the option that declares the schema, for the error text; empty if there is none.
    """

    def __init__(self, schema: pa.Schema, function: str, option: str = "") -> None:
        super().__init__(schema, function, option, operator.eq)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the schema; see :class:`SchemaCast`."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        batch = super().__call__(batch)
        if batch.schema.equals(self._schema):
            return batch
        return pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)


def same_type(have: pa.DataType, want: pa.DataType) -> bool:
    """Return True if Spark takes the types as the same; it ignores the zone of timestamps."""
    if have == want:
        return True
    return str(have).startswith("timestamp[us, ") and str(want).startswith("timestamp[us, ")


def same_on_the_wire(have: pa.DataType, want: pa.DataType) -> bool:
    """Return True if the writer encodes ``have`` as ``want`` by itself, so that no cast is needed."""
    from pyarrow import types  # noqa: PLC0415 - slow to import

    if same_type(have, want):
        return True
    if types.is_dictionary(have):
        have = have.value_type
    return any({str(have), str(want)} <= names for names in _ENCODINGS)


def is_castable(have: pa.DataType, want: pa.DataType) -> bool:
    """Return True if :func:`cast` keeps each value, or raises.

    pandas makes floats of whole numbers beside nulls, so whole floats are taken back.
    """
    from pyarrow import types  # noqa: PLC0415 - slow to import

    return (types.is_floating(have) and types.is_integer(want)) or is_lossless(have, want)


def is_lossless(have: pa.DataType, want: pa.DataType) -> bool:
    """Return True if a cast keeps each value and its meaning, or raises."""
    from pyarrow import types  # noqa: PLC0415 - slow to import

    if types.is_dictionary(have):
        return is_lossless(have.value_type, want)
    if have == want or types.is_null(have):
        return True
    if _is_list(have):
        is_list = types.is_list(want) or _has_fitting_size(have, want)
        return is_list and _is_lossless_inside(have.value_type, want.value_type)
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
    # `cast` handles a list view only at the top level; inside, Arrow's cast would drop values.
    return not _is_view_of_list(have) and is_lossless(have, want)


def _is_lossless_value(have: pa.DataType, want: pa.DataType) -> bool:
    from pyarrow import types  # noqa: PLC0415 - slow to import

    if types.is_integer(have):
        # Pyarrow's cast raises for a value out of range, or too large to be exact as a float.
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
    """Cast a column to another type.

    Raises:
        ArrowInvalid: A value does not fit the type.
        ArrowNotImplementedError: This version of pyarrow lacks the cast.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import
    from pyarrow import types  # noqa: PLC0415 - slow to import

    have = column.type
    if types.is_dictionary(have):
        # Arrow 26 cannot decode a dictionary of string views, which polars produces.
        return cast(column.dictionary, want).take(column.indices)
    if _is_view_of_list(have):
        # Arrow 26 drops values if one cast changes both a list view and its values.
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
        offsets = [0]
        for length in lengths:
            offsets.append(offsets[-1] + length)
        values = cast(column.flatten(), want.value_type)
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), values, want, mask=column.is_null()
        )
    if types.is_floating(have) and types.is_integer(want):
        _check_whole(column)
    return column.cast(want)


def _is_plain(kind: pa.DataType) -> bool:
    """Return True if pyarrow has a function of the type's name that makes it."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    make = getattr(pa, str(kind), None)
    return callable(make) and str(kind).isidentifier() and pa.types.is_primitive(kind)


def _check_whole(column: pa.Array) -> None:
    """Raise ArrowInvalid for a float so large that it may have been another whole number."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    bits = {16: 11, 32: 24, 64: 53}[column.type.bit_width]
    ends = pc.min_max(column.cast(pa.float64())).as_py()
    for end in (ends["min"], ends["max"]):
        if end is not None and abs(end) >= 2**bits:
            raise pa.ArrowInvalid(
                f"{end:.0f} as {column.type} may have been another number; such a column keeps whole "
                f"numbers below {2**bits}. Return whole numbers; per_key has pandas_nullable"
            )


def _is_list(kind: pa.DataType) -> bool:
    from pyarrow import types  # noqa: PLC0415 - slow to import

    plain = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(plain) or _is_view_of_list(kind)


def _has_fitting_size(have: pa.DataType, want: pa.DataType) -> bool:
    """Return True for lists of one size, to which Arrow's cast makes lists, or raises for one of another length."""
    from pyarrow import types  # noqa: PLC0415 - slow to import

    if not types.is_fixed_size_list(want) or _is_view_of_list(have):
        return False
    return not types.is_fixed_size_list(have) or have.list_size == want.list_size


def _is_view_of_list(kind: pa.DataType) -> bool:
    # Compared by name, because the oldest supported pyarrow has no list views.
    return str(kind).startswith(("list_view", "large_list_view"))


def _forbids_nulls(field: pa.Field) -> bool:
    from pyarrow import types  # noqa: PLC0415 - slow to import

    kind = field.type
    if not field.nullable:
        return True
    if types.is_list(kind) or types.is_large_list(kind):
        return _forbids_nulls(kind.value_field)
    if types.is_map(kind):
        return _forbids_nulls(kind.item_field)
    return types.is_struct(kind) and any(_forbids_nulls(inner) for inner in kind)


def _has_forbidden_null(column: pa.Array, field: pa.Field) -> bool:
    from pyarrow import types  # noqa: PLC0415 - slow to import

    if not field.nullable and column.null_count:
        return True
    kind = field.type
    if (types.is_list(kind) or types.is_large_list(kind)) and _forbids_nulls(kind.value_field):
        return _has_forbidden_null(column.flatten(), kind.value_field)
    if types.is_map(kind) and _forbids_nulls(kind.item_field):
        entries = column.drop_null()  # entries under a null map do not count
        start, end = (entries.offsets[place].as_py() for place in (0, len(entries)))
        return _has_forbidden_null(entries.items[start:end], kind.item_field)
    if types.is_struct(kind):
        inner = column.drop_null().flatten()
        return any(_has_forbidden_null(child, of) for child, of in zip(inner, kind, strict=True))
    return False
