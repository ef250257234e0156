"""CSV: a file is one split, or several byte ranges if its values have no newlines."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pac
import pyarrow.types as pt

from headgate.source.files.content import (
    ContentError,
    check_head,
    is_compressed,
    is_of_encoding,
    is_utf_8,
    open_decompressed,
)
from headgate.source.files.csv_quotes import QuoteCounter, refuse_open_quote, refuse_torn_lines
from headgate.source.files.format import BATCH_BYTES, FileFormat, Planning, SplitRead, sliced
from headgate.source.files.inference import exact_numbers, exact_type, inferred, is_number
from headgate.source.files.lines import byte_ranges, line_chunks, line_start

if TYPE_CHECKING:
    from headgate.source.files.csv_options import CsvOptions
    from headgate.source.files.listing import Files
    from headgate.source.files.split import FileSplit, ListedFile

#: Bytes of a file that are read for the names and types of its columns.
_SAMPLE: Final = 1024 * 1024
#: Most bytes of a row: pyarrow's blocks, which have whole rows, have fewer than 2 GiB.
_LARGEST_ROW: Final = 1024 * 1024 * 1024
#: Pyarrow's errors for a row and for a header that are larger than a block.
_TOO_LARGE: Final = ("straddling object", "Empty CSV file or block")
#: Most bytes in UTF-8 for a byte of another encoding.
_GROWTH: Final = 3
#: Pyarrow's error for a row with more or fewer values than the header, and the remedy.
_EXPECTED: Final = re.compile(r"Expected \d+ columns, got")
_OTHER_NUMBER: Final = "mend the row, which has more or fewer values than the header · the quote_char and escape_char of the file"
_DELIMITERS: Final = (";", "\t", "|", ",")
#: Bytes of a file in which its first line is looked for.
_HEADER: Final = 64 * 1024
_ENCODES: Final = 'csv=CsvOptions(encoding="{}") · option("encoding", "{}")'


class CsvFormat(FileFormat):
    """Reads values by the names of their columns, with pyarrow's CSV reader.

    Args:
        options: the dialect of the files.
    """

    name = "csv"

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        #: As pyarrow names it, which converts no text for just this name of UTF-8.
        self._encoding = "utf8" if is_utf_8(options.encoding) else options.encoding

    def schema(self, files: Files, file: ListedFile) -> pa.Schema:
        """Return the schema that pyarrow infers from the first MiB, with types that keep each value."""
        schema = self._inferred(files, file.path, file.size)
        for field in schema:
            if pt.is_binary(field.type):  # which pyarrow infers for nothing else
                raise self._not_of_encoding(f"column {field.name!r}")
        numbers = [field for field in schema if is_number(field.type)]
        if not numbers or len(set(schema.names)) < len(schema):
            return inferred(schema)
        convert = self._convert(pa.schema([(field.name, pa.string()) for field in numbers]))
        convert.strings_can_be_null = True
        with closing(self._batches(files, file.path, file.size, convert, _SAMPLE)) as batches:
            rows = next((batch for batch in batches if batch.num_rows), None)
        if rows is None:
            return inferred(schema)
        exact = {field.name: exact_type(rows[field.name], field.type) for field in numbers}
        return inferred(
            pa.schema(field.with_type(exact.get(field.name, field.type)) for field in schema)
        )

    def plan(self, files: Files, file: ListedFile, planning: Planning) -> list[FileSplit]:  # noqa: ARG002 - unused
        """Return byte ranges, or the whole file."""
        whole = self._options.newlines_in_values or is_compressed(file.path)
        return byte_ranges(file, self.name, planning, whole=whole)

    def read(self, read: SplitRead) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches; unwanted columns are not converted."""
        files, split, wanted, guessed = read.files, read.split, read.wanted, read.guessed
        names = self._names_of(read)
        columns = set(names)
        if guessed is not None:
            others = columns - set(guessed.names) - files.folder_values(split.path).keys()
            if others and not columns.isdisjoint(guessed.names):
                raise ValueError(f"it has a column {min(others)!r}, which the first file lacks")
        _check_names(names, wanted.names)
        if len(wanted):
            read.check_columns(names)
        present = pa.schema([field for field in wanted if field.name in columns])
        numbers = {f.name: f.type for f in present if guessed is not None and is_number(f.type)}
        present = pa.schema(
            [pa.field(f.name, pa.string() if f.name in numbers else f.type) for f in present]
        )
        convert = self._convert(present or pa.schema([(names[0], pa.string())]))
        if self._options.newlines_in_values or is_compressed(split.path):
            batches = self._batches(files, split.path, split.file_size, convert, BATCH_BYTES)
            exact = (self._exact(batch, numbers) for batch in batches)
            yield from sliced(exact, split.position, read.batch_rows)
            return
        parsed = (
            batch
            for chunk in line_chunks(files, self._below_header(files, split))
            for rows in self._chunk(chunk, names, convert)
            for batch in (self._exact(rows, numbers),)
        )
        yield from sliced(parsed, split.position, read.batch_rows)

    def _batches(
        self, files: Files, path: str, size: int, convert: pac.ConvertOptions, block: int
    ) -> Generator[pa.RecordBatch]:
        """Yield a batch without rows, which has the schema, and the rows of a file.

        The blocks are made larger if a row does not fit one.
        """
        limit, done = _LARGEST_ROW if is_compressed(path) else self._grown(size), 0
        while True:
            skip = done
            try:
                with open_decompressed(files, path) as stream:
                    quotes = QuoteCounter(stream, self._options)
                    read = self._read_options(block, **self._names())
                    with pac.open_csv(quotes.file, read, self._parse(), convert) as reader:
                        yield pa.RecordBatch.from_pylist([], reader.schema)
                        for batch in reader:
                            begin = min(skip, batch.num_rows)
                            skip -= begin
                            done += batch.num_rows - begin
                            yield batch.slice(begin)
            except pa.ArrowInvalid as error:
                if not any(text in str(error) for text in _TOO_LARGE):
                    raise
                if block >= limit:
                    if limit < _LARGEST_ROW:
                        raise
                    raise ValueError(
                        "a row has more than 1 GiB, or a quote is never closed"
                    ) from error
                block = min(4 * block, limit)
            else:
                if quotes.is_odd:
                    with open_decompressed(files, path) as stream:
                        refuse_open_quote(stream, self._options)
                return

    def _chunk(
        self, chunk: bytes, names: list[str], convert: pac.ConvertOptions
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of whole lines."""
        if not chunk.strip():
            return
        refuse_torn_lines(chunk, self._options)
        read = self._read_options(self._grown(len(chunk)) + 1, column_names=names)
        table = pac.read_csv(io.BytesIO(chunk), read, self._parse(), convert)
        yield from table.combine_chunks().to_batches()

    def _exact(self, batch: pa.RecordBatch, numbers: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        """Return a batch with some of its columns of strings as numbers.

        Raises:
            ValueError: a number would change.
        """
        if not numbers:
            return batch
        nulls = pa.array(self._convert(None).null_values, pa.string())
        columns = batch.columns
        for place, name in enumerate(batch.schema.names):
            if name in numbers:
                texts = columns[place]
                texts = pc.if_else(pc.is_in(texts, nulls), pa.scalar(None, pa.string()), texts)
                columns[place] = exact_numbers(texts, numbers[name], name)
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)

    def _below_header(self, files: Files, split: FileSplit) -> FileSplit:
        """Return the split without the header, which is the first line that is not blank."""
        if not self._options.header:
            return split
        with files.filesystem.open_input_file(split.path) as opened:
            start, end = 0, line_start(opened, 1, split.file_size)
            while start < end and not opened.read_at(end - start, start).strip():
                start, end = end, line_start(opened, end + 1, split.file_size)
        return replace(split, start=max(split.start, end))

    def _names_of(self, read: SplitRead) -> list[str]:
        """Return the names of a file's columns, whose order may differ between files."""
        path = read.split.path
        if path not in read.headers:
            read.headers.clear()
            read.headers[path] = list(self._inferred(read.files, path, read.split.file_size).names)
        return read.headers[path]

    def explained(self, files: Files, path: str, error: Exception) -> tuple[str, str]:
        """Return the text of an error and a remedy, such as another delimiter or encoding."""
        if is_of_encoding(error):
            error = self._not_of_encoding("it")
        text, remedy = super().explained(files, path, error)
        remedy = remedy or self.hint(files, path)
        return text, remedy or (_OTHER_NUMBER if _EXPECTED.search(text) else "")

    def hint(self, files: Files, path: str) -> str:
        """Return the remedy if the first line has no delimiter of the options, but another usual one."""
        with open_decompressed(files, path) as stream:
            lines = bytes(stream.read(_HEADER)).decode(self._encoding, "replace").splitlines()
        header = next((line for line in lines if line.strip()), "")
        if self._options.delimiter in header:
            return ""
        delimiter = max(_DELIMITERS, key=header.count)
        is_there = delimiter in header
        return f"csv=CsvOptions(delimiter={_quoted(delimiter)})" if is_there else ""

    def _not_of_encoding(self, whose: str) -> ContentError:
        other = "latin-1" if self._encoding == "utf8" else "utf8"
        return ContentError(
            f"{whose} has bytes that are not {self._options.encoding}",
            f"{_ENCODES.format(other, other)}, or another encoding",
        )

    def _read_options(self, block: int, **names: object) -> pac.ReadOptions:
        return pac.ReadOptions(
            use_threads=False, block_size=block, encoding=self._encoding, **names
        )

    def _grown(self, size: int) -> int:
        """Return the most bytes that the reader parses of so many bytes of a file."""
        return min(size if self._encoding == "utf8" else _GROWTH * size, _LARGEST_ROW)

    def _inferred(self, files: Files, path: str, size: int) -> pa.Schema:
        check_head(files, path, self._encoding, _ENCODES)
        with closing(self._batches(files, path, size, self._convert(None), _SAMPLE)) as batches:
            return next(batches).schema

    def _names(self) -> dict[str, object]:
        if self._options.column_names is not None:
            skip = 1 if self._options.header else 0
            return {"column_names": list(self._options.column_names), "skip_rows": skip}
        return {"autogenerate_column_names": not self._options.header}

    def _parse(self) -> pac.ParseOptions:
        options = self._options
        return pac.ParseOptions(
            delimiter=options.delimiter,
            quote_char=options.quote_char or False,
            double_quote=options.double_quote,
            escape_char=options.escape_char or False,
            newlines_in_values=options.newlines_in_values,
        )

    def _convert(self, wanted: pa.Schema | None) -> pac.ConvertOptions:
        options = pac.ConvertOptions(
            strings_can_be_null=self._options.strings_can_be_null,
            quoted_strings_can_be_null=self._options.quoted_strings_can_be_null,
        )
        if self._options.null_values is not None:
            options.null_values = list(self._options.null_values)
        if wanted is not None:
            options.column_types = {field.name: field.type for field in wanted}
            options.include_columns = list(wanted.names)
        return options


def _check_names(names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a header whose columns would be taken for others, or not at all.

    Raises:
        ValueError: a column is there twice, or is spelt almost as one that the header lacks.
    """
    times = Counter(names)
    alike = {name.strip().casefold(): name for name in names}
    for name in wanted:
        other = alike.get(name.strip().casefold())
        if times[name] > 1:
            raise ValueError(f"its header has {name!r} {times[name]} times")
        if other is not None and name not in times:
            raise ValueError(f"its header has {other!r}, and the column to read is {name!r}")


def _quoted(text: str) -> str:
    """Return a text as Python and JSON write it."""
    return json.dumps(text)
