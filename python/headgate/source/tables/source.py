"""The base of sources of tables: one version of a table, or also what comes after it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from headgate._kinds import kind_of
from headgate.errors import NotBuiltError, SourceError
from headgate.source.api import (
    Boundedness,
    JsonSerializer,
    SimpleVersionedSerializer,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from headgate.source.arguments import (
    arrow_expression,
    distinct_names,
    duration,
    refuse,
    size,
    whole_number,
)
from headgate.source.files.conform import ComputedColumns, RowFilter, select
from headgate.source.files.format import Planning
from headgate.source.files.order import natural
from headgate.source.files.reading import columns_to_read
from headgate.source.sequential import BatchSourceReader, SequentialSplitReader
from headgate.source.tables.columns import plain_types, retyped
from headgate.source.tables.enumerator import TableEnumerator, TablePlan, TableWork
from headgate.source.tables.reading import TableReading
from headgate.source.tables.split import TableCheckpoint, TableCheckpointSerializer, TableSplit

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from headgate.source.tables.table import Pinned, Table, TableFile

LATEST: Final = "latest"
#: Splits per reader of small tables, so that all readers end at about the same time.
_SPLITS_PER_READER: Final = 8


class TableSource(Source[pa.RecordBatch, TableSplit, TableCheckpoint]):
    """Reads a table in splits of its data files, which are assigned on request.

    Args:
        table: the table.
        columns: names of the columns to read, in order, or names with expressions; by default all.
        filter: every row for which it is not true is dropped; it may use columns that are not in ``columns``.
        split_size: largest size of a split, unless a file cannot be cut so small.
        batch_rows: rows in a batch, at most; by default about 4 MiB.
        discovery_interval: seconds between two looks for new versions; None to end with what is there.
        after: the version after which changes are read, or "latest"; None to read a version first.

    Raises:
        OptionError: an argument is outside its limits.
    """

    def __init__(
        self,
        table: Table,
        *,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None,
        filter: pc.Expression | None,  # noqa: A002 - as pyarrow calls it
        split_size: str | int,
        batch_rows: int | None,
        discovery_interval: str | float | None,
        after: int | str | None,
    ) -> None:
        self._table = table
        #: Names of computed columns -> their expressions; None if no column is computed.
        self._computed: dict[str, pc.Expression] | None = None
        if isinstance(columns, Mapping):
            self._computed = {name: arrow_expression(it, "columns") for name, it in columns.items()}
            columns = list(columns)
        self._columns = None if columns is None else distinct_names(columns)
        if self._columns == ():
            raise refuse("columns", columns, "is empty", "one name or more")
        self._filter = None if filter is None else arrow_expression(filter)
        self._split_size = size("split_size", split_size, 1)
        self._batch_rows = None
        if batch_rows is not None:
            self._batch_rows = whole_number("batch_rows", batch_rows, 1, 2**31 - 1)
        self._interval = None
        if discovery_interval is not None:
            self._interval = duration("discovery_interval", discovery_interval, 0.001)
        self._after = _version(after)
        if after is not None and table.is_fixed:
            raise refuse(
                "after", after, "contradicts the choice of a version", "None beside a version"
            )
        self._until_now = False
        self._pinned: Pinned | None = None
        self._known_bytes: int | None = None
        self._lock = threading.Lock()

    @property
    def boundedness(self) -> Boundedness:
        """``BOUNDED`` without ``discovery_interval``."""
        if self._interval is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def name(self) -> str:
        """The kind of table and its address, such as ``DeltaSource(/lake/orders)``."""
        return f"{type(self).__name__}({self._table.name})"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the version that is read, reduced to ``columns``.

        The version is looked up once, and pickled with the source from then on.

        Raises:
            SourceError: there is no such table or version.
            NotBuiltError: the table has a feature that this source does not know.
            UnknownColumnError: there is no such column.
            OptionError: the filter does not fit the columns.
        """
        base = self._all_columns()
        if self._columns is None:
            return base
        if self._computed is None:
            return select(base, self._columns, self.name)
        return ComputedColumns(self._columns, self._computed, base).schema

    @property
    def pinned(self) -> Pinned:
        """The table as it was at the first look, which blocks."""
        with self._lock:
            if self._pinned is None:
                self._pinned = self._table.pin()
            return self._pinned

    @property
    def known_bytes(self) -> int | None:
        """Bytes of the files of the version, if :meth:`with_known_bytes` was told; else None."""
        return self._known_bytes

    def create_enumerator(
        self, context: SplitEnumeratorContext[TableSplit]
    ) -> SplitEnumerator[TableSplit, TableCheckpoint]:
        """Return an enumerator that has planned nothing yet."""
        return self.restore_enumerator(context, TableCheckpoint())

    def restore_enumerator(
        self, context: SplitEnumeratorContext[TableSplit], checkpoint: TableCheckpoint
    ) -> SplitEnumerator[TableSplit, TableCheckpoint]:
        """Return an enumerator that continues after the version of a checkpoint."""
        in_order = context.has_watermarks

        def plan(table: str, since: int | None, readers: int) -> TablePlan:
            return self._plan(table, since, readers, in_order=in_order)

        return TableEnumerator(
            context, checkpoint, TableWork(plan, self._interval, self._until_now)
        )

    def create_reader(
        self, context: SourceReaderContext
    ) -> SourceReader[pa.RecordBatch, TableSplit]:
        """Return a reader of one split after another."""
        reading = self.reading()
        return BatchSourceReader(lambda: SequentialSplitReader(reading), context)

    @property
    def split_serializer(self) -> SimpleVersionedSerializer[TableSplit]:
        """JSON."""
        return JsonSerializer(TableSplit)

    @property
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[TableCheckpoint]:
        """Compressed JSON."""
        return TableCheckpointSerializer()

    def with_columns(self, columns: Sequence[str]) -> Self | None:
        """Return this source reduced to some columns, in this order; None if there are none.

        Raises:
            UnknownColumnError: this source has no such column.
        """
        names = distinct_names(columns)
        select(self.schema, names, self.name)
        computed = self._computed and {name: self._computed[name] for name in names}
        return self._changed(_columns=names, _computed=computed) if names else None

    def with_filter(self, expression: pc.Expression) -> Self:
        """Return this source without the rows for which ``expression`` is not true.

        Raises:
            OptionError: the expression does not fit the columns.
        """
        RowFilter(arrow_expression(expression), self._all_columns())
        both = expression if self._filter is None else self._filter & expression
        return self._changed(_filter=both)

    def until_now(self) -> Self:
        """Return this source, which ends with the newest version; the next job goes on after it.

        A source of one chosen version is its own result.
        """
        if self._table.is_fixed and self._interval is None:
            return self
        return self._changed(_interval=None, _until_now=True)

    def reading(self) -> TableReading:
        """Return what plans and reads the files."""
        return TableReading(
            self.pinned, self.schema.names, self._filter, self._batch_rows, self._computed
        )

    def files(self) -> list[TableFile]:
        """Return all files of the version, with what the log says of them; blocks."""
        return self._table.snapshot(self.pinned, self.reading().filtered)

    def with_types(self, schema: pa.Schema) -> Self:
        """Return this source with other types of some of the table's columns, such as times in another zone.

        Raises:
            SchemaMismatchError: the table has no such column, or a column has other fields inside.
        """
        pinned = self.pinned
        return self._changed(_pinned=replace(pinned, schema=retyped(pinned.schema, schema)))

    def with_known_bytes(self, size: int) -> Self:
        """Return this source, which knows how many bytes its files have."""
        return self._changed(_known_bytes=size)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state with a new lock."""
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def _changed(self, **changes: Any) -> Self:
        changed = copy.copy(self)
        changed.__dict__.update(changes)
        return changed

    def _all_columns(self) -> pa.Schema:
        pinned = self.pinned
        schema = plain_types(pinned.schema)
        if self._filter is not None:
            RowFilter(self._filter, schema)
        names = schema.names if self._columns is None else self._columns
        used = {*columns_to_read(schema, names, self._filter, self._computed)}
        for name, reason in pinned.unread.items():
            if name in used:
                raise NotBuiltError(
                    f"column {name!r} of {self._table.name} {reason}",
                    asked=f"columns {', '.join(sorted(used))}",
                    remedy=f"columns={[each for each in schema.names if each not in pinned.unread]!r} · Spark's own reader",
                    details={"column": name},
                )
        return schema

    def _plan(self, table: str, since: int | None, readers: int, *, in_order: bool) -> TablePlan:
        """List files and cut them into splits; blocks.

        Args:
            table: the id of the table in the checkpoint; "" without one.
            since: the version up to which all files were cut; None if there is none.
            readers: their number.
            in_order: True to keep the order of the files, because the readers make watermarks.
        """
        pinned = self.pinned
        if table and table != pinned.table:
            raise SourceError(
                f"the checkpoint is of another table than {self._table.name} is now",
                asked=f"table {table}",
                have=f"table {pinned.table}, so the table was made anew",
                remedy="a new folder for the checkpoints, to read the table from its beginning",
            )
        reading = self.reading()
        files: list[TableFile] = []
        version, goes_on = since, self._interval is not None or self._until_now
        if version is None and self._after is not None:
            version, goes_on = self._table.first(self._after, pinned), True
        elif version is None:
            files += self._table.snapshot(pinned, reading.filtered)
            if in_order:
                files.sort(key=lambda file: natural(file.path))
            else:  # Large ones first, so that all readers end at about the same time.
                files.sort(key=lambda file: -file.size)
            version = pinned.version
        if goes_on:
            ends = self._interval is None and not self._until_now
            until = pinned.version if ends else None
            version, more = self._table.changes(pinned, version, until)
            files += more
        return TablePlan(pinned.table, since, version, [*self._splits(files, reading, readers)])

    def _splits(
        self, files: Sequence[TableFile], reading: TableReading, readers: int
    ) -> Sequence[TableSplit]:
        share = sum(file.size for file in files) / (readers * _SPLITS_PER_READER)
        limit = Planning((), self.schema, None, self._split_size, share).limit()
        splits = []
        for file in filter(reading.may_have_rows, files):
            # The footer of a small file is read by the task that reads the file.
            whole = [(0, -1, file.size)]
            for start, end, part in (
                whole if file.size <= limit else reading.row_groups(file, limit)
            ):
                splits.append(
                    TableSplit(
                        file.path,
                        start,
                        end,
                        part,
                        file.size,
                        file.version,
                        dict(file.values),
                        file.left_out,
                    )
                )
        return splits


def _version(after: Any) -> int | str | None:
    is_number = isinstance(after, int) and not isinstance(after, bool)
    if after is None or is_number or after == LATEST:
        return after  # type: ignore[no-any-return]
    raise refuse("after", after, f"is {kind_of(after)}, no version", f'a version or "{LATEST}"')
