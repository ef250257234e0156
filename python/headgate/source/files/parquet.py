"""Parquet: a split is one row group, or several small adjacent ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from headgate.errors import SourceError
from headgate.source.files.calendar import DoubtfulTimes
from headgate.source.files.conform import filter_columns
from headgate.source.files.footer import INT96, Footer, with_instants
from headgate.source.files.format import (
    BATCH_BYTES,
    FileFormat,
    Planning,
    SplitRead,
    grouped,
    plain,
    rows_per_batch,
    split_of,
    width,
    with_types,
)
from headgate.source.files.partitions import guarantee

if TYPE_CHECKING:
    from headgate.source.files.listing import Files
    from headgate.source.files.split import FileSplit, ListedFile

#: Expressions that may be true for NaN, which statistics ignore: ``!=`` and calls of functions.
_TRUE_FOR_NAN: Final = re.compile(r"!=|\w\(")
#: Most rows that are decoded at once if a value's width varies: a value that repeats takes no space in the
#: file, so the file's size says nothing about the size of its rows.
_ROWS_OF_TEXTS: Final = 8192
#: Words of the error of pyarrow that has read fewer values of a field of structs than of another.
_SHORT: Final = "has length smaller than expected for struct array"
#: Bytes of decoded rows above which fewer are decoded at once.
_TOO_MANY_BYTES: Final = 4 * BATCH_BYTES


class ParquetFormat(FileFormat):
    """Reads row groups as a stream of batches; skips those that their statistics rule out."""

    name = "parquet"

    def schema(self, files: Files, file: ListedFile) -> pa.Schema:
        """Return the schema in the footer; INT96 columns are timestamps in UTC."""
        return Footer.read(files.filesystem, file.path, file.size).schema

    def plan(self, files: Files, file: ListedFile, planning: Planning) -> list[FileSplit]:
        """Return splits of adjacent row groups."""
        if file.parts is not None and planning.filter is None and file.size <= planning.limit():
            return [split_of(file, self.name, 0, file.parts, file.size)]
        footer = Footer.read(files.filesystem, file.path, file.size)
        weights = _weights(footer, planning.columns, file.size)
        possible = _possible_row_groups(footer, planning)
        groups = map(footer.metadata.row_group, range(len(weights)))
        sizes = [
            -1 if group.num_rows == 0 or (possible is not None and place not in possible) else size
            for place, (group, size) in enumerate(zip(groups, weights, strict=True))
        ]
        fraction = sum(weights) / max(1, file.size)
        return [
            split_of(file, self.name, start, end, size)
            for start, end, size in grouped(sizes, planning.limit(fraction))
        ]

    def read(self, read: SplitRead) -> Iterator[pa.RecordBatch]:
        """Yield batches; row groups before the position are not read."""
        files, split, batch_rows = read.files, read.split, read.batch_rows
        with files.filesystem.open_input_file(split.path) as opened:
            parquet = pq.ParquetFile(opened, pre_buffer=not files.is_local, **INT96)
            footer, skip = parquet.metadata, split.position
            groups = list(range(split.start, split.end))
            while groups and footer.row_group(groups[0]).num_rows <= skip:
                skip -= footer.row_group(groups.pop(0)).num_rows
            if not groups:
                return
            schema, names = with_instants(parquet), set(read.wanted.names)
            fields = [field for field in schema if field.name in names] or [schema.field(0)]
            types = [plain(field.type) for field in fields]
            rows = batch_rows or _even_rows(footer, groups, schema, types)
            varies = any(map(_varies, types))
            leaves = (parquet.schema.column(place).path for place in range(len(parquet.schema)))
            columns = list(_leaves_to_read(schema, read.wanted, fields, leaves))
            stored = dict(zip(parquet.schema_arrow.names, parquet.schema_arrow.types, strict=True))
            casts = {
                field.name: kind
                for field, kind in zip(fields, types, strict=True)
                if not kind.equals(stored[field.name])
            }

            doubtful = DoubtfulTimes.of(footer)

            def decoded(rows: int) -> Iterator[pa.RecordBatch]:
                batches = parquet.iter_batches(rows, groups, columns, use_threads=False)
                for batch in _all_rows(batches, footer, groups, split.path):
                    yield doubtful.refuse(with_types(batch, casts), split.path)

            batches = _bounded(decoded, min(rows, _ROWS_OF_TEXTS) if varies else rows, skip)
            yield from batches if batch_rows else _joined(batches, rows)


def _all_rows(
    batches: Iterable[pa.RecordBatch], footer: Any, groups: Sequence[int], path: str
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of row groups.

    Raises:
        SourceError: they have fewer rows than the footer says. pyarrow 26 skips a row group if the first page of booleans in
            lists is empty, which its own writer begins files with if pages are tiny.
    """
    rows = sum(footer.row_group(group).num_rows for group in groups)
    left, cause = rows, None
    try:
        for batch in batches:
            left -= batch.num_rows
            yield batch
    except pa.ArrowInvalid as error:
        if _SHORT not in str(error):
            raise
        cause = error
    if left or cause is not None:
        raise SourceError(
            f"pyarrow reads less from {path} than its footer says",
            asked=f"{rows:,} rows of the row groups {groups[0]} to {groups[-1]}",
            have=f"{rows - left:,} rows" if cause is None else str(cause),
            remedy='read="spark" for a DataFrame · write the file again with data_page_version="1.0"',
            details={"path": path},
        ) from cause


