"""Conforms the batches of a file to the source's schema, and filters their rows.

ADR 0001 says why ``pyarrow.dataset`` does not do this.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headgate._expressions import evaluated
from headgate._matches import close_matches
from headgate.errors import OptionError, SchemaMismatchError, UnknownColumnError
from headgate.schema_cast import cast, is_lossless
from headgate.source.files.format import plain

if TYPE_CHECKING:
    import pyarrow.compute as pc

#: Groups of types. A column is cast within its group as long as no value changes.
_FAMILIES: Final[tuple[Callable[[Any], bool], ...]] = (
    pt.is_integer,
    pt.is_floating,
    pt.is_decimal,
    pt.is_date,
    pt.is_time,
    pt.is_duration,
    lambda kind: pt.is_string(kind) or pt.is_large_string(kind) or _is_view(kind, "string"),
    lambda kind: (
        pt.is_binary(kind)
        or pt.is_large_binary(kind)
        or pt.is_fixed_size_binary(kind)
        or _is_view(kind, "binary")
    ),
    lambda kind: pt.is_timestamp(kind) and kind.tz is None,
    lambda kind: pt.is_timestamp(kind) and kind.tz is not None,
)


def plain_schema(schema: pa.Schema, whose: str) -> pa.Schema:
    """Return a schema without metadata, and with the types of values in place of dictionaries.

    Raises:
        SchemaMismatchError: two columns have the same name.
    """
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise SchemaMismatchError(
            f"{whose} has more than one column {twice!r}",
            have=", ".join(names),
            remedy="rename one of the columns",
            details={"column": twice},
        )
    return pa.schema(pa.field(field.name, plain(field.type), field.nullable) for field in schema)


def select(schema: pa.Schema, columns: Sequence[str], whose: str) -> pa.Schema:
    """Return the columns of a schema, in the order of ``columns``.

    Raises:
        UnknownColumnError: the schema has no such column, or more than one.
    """
    for name in columns:
        count = len(schema.get_all_field_indices(name))
        if count != 1:
            near = [] if count else close_matches(name, schema.names)
            raise UnknownColumnError(
                f"{whose} has {'more than one' if count else 'no'} column {name!r}",
                asked=name,
                have=", ".join(schema.names),
                remedy=" · ".join(near),
                details={"column": name, "columns": schema.names, "close": near},
            )
    return pa.schema([schema.field(name) for name in columns])


def conformer(
    file: pa.Schema, wanted: pa.Schema, path: str, fixed: Mapping[str, pa.Scalar] | None = None
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that converts a file's batches to the wanted schema.

    A column that the file lacks is all null if it is nullable, and an error otherwise. A column of
    another type is cast within its group (a wider integer, another unit of time), or to one that holds
    each of its values, as long as no value changes. The fields of structs are columns in this sense, but
    one of them must be there.

    Args:
        file: the schema of the file's batches.
        wanted: the schema of the result.
        path: the file's path, for errors.
        fixed: columns with one value in all rows; they replace the file's own.

    Raises:
        SchemaMismatchError: a column does not fit. The error names file and column; it is raised
            at once, or by the function for a value that does not fit.
    """
    makers = [
        _repeated(fixed[field.name])
        if fixed and field.name in fixed
        else _column(file, field, path)
        for field in wanted
    ]

    def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([make(batch) for make in makers], schema=wanted)

    return conform


