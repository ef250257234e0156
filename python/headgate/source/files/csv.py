"""CSV: a file is one split, or several byte ranges if its values have no newlines."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.csv as pac

from headgate.source.files.format import BATCH_BYTES, Cut, FileFormat, sliced
from headgate.source.files.json_lines import inferred
from headgate.source.files.lines import byte_ranges, is_compressed, line_chunks, line_start

if TYPE_CHECKING:
    from headgate.source.files.csv_options import CsvOptions
    from headgate.source.files.listing import Files
    from headgate.source.files.split import FileSplit, ListedFile

#: Bytes of a file that are read for the names and types of its columns.
_SAMPLE: Final = 1024 * 1024


class CsvFormat(FileFormat):
    """Reads values by the names of their columns, with pyarrow's CSV reader.

    Args:
        options: the dialect of the files.
    """

    name = "csv"

    def __init__(self, options: CsvOptions) -> None:
        self._options = options

    def schema(self, files: Files, file: ListedFile) -> pa.Schema:
        """Return the schema that pyarrow infers from the first MiB."""
        return inferred(self._inferred(files, file.path))

    def plan(self, files: Files, file: ListedFile, cut: Cut) -> list[FileSplit]:  # noqa: ARG002 - unused
        """Return byte ranges, or the whole file."""
        whole = self._options.newlines_in_values or is_compressed(file.path)
        return byte_ranges(file, self.name, cut, whole=whole)

    def read(
        self, files: Files, split: FileSplit, wanted: pa.Schema, batch_rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches; unwanted columns are not converted."""
        names = self._names_of(files, split)
        known = set(names)
        present = pa.schema([field for field in wanted if field.name in known])
        convert = self._convert(present or pa.schema([(names[0], pa.string())]))
        if self._options.newlines_in_values or is_compressed(split.path):
            yield from sliced(self._whole(files, split, convert), split.position, batch_rows)
            return
        parsed = (
            batch
            for chunk in line_chunks(files, self._below_header(files, split))
            for batch in self._chunk(chunk, names, convert)
        )
        yield from sliced(parsed, split.position, batch_rows)

    def _whole(
        self, files: Files, split: FileSplit, convert: pac.ConvertOptions
    ) -> Iterator[pa.RecordBatch]:
        with files.filesystem.open_input_stream(split.path, compression="detect") as stream:
            read = pac.ReadOptions(use_threads=False, block_size=BATCH_BYTES, **self._names())
            with pac.open_csv(stream, read, self._parse(), convert) as reader:
                yield from reader

    def _chunk(
        self, chunk: bytes, names: list[str], convert: pac.ConvertOptions
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of whole lines."""
        if not chunk.strip():
            return
        read = pac.ReadOptions(use_threads=False, block_size=len(chunk) + 1, column_names=names)
        table = pac.read_csv(io.BytesIO(chunk), read, self._parse(), convert)
        yield from table.combine_chunks().to_batches()

    def _below_header(self, files: Files, split: FileSplit) -> FileSplit:
        """Return the split without the header, which is the first line that is not blank."""
        if not self._options.header:
            return split
        with files.filesystem.open_input_file(split.path) as opened:
            start, end = 0, line_start(opened, 1, split.file_size)
            while start < end and not opened.read_at(end - start, start).strip():
                start, end = end, line_start(opened, end + 1, split.file_size)
        return replace(split, start=max(split.start, end))

    def _names_of(self, files: Files, split: FileSplit) -> list[str]:
        """Return the names of a file's columns, whose order may differ between files."""
        return list(self._inferred(files, split.path).names)

    def _inferred(self, files: Files, path: str) -> pa.Schema:
        with files.filesystem.open_input_stream(path, compression="detect") as stream:
            read = pac.ReadOptions(use_threads=False, block_size=_SAMPLE, **self._names())
            with pac.open_csv(stream, read, self._parse(), self._convert(None)) as reader:
                return reader.schema

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
