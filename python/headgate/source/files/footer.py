"""The footer of a Parquet file, whose metadata pyarrow may be asked for without risk.

Pyarrow ends the process if it throws in a look at the metadata of a column chunk, which it does for some
damaged footers. So the column chunks are read here first, by Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from headgate._nested import with_inner

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from headgate.source.files.listing import Files

_MAGIC: Final = b"PAR1"
#: Bytes read from the end of a file at first: enough for most footers.
_TAIL: Final = 64 * 1024
#: Unit in which INT96 is read: nanoseconds reach from 1677 to 2262 only.
INT96: Final[dict[str, Any]] = {"coerce_int96_timestamp_unit": "us"}

#: Ids of fields in parquet.thrift: FileMetaData, RowGroup, ColumnChunk, ColumnMetaData, SizeStatistics.
_ROW_GROUPS: Final = 4
_COLUMNS: Final = 1
_META_DATA: Final = 3
_CRYPTO: Final = 8
_TYPE: Final = 1
_STATISTICS: Final = 12
_SIZE_STATISTICS: Final = 16
_UNENCODED: Final = 1
_REPETITIONS: Final = 2
_DEFINITIONS: Final = 3
#: max, min, max_value and min_value of Statistics.
_LIMITS: Final = (1, 2, 5, 6)
#: Physical types in the order of their numbers, with the bytes of a value; 0 if they vary.
_TYPES: Final = {
    "BOOLEAN": 1,
    "INT32": 4,
    "INT64": 8,
    "INT96": 12,
    "FLOAT": 4,
    "DOUBLE": 8,
    "BYTE_ARRAY": 0,
    "FIXED_LEN_BYTE_ARRAY": 0,
}


class Footer:
    """The metadata of a Parquet file.

    Args:
        data: the end of the file, with the whole footer.

    Raises:
        ArrowInvalid: the file has no such footer.
        OSError: the same.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        parquet = pq.ParquetFile(pa.BufferReader(data), **INT96)
        self.metadata = parquet.metadata
        self.schema = with_instants(parquet)

    @classmethod
    def of(cls, files: Files, path: str, size: int) -> Footer:
        """Read the footer of a file of ``size`` bytes."""
        with files.filesystem.open_input_file(path) as opened:
            return cls._read(opened, size)

    @classmethod
    def at(cls, filesystem: pafs.FileSystem, path: str) -> Footer:
        """Read the footer of a file of a file system."""
        with filesystem.open_input_file(path) as opened:
            return cls._read(opened, opened.size())

    @classmethod
    def _read(cls, opened: pa.NativeFile, size: int) -> Footer:
        data = opened.read_at(min(size, _TAIL), max(0, size - _TAIL))
        whole = int.from_bytes(data[-8:-4], "little") + 8
        if len(data) < whole <= size and data.endswith(_MAGIC):
            data = opened.read_at(whole, size - whole)
        return cls(data)

    def reader(self) -> pa.BufferReader:
        """Return a file with this footer and no rows, for pyarrow's statistics."""
        self._check_columns  # noqa: B018 - raises
        return pa.BufferReader(self._data)

    def row_group(self, place: int) -> Any:
        """Return pyarrow's metadata of a row group, whose columns may be asked for.

        Raises:
            ValueError: the metadata of a column is damaged.
        """
        self._check_columns  # noqa: B018 - raises
        return self.metadata.row_group(place)

    @cached_property
    def _check_columns(self) -> None:
        end = len(self._data) - 8
        start = end - int.from_bytes(self._data[end : end + 4], "little")
        leaves = [self.metadata.schema.column(place) for place in range(self.metadata.num_columns)]
        names = dict(enumerate(_TYPES))
        shapes = [
            (
                leaf.path,
                leaf.physical_type,
                _TYPES.get(leaf.physical_type) or max(0, leaf.length or 0),
                leaf.max_repetition_level + 1,
                leaf.max_definition_level + 1,
            )
            for leaf in leaves
        ]
        try:
            groups = _Compact(self._data, start, end).struct().get(_ROW_GROUPS, [])
            for number, group in enumerate(groups):
                for (path, *shape), chunk in zip(shapes, group[_COLUMNS], strict=True):
                    if not _is_sound(chunk, names, *shape):
                        raise ValueError(f"the metadata of column {path} in row group {number}")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"the footer is damaged: {error}") from error


