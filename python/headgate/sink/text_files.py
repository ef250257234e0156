"""The encoders of CSV and JSON lines: exact, or an error that names the column."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headgate._nested import with_inner
from headgate.errors import SchemaMismatchError, UnsupportedTypeError

if TYPE_CHECKING:
    from headgate.sink.encoding import Encoding

#: Rows that are Python objects at a time.
_SLICE: Final = 8192
_PLAIN: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    *(pt.is_null, pt.is_boolean, pt.is_integer, pt.is_float32, pt.is_float64),
    *(pt.is_decimal, pt.is_string, pt.is_large_string, pt.is_date, pt.is_time, pt.is_timestamp),
)
_LISTS: Final = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list)


class TextEncoder:
    """Encodes tables as text, with gzip if the encoding says so.

    Args:
        stream: takes the bytes; closing the encoder leaves it open.
        schema: the schema of all tables.
        encoding: of the file.

    Raises:
        UnsupportedTypeError: the format has no notation for a column that all readers share.
    """

    name: ClassVar[str]
    nests: ClassVar[bool]

    def __init__(self, stream: Any, schema: pa.Schema, encoding: Encoding) -> None:
        self._written = pa.schema([self._field(field, field.name) for field in schema])
        self._encoding = encoding
        self._stream = stream
        if encoding.compression == "gzip":
            # No time of day in the header: equal rows are equal bytes.
            self._stream = gzip.GzipFile("", "wb", compresslevel=6, fileobj=stream, mtime=0)

    def write_table(self, table: pa.Table) -> None:
        """Add the rows of a table.

        Raises:
            SchemaMismatchError: the format has no notation for a value.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Complete the text."""
        if self._stream is not None and self._encoding.compression == "gzip":
            self._stream.close()
        self._stream = None

    def _text(self, table: pa.Table) -> pa.Table:
        """Return the table with the types that are written: zones become UTC."""
        return table.cast(self._written)

    def _field(self, field: pa.Field, path: str) -> pa.Field:
        return pa.field(field.name, self._kind(field.type, path))

    def _kind(self, kind: pa.DataType, path: str) -> pa.DataType:
        """Return the type as which a column is written; ``path`` names it in errors."""
        if pt.is_dictionary(kind):
            return self._kind(kind.value_type, path)
        if self.nests and any(is_list(kind) for is_list in _LISTS):
            return pa.list_(self._field(kind.value_field, f"{path}[]"))
        if self.nests and pt.is_struct(kind):
            inner = [kind.field(place) for place in range(kind.num_fields)]
            if len({field.name for field in inner}) == len(inner):
                return pa.struct([self._field(field, f"{path}.{field.name}") for field in inner])
        if any(is_plain(kind) for is_plain in _PLAIN):
            return pa.timestamp(kind.unit, "UTC") if pt.is_timestamp(kind) and kind.tz else kind
        raise UnsupportedTypeError(
            f"{self.name} cannot hold column {path} of type {kind}",
            asked=f"{path}: {kind}",
            have="booleans, numbers, decimals, text, dates, times and timestamps"
            + (", lists and structs of them" if self.nests else ""),
            remedy='cast the column to text · format="parquet"'
            + ("" if self.nests else ' · format="json" for lists and structs'),
            details={"column": path, "type": str(kind)},
        )


class CsvEncoder(TextEncoder):
    """CSV as RFC 4180 has it: text in quotes, a quote within it doubled; null is empty, no quotes."""

    name = "CSV"
    nests = False

    def __init__(self, stream: Any, schema: pa.Schema, encoding: Encoding) -> None:
        super().__init__(stream, schema, encoding)
        self._write(self._written.empty_table(), header=encoding.header)

    def write_table(self, table: pa.Table) -> None:
        """Add the rows of a table."""
        if table.num_columns == 1 and table.column(0).null_count:
            raise SchemaMismatchError(
                f"column {table.column_names[0]} is the only one and has nulls: a CSV file would have "
                "an empty line, which readers skip",
                remedy='add a column · fill the nulls · format="json"',
                details={"column": table.column_names[0]},
            )
        table = self._text(table)
        for place, field in enumerate(table.schema):
            if pt.is_floating(field.type):
                table = table.set_column(place, field.name, _floats(table.column(place)))
        self._write(table, header=False)

    def _write(self, table: pa.Table, *, header: bool) -> None:
        from pyarrow import csv  # noqa: PLC0415 - slow to import

        options = csv.WriteOptions(include_header=header, delimiter=self._encoding.delimiter)
        csv.write_csv(table, self._stream, options)


class JsonEncoder(TextEncoder):
    """JSON lines: an object per row, with null for a null; decimals and times are strings."""

    name = "JSON"
    nests = True

    def __init__(self, stream: Any, schema: pa.Schema, encoding: Encoding) -> None:
        super().__init__(stream, schema, encoding)
        self._texts = pa.schema([pa.field(f.name, _json_kind(f.type)) for f in self._written])
        self._encode = json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
        ).encode

    def write_table(self, table: pa.Table) -> None:
        """Add the rows of a table."""
        table = self._text(table).cast(self._texts)
        for start in range(0, table.num_rows, _SLICE):
            rows = table.slice(start, _SLICE).to_pylist()
            try:
                lines = [self._encode(row) for row in rows]
            except ValueError:
                raise SchemaMismatchError(
                    f"NaN or infinity in column {_not_finite(rows)}: JSON has no notation for them",
                    remedy='null in their place, as by fill_nan · format="csv" · format="parquet"',
                ) from None
            self._stream.write(("\n".join(lines) + "\n").encode())


#: The encoder of each format of text.
ENCODERS: Final[dict[str, type[TextEncoder]]] = {"csv": CsvEncoder, "json": JsonEncoder}


def _floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as text in Spark's notation if it has NaN or infinity; else the column itself."""
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return column
    text = column.cast(pa.string())
    for value, name in (
        ("nan", "NaN"),
        ("-nan", "NaN"),
        ("inf", "Infinity"),
        ("-inf", "-Infinity"),
    ):
        text = pc.if_else(pc.equal(text, value), name, text)
    return text


def _json_kind(kind: pa.DataType) -> pa.DataType:
    if pt.is_decimal(kind) or pt.is_temporal(kind):
        return pa.string()
    return with_inner(kind, lambda field: field.with_type(_json_kind(field.type)))


def _not_finite(rows: list[dict[str, Any]]) -> str:
    """Return the name of a column that JSON cannot have."""
    for row in rows:
        for name, value in row.items():
            try:
                json.dumps(value, allow_nan=False)
            except ValueError:
                return name
    return ""