def _leaves_to_read(
    schema: pa.Schema, wanted: pa.Schema, fields: Sequence[pa.Field], leaves: Iterator[str]
) -> Iterator[str]:
    """Yield the paths of the leaves of some columns, without those of fields of structs that are not wanted.

    Args:
        schema: schema of the file.
        wanted: columns to read.
        fields: columns of the file to read.
        leaves: the paths of all leaves of the file.
    """
    for field in schema:
        inside = list(islice(leaves, _width(field.type)))
        places = wanted.get_all_field_indices(field.name)
        kind = wanted.field(places[0]).type if len(places) == 1 else field.type
        if field in fields:
            yield from _wanted_leaves(field.type, kind, iter(inside)) or inside


def _wanted_leaves(kind: Any, wanted: Any, leaves: Iterator[str]) -> list[str]:
    """Take the leaves of a type, and return those that a wanted type has."""
    if pt.is_struct(kind) and pt.is_struct(wanted):
        types = {field.name: field.type for field in wanted}
        paths = []
        for field in kind:
            inside = list(islice(leaves, _width(field.type)))
            if field.name in types:
                paths += _wanted_leaves(field.type, types[field.name], iter(inside))
        return paths
    if pt.is_list(kind) and pt.is_list(wanted):
        return _wanted_leaves(kind.value_type, wanted.value_type, leaves)
    if pt.is_map(kind) and pt.is_map(wanted):
        keys = list(islice(leaves, _width(kind.key_type)))
        values = list(leaves)
        return keys + (_wanted_leaves(kind.item_type, wanted.item_type, iter(values)) or values)
    return list(leaves)


def _width(kind: Any) -> int:
    """Return the number of leaves of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if not pt.is_nested(kind):
        return 1
    return sum(_width(kind.field(place).type) for place in range(kind.num_fields))


def _bounded(
    decoded: Callable[[int], Iterator[pa.RecordBatch]], rows: int, skip: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows after the first ``skip``; decode fewer at once if they are large."""
    while True:
        position = 0
        for batch in decoded(rows):
            begin = min(max(0, skip - position), batch.num_rows)
            position += batch.num_rows
            if begin < batch.num_rows:
                yield batch.slice(begin) if begin else batch
                if batch.nbytes > _TOO_MANY_BYTES and rows > 1:
                    rows = max(1, BATCH_BYTES * batch.num_rows // batch.nbytes)
                    break
        else:
            return
        skip = position


def _joined(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Join small batches into ones of about ``rows`` rows and 4 MiB."""
    waiting: list[pa.RecordBatch] = []
    count, size = 0, 0
    for batch in batches:
        if waiting and (count + batch.num_rows > rows or size + batch.nbytes > BATCH_BYTES):
            yield _concatenated(waiting)
            waiting, count, size = [], 0, 0
        waiting.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
    if waiting:
        yield _concatenated(waiting)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _possible_row_groups(footer: Footer, planning: Planning) -> set[int] | None:
    """Return the row groups in which rows may pass the filter; None if it is not known."""
    if planning.filter is None:
        return None
    schema = footer.schema
    plain_filter = not _TRUE_FOR_NAN.search(str(planning.filter))
    for name in filter_columns(planning.filter, planning.schema):
        # Statistics can only be used if the file's column has the type that the filter expects.
        kinds = [schema.field(place).type for place in schema.get_all_field_indices(name)]
        if not kinds:
            schema = schema.append(planning.schema.field(name))
        elif (
            name in planning.fixed  # The filter means the folder's column, not the file's.
            or kinds != [planning.schema.field(name).type]
            or (not plain_filter and pt.is_floating(kinds[0]))
        ):
            return None
    import pyarrow.dataset as ds  # noqa: PLC0415 - slow to import, and only filters need it

    fragment = ds.ParquetFileFormat().make_fragment(
        footer.reader(), partition_expression=guarantee(planning.fixed)
    )
    return {group.id for group in fragment.subset(filter=planning.filter, schema=schema).row_groups}


def _weights(footer: Footer, columns: Sequence[str], file_size: int) -> list[int]:
    """Return the bytes to read of each row group."""
    groups = [footer.metadata.row_group(place) for place in range(footer.metadata.num_row_groups)]
    if set(columns).issuperset(footer.schema.names):
        whole = max(1, sum(group.total_byte_size for group in groups))
        return [max(0, group.total_byte_size * file_size // whole) for group in groups]
    leaves = _leaves(footer.metadata, columns)
    return [
        max(0, sum(group.column(leaf).total_compressed_size for leaf in leaves))
        for group in map(footer.row_group, range(len(groups)))
    ]


def _leaves(footer: Any, columns: Sequence[str]) -> list[int]:
    """Return the indices of the leaf columns of some top-level columns."""
    names = set(columns)
    leaves = []
    for place in range(footer.num_columns):
        path = footer.schema.column(place).path
        if path in names or path.split(".", 1)[0] in names:
            leaves.append(place)
    return leaves


def _even_rows(
    footer: Any, groups: Sequence[int], schema: pa.Schema, types: Sequence[pa.DataType]
) -> int:
    """Return the rows of a batch, such that the last batch is as large as the others."""
    rows: int = max(1, sum(footer.row_group(group).num_rows for group in groups))
    stored = sum(footer.row_group(group).total_byte_size for group in groups)
    wide, all_columns = sum(map(width, types)), sum(map(width, schema.types))
    # Encoded columns are narrower than decoded ones, so use the widths as a lower bound.
    bytes_per_row = max(stored / rows * wide / max(1, all_columns), wide)
    batches = -(-rows // rows_per_batch(None, bytes_per_row, len(types)))
    return -(-rows // batches)


def _varies(kind: pa.DataType) -> bool:
    """Return True for types whose values have no fixed width."""
    try:
        return int(kind.bit_width) == 0
    except ValueError:
        return True
