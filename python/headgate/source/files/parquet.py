"""Parquet: a split is one row group, or several small adjacent ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from headgate.source.files.conform import filter_columns
from headgate.source.files.format import Cut, FileFormat, grouped, rows_per_batch, split_of, width
from headgate.source.files.partitions import guarantee

if TYPE_CHECKING:
    from headgate.source.files.listing import Files
    from headgate.source.files.split import FileSplit, ListedFile

#: Expressions that may be true for NaN, which statistics ignore: ``!=`` and calls of functions.
_TRUE_FOR_NAN: Final = re.compile(r"!=|\w\(")


class ParquetFormat(FileFormat):
    """Reads row groups as a stream of batches; skips those that their statistics rule out."""

    name = "parquet"

    def schema(self, files: Files, file: ListedFile) -> pa.Schema:
        """Return the schema in the footer."""
        with files.filesystem.open_input_file(file.path) as opened:
            return pq.ParquetFile(opened).schema_arrow

    def plan(self, files: Files, file: ListedFile, cut: Cut) -> list[FileSplit]:
        """Return splits of adjacent row groups."""
        with files.filesystem.open_input_file(file.path) as opened:
            parquet = pq.ParquetFile(opened)
            footer, schema = parquet.metadata, parquet.schema_arrow
        kept = _possible_row_groups(files, file, schema, cut)
        leaves = _leaves(footer, cut.columns)
        weights = [
            _weight(footer.row_group(place), leaves) for place in range(footer.num_row_groups)
        ]
        fraction = sum(weights) / max(1, file.size)
        sizes = [
            -1
            if footer.row_group(place).num_rows == 0 or (kept is not None and place not in kept)
            else weight
            for place, weight in enumerate(weights)
        ]
        return [
            split_of(file, self.name, start, end, size)
            for start, end, size in grouped(sizes, cut.limit(fraction))
        ]

    def read(
        self, files: Files, split: FileSplit, wanted: pa.Schema, batch_rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches; row groups before the position are not read."""
        with files.filesystem.open_input_file(split.path) as opened:
            parquet = pq.ParquetFile(opened, pre_buffer=not files.is_local)
            footer, skip = parquet.metadata, split.position
            groups = list(range(split.start, split.end))
            while groups and footer.row_group(groups[0]).num_rows <= skip:
                skip -= footer.row_group(groups.pop(0)).num_rows
            if not groups:
                return
            columns = [name for name in wanted.names if name in parquet.schema_arrow.names]
            columns = columns or parquet.schema_arrow.names[:1]
            rows = batch_rows or _even_rows(parquet, groups, columns)
            for batch in parquet.iter_batches(rows, groups, columns, use_threads=False):
                begin = min(skip, batch.num_rows)
                skip -= begin
                if begin < batch.num_rows:
                    yield batch.slice(begin) if begin else batch


def _possible_row_groups(
    files: Files, file: ListedFile, schema: pa.Schema, cut: Cut
) -> set[int] | None:
    """Return the row groups in which rows may pass the filter; None if it is not known."""
    if cut.filter is None:
        return None
    plain = not _TRUE_FOR_NAN.search(str(cut.filter))
    for name in filter_columns(cut.filter, cut.schema):
        # Statistics can only be used if the file's column has the type that the filter expects.
        kinds = [schema.field(place).type for place in schema.get_all_field_indices(name)]
        if not kinds:
            schema = schema.append(cut.schema.field(name))
        elif (
            name in cut.fixed  # The filter means the folder's column, not the file's.
            or kinds != [cut.schema.field(name).type]
            or (not plain and pt.is_floating(kinds[0]))
        ):
            return None
    import pyarrow.dataset as ds  # noqa: PLC0415 - slow to import, and only filters need it

    fragment = ds.ParquetFileFormat().make_fragment(
        file.path, files.filesystem, partition_expression=guarantee(cut.fixed)
    )
    return {group.id for group in fragment.subset(filter=cut.filter, schema=schema).row_groups}


def _weight(row_group: Any, leaves: Sequence[int]) -> int:
    return sum(row_group.column(leaf).total_compressed_size for leaf in leaves)


def _leaves(footer: Any, columns: Sequence[str]) -> list[int]:
    """Return the indices of the leaf columns of some top-level columns."""
    names = set(columns)
    found = []
    for place in range(footer.num_columns):
        path = footer.schema.column(place).path
        if path in names or path.split(".", 1)[0] in names:
            found.append(place)
    return found


def _even_rows(parquet: Any, groups: Sequence[int], columns: Sequence[str]) -> int:
    """Return the rows of a batch, such that the last batch is as large as the others."""
    footer = parquet.metadata
    rows: int = sum(footer.row_group(group).num_rows for group in groups)
    batches = -(-rows // rows_per_batch(None, _bytes_per_row(parquet, groups, columns, rows)))
    return -(-rows // batches)


def _bytes_per_row(parquet: Any, groups: Sequence[int], columns: Sequence[str], rows: int) -> float:
    footer = parquet.metadata
    leaves = _leaves(footer, columns)
    stored: int = sum(
        footer.row_group(group).column(leaf).total_uncompressed_size
        for group in groups
        for leaf in leaves
    )
    # Encoded columns are narrower than decoded ones, so use the fixed widths as a lower bound.
    known = sum(width(field.type) for field in parquet.schema_arrow if field.name in columns)
    return max(stored / max(1, rows), known)