class RowFilter:
    """Drops the rows for which an expression is not true.

    Args:
        expression: refers to columns by name.
        schema: the schema of the batches; the expression need not use all columns.

    Raises:
        OptionError: the expression does not fit the schema, or is not boolean.
    """

    def __init__(self, expression: pc.Expression, schema: pa.Schema) -> None:
        self._expression = expression
        try:
            kind = evaluated([expression], schema.empty_table()).column(0).type
        except (pa.ArrowException, ValueError, TypeError, KeyError) as error:
            raise OptionError(
                f"filter {expression} does not fit the columns: {error}",
                asked=f"filter={expression}",
                have=", ".join(f"{field.name} {field.type}" for field in schema),
                remedy="compare columns of the source with values of their types",
            ) from error
        if not pt.is_boolean(kind):
            raise OptionError(
                f"filter {expression} is of type {kind}, not bool",
                asked=f"filter={expression}",
                remedy='give a comparison such as pyarrow.compute.field("n") > 5',
            )

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the expression is true; the batch itself if that is all."""
        table = evaluated([self._expression], pa.Table.from_batches([batch]))
        mask = table.column(0).combine_chunks()
        if mask.true_count == batch.num_rows:
            return batch
        return batch.filter(mask)


class ComputedColumns:
    """Computes columns.

    Args:
        columns: names of the columns of the result, in order.
        computed: those of them that are computed -> their expressions.
        schema: the schema of the batches.

    Raises:
        OptionError: an expression does not fit the schema.
    """

    def __init__(
        self, columns: Sequence[str], computed: Mapping[str, pc.Expression], schema: pa.Schema
    ) -> None:
        import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

        fields = {name: pc.field(name) for name in schema.names}
        #: Name of a column -> the column of the batches that it is.
        self._renamed = {name: name for name in columns if name not in computed}
        self._expressions: dict[str, pc.Expression] = {}
        for name, expression in computed.items():
            same = [field for field, it in fields.items() if expression.equals(it)]
            if same:
                self._renamed[name] = same[0]
            else:
                self._expressions[name] = expression
        try:
            kinds = evaluated(list(self._expressions.values()), schema.empty_table()).schema
        except (pa.ArrowException, ValueError, TypeError, KeyError) as error:
            raise OptionError(
                f"a computed column does not fit the columns: {error}",
                asked=", ".join(f"{name}={it}" for name, it in self._expressions.items()),
                have=", ".join(f"{field.name} {field.type}" for field in schema),
                remedy="expressions of columns of the source, with values of their types",
            ) from error
        types = dict(zip(self._expressions, kinds.types, strict=True))
        #: The schema of the result.
        self.schema = pa.schema(
            schema.field(self._renamed[name]).with_name(name)
            if name in self._renamed
            else pa.field(name, types[name])
            for name in columns
        )

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the result for the rows of a batch."""
        table = evaluated(list(self._expressions.values()), pa.Table.from_batches([batch]))
        computed = dict(zip(self._expressions, table.columns, strict=True))
        columns = [
            batch.column(self._renamed[name])
            if name in self._renamed
            else computed[name].combine_chunks()
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def filter_columns(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns that an expression may use: all whose names occur in its text."""
    text = str(expression)
    if "FieldPath(" in text:
        return list(schema.names)
    return [name for name in schema.names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]


def _repeated(value: pa.Scalar) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda batch: pa.repeat(value, batch.num_rows)


def declared(kind: pa.DataType) -> str:
    """Return the name of a type in the option ``schema``."""
    names = {pa.timestamp("us", "UTC"): "timestamp", pa.timestamp("us"): "timestamp_ntz"}
    return names.get(plain(kind), str(plain(kind)))


def _is_view(kind: Any, of: str) -> bool:
    test = getattr(pt, f"is_{of}_view", None)
    return test is not None and test(kind)


def _castable(kind: pa.DataType, wanted: pa.DataType) -> bool:
    kind = plain(kind)
    return _keeps_values(kind, wanted) or any(
        belongs(kind) and belongs(wanted) for belongs in _FAMILIES
    )


def _keeps_values(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return True if a cast keeps the values, also those in structs, whose fields are found by their names."""
    if pt.is_struct(kind) and pt.is_struct(wanted):
        have = {field.name: field.type for field in kind}
        both = [field for field in wanted if field.name in have]
        names = {field.name for field in wanted}
        return (
            bool(both)
            and (len(have), len(names)) == (kind.num_fields, wanted.num_fields)
            and all(field.nullable or field.name in have for field in wanted)
            and all(_keeps_values(have[field.name], field.type) for field in both)
        )
    if pt.is_map(kind) and pt.is_map(wanted):
        return _keeps_values(kind.key_type, wanted.key_type) and _keeps_values(
            kind.item_type, wanted.item_type
        )
    if (pt.is_list(kind) or pt.is_large_list(kind)) and pt.is_list(wanted):
        return _keeps_values(kind.value_type, wanted.value_type)
    return is_lossless(kind, wanted)


def _column(file: pa.Schema, wanted: pa.Field, path: str) -> Callable[[pa.RecordBatch], pa.Array]:
    places = file.get_all_field_indices(wanted.name)
    if not places and wanted.nullable:
        return lambda batch: pa.nulls(batch.num_rows, wanted.type)
    if len(places) != 1:
        many = "no" if not places else "more than one"
        raise _mismatch(f"{path} has {many} column {wanted.name!r}", path, wanted, "no such column")
    place, kind = places[0], file.field(places[0]).type
    if not _castable(kind, wanted.type):
        summary = f"column {wanted.name!r} of {path} is of type {kind}, not {wanted.type}"
        remedy = f'schema="{wanted.name} {declared(kind)}" · leave the file out'
        raise _mismatch(summary, path, wanted, str(kind), remedy)

    def make(batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(place)
        if not column.type.equals(wanted.type):
            try:
                column = _cast(column, wanted.type)
            except pa.ArrowException as error:
                summary = f"column {wanted.name!r} of {path} does not fit {wanted.type}: {error}"
                raise _mismatch(summary, path, wanted, str(kind)) from error
        if not wanted.nullable and column.null_count:
            summary = f"column {wanted.name!r} of {path} has nulls, but is declared not null"
            raise _mismatch(summary, path, wanted, f"{kind} with nulls")
        return column

    return make


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column.

    Raises:
        ArrowInvalid: a value changes.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    converted = cast(column, kind)
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    both = pt.is_floating(kind) and pt.is_floating(column.type)
    if both and kind.bit_width < column.type.bit_width:
        # Pyarrow rounds here, and makes infinity of large values.
        changed = pc.and_(
            pc.not_equal(converted.cast(column.type), column), pc.invert(pc.is_nan(column))
        )
        if pc.any(changed).as_py():
            raise pa.ArrowInvalid(f"{column.filter(changed)[0]} changes")
    return converted


def _mismatch(
    summary: str, path: str, wanted: pa.Field, have: str, remedy: str = ""
) -> SchemaMismatchError:
    return SchemaMismatchError(
        summary,
        asked=f"{wanted.name} {wanted.type}{'' if wanted.nullable else ' not null'}",
        have=have,
        remedy=remedy or "give a schema that all files have · leave the file out",
        details={"path": path, "column": wanted.name},
    )
