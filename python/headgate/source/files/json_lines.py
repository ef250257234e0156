"""JSON lines: one object in each line; a split is a range of bytes, cut at ends of lines."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.json as paj
import pyarrow.types as pt

from headgate._nested import with_inner
from headgate.source.files.content import (
    ContentError,
    check_head,
    is_compressed,
    is_of_encoding,
)
from headgate.source.files.format import FileFormat, Planning, SplitRead, sliced, split_of
from headgate.source.files.inference import changing, exact_json, inferred
from headgate.source.files.lines import byte_ranges, line_chunks

if TYPE_CHECKING:
    from headgate.source.files.listing import Files
    from headgate.source.files.split import FileSplit, ListedFile

#: Bytes of a file that are read to infer its schema.
_SAMPLE: Final = 1024 * 1024
#: Pyarrow's error for a value of another kind than the field's type.
_CHANGED: Final = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)")


class JsonLinesFormat(FileFormat):
    """Reads objects by the names of their fields; a field that an object lacks is null."""

    name = "json"

    def schema(self, files: Files, file: ListedFile) -> pa.Schema:
        """Return the schema that pyarrow infers from the first MiB of lines, with decimals where doubles lose digits."""
        check_head(files, file.path)
        whole = split_of(file, self.name, 0, file.size, file.size)
        for chunk in line_chunks(files, whole, _SAMPLE):
            if chunk.strip():
                schema = _parse(chunk, paj.ParseOptions()).schema
                return inferred(exact_json(chunk.decode(), _with_exact_times(chunk, schema)))
        return pa.schema([])

    def plan(self, files: Files, file: ListedFile, planning: Planning) -> list[FileSplit]:  # noqa: ARG002 - unused
        """Return byte ranges."""
        return byte_ranges(file, self.name, planning, whole=is_compressed(file.path))

    def read(self, read: SplitRead) -> Iterator[pa.RecordBatch]:
        """Yield the objects as batches, without unwanted fields."""
        files, split, wanted, guessed = read.files, read.split, read.wanted, read.guessed
        if split.start == 0:
            check_head(files, split.path)
        # A table without columns would have no rows.
        others = "ignore" if len(wanted) else "infer"
        if guessed is not None and set(guessed.names) <= set(wanted.names):
            others = "error"
        options = paj.ParseOptions(
            explicit_schema=pa.schema([_parsed_as(field) for field in wanted]),
            unexpected_field_behavior=others,
        )
        chunks = (chunk for chunk in line_chunks(files, split) if chunk.strip())
        tables = ((chunk, _parse(chunk, options)) for chunk in chunks)
        first = next(tables, None)
        if first is None:
            return
        if len(wanted) and all(column.null_count == len(column) for column in first[1].columns):
            read.check_columns(_parse(first[0], paj.ParseOptions()).schema.names)
        parsed = (
            batch
            for chunk, table in chain([first], tables)
            for batch in _with_times(_exact(chunk, table, guessed), wanted)
            .combine_chunks()
            .to_batches()
        )
        yield from sliced(parsed, split.position, read.batch_rows)

    def explained(self, files: Files, path: str, error: Exception) -> tuple[str, str]:
        """Return the text of an error and a remedy."""
        if is_of_encoding(error):
            error = ContentError("it has bytes that are not UTF-8", "write the file as UTF-8")
        text, remedy = super().explained(files, path, error)
        changed = _CHANGED.search(text)
        if changed:
            name, _, kind = changed.groups()
            remedy = f"a type of {kind}s in the schema, for {name} · mend the file, if the field has both"
        return text, remedy


def _parse(chunk: bytes, options: paj.ParseOptions) -> pa.Table:
    if not chunk.isascii():
        chunk.decode()  # Pyarrow would take other bytes into texts.
    read = paj.ReadOptions(use_threads=False, block_size=len(chunk) + 1)
    try:
        return paj.read_json(io.BytesIO(chunk), read_options=read, parse_options=options)
    except pa.ArrowInvalid as error:
        if chunk.lstrip().startswith(b"["):
            raise ValueError("it has an array, not one object in each line") from error
        raise


def _exact(chunk: bytes, table: pa.Table, guessed: pa.Schema | None) -> pa.Table:
    """Return the rows of lines.

    Raises:
        ValueError: a number would change as the type that was guessed.
    """
    if guessed is not None:
        exact = exact_json(chunk.decode(), table.schema)
        for field, column in zip(table.schema, exact, strict=True):
            if column.type != field.type:
                raise changing(field.name, field.type)
    return table


def _with_times(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    for place, field in enumerate(wanted):
        if not table.field(place).type.equals(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(field.type))
    return table


def _with_exact_times(chunk: bytes, schema: pa.Schema) -> pa.Schema:
    """Return an inferred schema whose times keep what their texts say: pyarrow leaves out offsets from UTC."""
    options = paj.ParseOptions(explicit_schema=pa.schema([_parsed_as(field) for field in schema]))
    texts = _parse(chunk, options)
    return pa.schema(
        field.with_type(
            _type_of_times(texts.column(place))
            if pt.is_timestamp(field.type)
            else _text_type(field.type)
        )
        for place, field in enumerate(schema)
    )


def _type_of_times(texts: pa.ChunkedArray) -> pa.DataType:
    """Return the type that keeps the times of texts; string if there is none, as for some with an offset and some without."""
    for kind in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        with suppress(pa.ArrowInvalid):
            texts.cast(kind)
            return kind
    return pa.string()


def _parsed_as(field: pa.Field) -> pa.Field:
    """Return the type to parse a field as: JSON has dates and times as strings, which casts take or refuse as a whole."""
    return pa.field(field.name, _text_type(field.type))


def _text_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with strings in place of dates and times, also nested ones."""
    if pt.is_date(kind) or pt.is_time(kind) or pt.is_timestamp(kind):
        return pa.string()
    return with_inner(kind, lambda inner: inner.with_type(_text_type(inner.type)))
