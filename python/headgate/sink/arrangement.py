"""Puts the rows of a checkpoint into the order in which files take them: by folder, then by columns. Decision: ADR 0053."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate._matches import close_matches
from headgate.errors import SchemaMismatchError, UnknownColumnError
from headgate.functions.sorting import Sorter, check_sortable
from headgate.sink.partition_values import check_type, folders_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.sink.file_options import FileSinkOptions

#: Bytes that rows and their sort may take; more rows wait in temporary files.
_MEMORY: Final = 64 << 20


def file_schema(sink: FileSinkOptions, schema: pa.Schema) -> pa.Schema:
    """Return the columns of the files for rows of a schema: all but the partition columns.

    Raises:
        UnknownColumnError: there is no column to partition or sort by.
        UnsupportedTypeError: rows cannot be partitioned or sorted by a column.
        SchemaMismatchError: no column is left for the files.
    """
    for option, columns in (("partition_by", sink.partition_by), ("sort_within", sink.sort_within)):
        for name in columns:
            if schema.names.count(name) != 1:
                raise _unknown(option, name, schema)
            if option == "partition_by":
                check_type(schema.field(name), sink.time_zone)
            else:
                check_sortable(name, schema.field(name).type)
    fields = [field for field in schema if field.name not in sink.partition_by]
    if sink.partition_by and not fields:
        raise SchemaMismatchError(
            "all columns are partition columns, so the files have none",
            asked=f"partition_by={list(sink.partition_by)!r}",
            remedy="a column more · fewer partition columns",
        )
    return pa.schema(fields, schema.metadata)


class Arrangement:
    """Takes the rows of a checkpoint; gives them back folder by folder, each sorted.

    Rows wait in memory, and in temporary files if they take more than 64 MiB with their sort.

    Args:
        sink: the options of the sink: it partitions or sorts.
        schema: the schema of all batches.

    Raises:
        HeadgateError: see :func:`file_schema`.
    """

    def __init__(self, sink: FileSinkOptions, schema: pa.Schema) -> None:
        self._sink = sink
        #: The columns of the files.
        self.schema = file_schema(sink, schema)
        #: Name of the column with the number of each row's folder.
        self._number = "folder"
        while self._number in schema.names:
            self._number += "_"
        self._clear()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch.

        Raises:
            SchemaMismatchError: no folder can have a value of a partition column.
        """
        places, paths = folders_of(batch, self._sink.partition_by, self._sink.time_zone)
        numbers = [self._numbers.setdefault(path, len(self._numbers)) for path in paths]
        number = pa.array(numbers, pa.int32()).take(places)
        columns = [batch.column(name) for name in self.schema.names]
        schema = self.schema.append(pa.field(self._number, pa.int32()))
        self._sorter.add(pa.RecordBatch.from_arrays([*columns, number], schema=schema))

    def in_order(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield all rows, with their folder below the sink's path, and forget them."""
        folders = list(self._numbers)
        for batch in self._sorter.in_order():
            ends = pc.run_end_encode(batch.column(batch.num_columns - 1))
            rows = batch.select(self.schema.names)
            places = [0, *ends.run_ends.to_pylist()]
            for (start, end), number in zip(pairwise(places), ends.values.to_pylist(), strict=True):
                yield folders[number], rows.slice(start, end - start)
        self.close()
        self._clear()

    def close(self) -> None:
        """Delete the temporary files. May be called twice."""
        self._sorter.close()

    def _clear(self) -> None:
        self._numbers: dict[str, int] = {}
        self._sorter = Sorter((self._number, *self._sink.sort_within), _MEMORY)


def _unknown(option: str, name: str, schema: pa.Schema) -> UnknownColumnError:
    near = close_matches(name, schema.names) or schema.names[:3]
    is_there = name in schema.names
    return UnknownColumnError(
        f"{option}: {'several columns have the name' if is_there else 'there is no column'} {name!r}",
        asked=f"{option}={name!r}",
        have=", ".join(schema.names),
        remedy="rename one of them" if is_there else " · ".join(f"{option}={n!r}" for n in near),
        details={"column": name},
    )