def with_instants(parquet: pq.ParquetFile) -> pa.Schema:
    """Return the schema of a file, with UTC as the zone of INT96 columns.

    INT96 has no zone in Arrow. Spark and Hive write instants, and Spark reads them as such.
    """
    schema, leaves = parquet.schema_arrow, parquet.schema
    marks = [leaves.column(place).physical_type == "INT96" for place in range(len(leaves))]
    if not any(marks):
        return schema
    following = iter(marks)
    return pa.schema([_marked(field, following) for field in schema], schema.metadata)


def _marked(field: pa.Field, leaves: Iterator[bool]) -> pa.Field:
    """Return a field whose INT96 columns have a zone; takes the marks of its leaves."""
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        _marked(field.with_type(kind.storage_type), leaves)
        return field
    if pt.is_nested(kind):
        return field.with_type(with_inner(kind, lambda inner: _marked(inner, leaves)))
    return field.with_type(pa.timestamp("us", "UTC")) if next(leaves) else field


def _is_sound(
    chunk: dict[int, Any], names: dict[int, str], kind: str, width: int, repeated: int, defined: int
) -> bool:
    """Return False if pyarrow throws for the metadata of a column chunk."""
    column = chunk[_META_DATA]
    limits = (column.get(_STATISTICS, {}).get(limit) for limit in _LIMITS)
    sizes = column.get(_SIZE_STATISTICS, {})
    return (
        _CRYPTO not in chunk
        and names.get(column[_TYPE]) == kind
        and all(not limit or len(limit) >= width for limit in limits)
        and len(sizes.get(_REPETITIONS, ())) in {0, repeated}
        and len(sizes.get(_DEFINITIONS, ())) in {0, defined}
        and (_UNENCODED not in sizes or kind == "BYTE_ARRAY")
    )


class _Compact:
    """Reads values of Thrift's compact protocol as dicts by field, lists, bytes and numbers."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data, self._at, self._end = data, at, end
        byte, number = partial(self._bytes, 1), self._signed
        #: Kind of a value -> its reader: booleans and a byte, three sizes of integers, and so on.
        self._readers: dict[int, Callable[[], Any]] = {
            **dict.fromkeys((1, 2, 3), byte),
            **dict.fromkeys((4, 5, 6), number),
            7: partial(self._bytes, 8),
            8: lambda: self._bytes(self._varint()),
            **dict.fromkeys((9, 10), self._list),
            11: self._map,
            12: self.struct,
        }

    def struct(self) -> dict[int, Any]:
        """Return the fields of a struct by their ids."""
        data, field = self._data, 0
        fields: dict[int, Any] = {}
        while True:
            head = data[self._at]
            self._at += 1
            kind = head & 15
            if kind == 0:
                return fields
            field = field + (head >> 4) if head >> 4 else self._signed()
            # A boolean field has its value as its kind.
            fields[field] = kind == 1 if kind <= 2 else self._value(kind)

    def _value(self, kind: int) -> Any:
        read = self._readers.get(kind)
        if read is None:
            raise ValueError(f"a value of kind {kind}")
        return read()

    def _list(self) -> list[Any]:
        head = self._bytes(1)[0]
        size = head >> 4
        if size == 15:
            size = self._varint()
        if size > self._end - self._at:
            raise ValueError("a list that is longer than the footer")
        return [self._value(head & 15) for _ in range(size)]

    def _map(self) -> None:
        size = self._varint()
        if size == 0:
            return
        kinds = self._bytes(1)[0]
        for _ in range(size):
            self._value(kinds >> 4)
            self._value(kinds & 15)

    def _bytes(self, size: int) -> bytes:
        at = self._at
        self._at = at + size
        if self._at > self._end:
            raise ValueError("a value that is longer than the footer")
        return self._data[at : self._at]

    def _signed(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        data, number, shift = self._data, 0, 0
        while True:
            byte = data[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
