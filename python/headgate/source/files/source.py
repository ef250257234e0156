"""Files as a source: Parquet, Arrow IPC, CSV and JSON lines, on any file system of pyarrow."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from headgate._arguments import function, one_of
from headgate._kinds import kind_of
from headgate.errors import HeadgateError, OptionError, SourceError, UnknownColumnError
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
from headgate.source.files.conform import ComputedColumns, RowFilter, plain_schema, select
from headgate.source.files.csv_options import CsvOptions
from headgate.source.files.enumerator import FileEnumerator, FileWork
from headgate.source.files.format import FileFormat, Planning
from headgate.source.files.listing import RENAMED, Files, KnownFiles
from headgate.source.files.options import arguments_of
from headgate.source.files.order import ORDERS, Order
from headgate.source.files.partitions import FolderPartitions, GivenPartitions, may_match
from headgate.source.files.reading import SplitOpener, columns_to_read, first_schema
from headgate.source.files.split import (
    FileCheckpoint,
    FileCheckpointSerializer,
    FileSplit,
    ListedFile,
)
from headgate.source.sequential import BatchSourceReader, SequentialSplitReader

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.fs as pafs

_SPLITS: Final = JsonSerializer(FileSplit)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class FileSource(Source[pa.RecordBatch, FileSplit, FileCheckpoint]):
    """Reads files in splits that are assigned on request.

    A Parquet split is one row group or several small adjacent ones, an Arrow split one or more
    record batches, a JSON lines split a byte range cut at line ends. A CSV file is one split,
    unless ``csv=CsvOptions(newlines_in_values=False)`` allows byte ranges. Files and folders whose
    names begin with ``_`` or ``.`` are ignored.

    All files are cast to one schema. A column that a file lacks is null, or an error if the schema
    says not null. A column of another type is cast to a related type (a wider integer, another
    unit of time) as long as no value changes. A column that the schema lacks is dropped.
    Dictionaries become their values.

    With ``discovery_interval`` the source has no end: it lists the paths again and again, and reads
    every file once, as it was when first listed. A file that changes after its listing is an error,
    also if it was read already. So a writer must write a file under a name with ``_`` or ``.`` first,
    or elsewhere, and rename it when it is complete.

    A folder of a Delta, Iceberg or Hudi table is refused, as the files of its deleted rows are there too.

    Args:
        paths: files, folders, patterns (``*``, ``?``, ``**``) or URIs; or files that were listed before.
        format: ``"parquet"``, ``"arrow"``, ``"csv"`` or ``"json"`` (lines).
        columns: names of the columns to read, in order; by default all. Or a mapping of names to expressions over
            all columns, such as ``{"id": pc.field("number"), "half": pc.field("n") * 0.5}``, as
            ``pyarrow.dataset`` takes.
        filter: every row for which it is not true is dropped; it may use columns that are not in
            ``columns``.
        filesystem: a ``pyarrow.fs.FileSystem``, or the URI of a folder that the paths are below;
            by default the file system of the paths.
        schema: the schema of all columns; by default that of the first file by path, inferred from
            its first MiB for CSV and JSON. Required for a folder that is empty at the start.
        split_size: largest size of a split (``"64m"``), unless a file cannot be cut so small.
            Splits of small inputs are smaller, so that all readers get some.
        batch_rows: rows in a batch, at most; by default about 4 MiB.
        discovery_interval: seconds (or ``"5s"``) between two listings; None to list once.
        partitioning: ``"hive"`` if the names of folders below the paths contain columns, such as
            ``day=2026-01-31``. They replace a file's own columns with the same names, and are
            64-bit integers or strings unless ``schema`` has another type. A filter on them skips
            whole files. Or a mapping of the path of each file to a mapping of columns, which ``schema``
            has, to their values in the file.
        hosts: a function from a path to the hosts on which reading it is cheap; readers on these
            hosts get its splits first, in the order ``"size"``.
        order: the order of the splits: ``"name"`` of the files, with numbers by their values, so that ``part-9``
            is before ``part-10``; ``"modified"``; or ``"size"``, the largest first, which ends soonest. By default
            ``"name"`` if the source has watermarks, else ``"size"``.
        csv: the dialect of CSV files.

    Raises:
        OptionError: an argument is outside its limits.
    """

    def __init__(
        self,
        paths: Paths | Files,
        format: str = "parquet",  # noqa: A002 - as Spark and pyarrow call it
        *,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - as pyarrow calls it
        filesystem: pafs.FileSystem | str | None = None,
        schema: pa.Schema | None = None,
        split_size: str | int = "64m",
        batch_rows: int | None = None,
        discovery_interval: str | float | None = None,
        partitioning: str | Mapping[str, Mapping[str, Any]] | None = None,
        hosts: Callable[[str], Sequence[str]] | None = None,
        order: Order | None = None,
        csv: CsvOptions | None = None,
    ) -> None:
        self._files = paths if isinstance(paths, Files) else Files(paths, filesystem)
        self._format = _format(format, csv)
        #: Names of computed columns -> their expressions; None if no column is computed.
        self._computed: dict[str, pc.Expression] | None = None
        if isinstance(columns, Mapping):
            self._computed = {name: arrow_expression(it, "columns") for name, it in columns.items()}
            columns = list(columns)
        self._columns = None if columns is None else distinct_names(columns)
        if self._columns == ():
            raise refuse("columns", columns, "is empty", "one name or more")
        self._filter = None if filter is None else arrow_expression(filter)
        if not isinstance(schema, pa.Schema | None):
            raise refuse(
                "schema", schema, "is no Arrow schema", 'pyarrow.schema([("id", "int64")])'
            )
        #: The file from which the schema was inferred, once it was.
        self._guessed_from: str | None = None
        self._declared = None if schema is None else plain_schema(schema, "the schema")
        self._split_size = size("split_size", split_size, 1)
        if batch_rows is not None:
            batch_rows = whole_number("batch_rows", batch_rows, 1, 2**31 - 1)
        self._batch_rows = batch_rows
        self._interval: float | None = None
        if discovery_interval is not None:
            self._interval = duration("discovery_interval", discovery_interval, 0.001)
        self._partitions = self._partitions_of(partitioning)
        if hosts is not None:
            function("hosts", hosts, 1, "def hosts(path): ..., which returns names of hosts")
        self._hosts = hosts
        if order is not None and order not in ORDERS:
            takes = " or ".join(f'"{name}"' for name in ORDERS)
            raise refuse("order", order, "is no order of files", takes)
        self._order = order
        self._until_now = False
        self._lock = threading.Lock()

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source that string options describe; ``path`` or ``paths`` is required.

        The names are those of the arguments in lower camel case: ``format``, ``columns``,
        ``splitSize``, ``batchRows``, ``discoveryInterval``, ``partitioning``, ``filesystem``,
        ``order``, ``schema`` (as ``"id int64, name string"``); for CSV ``delimiter``, ``quoteChar``,
        ``doubleQuote``, ``escapeChar``, ``header``, ``columnNames``, ``newlinesInValues``,
        ``nullValues``, ``stringsCanBeNull``, ``quotedStringsCanBeNull``, ``encoding``. ``sep`` is
        another name of ``delimiter``. Lists are separated by commas, or JSON lists of strings.

        Raises:
            OptionError: an option is unknown or malformed, or there is no path.
        """
        return cls(**arguments_of(cls.__name__, options))

    @property
    def boundedness(self) -> Boundedness:
        """``BOUNDED`` without ``discovery_interval``."""
        if self._interval is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def name(self) -> str:
        """Format and paths, such as ``FileSource(parquet, /data)``."""
        paths = self._files.paths
        return (
            f"FileSource({self._format.name}, {', '.join(paths[:3])}{', ...' * (len(paths) > 3)})"
        )

    @property
    def known_bytes(self) -> int | None:
        """Bytes of the files if they were listed before the source was made; else None."""
        return self._files.bytes if isinstance(self._files, KnownFiles) else None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches, as given or as in the first file, reduced to ``columns``.

        It is pickled with the source once it is known, so read it before the source is pickled.

        Raises:
            SourceError: there is no file, or it cannot be read.
            UnknownColumnError: there is no such column.
            OptionError: the filter does not fit the columns.
        """
        base = self._all_columns()
        if self._columns is None:
            return base
        if self._computed is None:
            return self._selected(base, self._columns)
        return ComputedColumns(self._columns, self._computed, base).schema

    def would_list(self, filesystem: pafs.FileSystem, file: str) -> bool:
        """Return True if the file is in one of the folders, or fits one of the patterns."""
        return self._files.would_list(filesystem, file)

    def create_enumerator(
        self, context: SplitEnumeratorContext[FileSplit]
    ) -> SplitEnumerator[FileSplit, FileCheckpoint]:
        """Return an enumerator that lists the files."""
        return self.restore_enumerator(context, FileCheckpoint())

    def restore_enumerator(
        self, context: SplitEnumeratorContext[FileSplit], checkpoint: FileCheckpoint
    ) -> SplitEnumerator[FileSplit, FileCheckpoint]:
        """Return an enumerator that continues with the files of a checkpoint."""
        work = FileWork(self.files, self._plan, self._interval, self._order, self._until_now)
        return FileEnumerator(context, checkpoint, work)

    def create_reader(
        self, context: SourceReaderContext
    ) -> SourceReader[pa.RecordBatch, FileSplit]:
        """Return a reader of one split after another."""
        opener = self.split_opener()
        return BatchSourceReader(lambda: SequentialSplitReader(opener, never_waits=True), context)

    def split_opener(self) -> SplitOpener:
        """Return a callable that reads a split and yields pairs of batch and position."""
        return SplitOpener(
            self._files,
            self._format,
            self._all_columns(),
            self.schema.names,
            self._filter,
            self._batch_rows,
            computed=self._computed,
            partitions=self._partitions,
            guessed_from=self._guessed_from,
        )

    @property
    def split_serializer(self) -> SimpleVersionedSerializer[FileSplit]:
        """JSON."""
        return _SPLITS

    @property
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[FileCheckpoint]:
        """Compressed JSON."""
        return FileCheckpointSerializer()

    def with_columns(self, columns: Sequence[str]) -> FileSource | None:
        """Return this source reduced to some columns, in this order; None if there are none.

        Raises:
            UnknownColumnError: this source has no such column.
        """
        names = distinct_names(columns)
        self._selected(self.schema, names)
        computed = self._computed and {name: self._computed[name] for name in names}
        return self._changed(_columns=names, _computed=computed) if names else None

    def with_schema(self, schema: pa.Schema) -> FileSource | None:
        """Return this source with these columns; None if it was made with a schema.

        Raises:
            SchemaMismatchError: two columns have the same name.
        """
        with self._lock:
            if self._declared is not None and self._guessed_from is None:
                return None
        declared = plain_schema(schema, "the schema")
        return self._changed(_declared=declared, _guessed_from=None)

    def with_filter(self, expression: pc.Expression) -> FileSource:
        """Return this source without the rows for which ``expression`` is not true.

        It may use every column of the files, and is combined with the present filter by "and".

        Raises:
            OptionError: the expression does not fit the columns.
        """
        RowFilter(arrow_expression(expression), self._all_columns())
        both = expression if self._filter is None else self._filter & expression
        return self._changed(_filter=both)

    def until_now(self) -> FileSource:
        """Return this source without ``discovery_interval``: the files that are there now and were not read before."""
        return self._changed(_interval=None, _until_now=True)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state with a new lock."""
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def _changed(self, **changes: Any) -> FileSource:
        changed = object.__new__(type(self))
        changed.__setstate__({**self.__getstate__(), **changes})
        return changed

    def _selected(self, schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
        try:
            return select(schema, names, self.name)
        except UnknownColumnError as error:
            hint = self._format.hint(self._files, self._guessed_from) if self._guessed_from else ""
            error.remedy = " · ".join(filter(None, (error.remedy, hint)))
            raise

    def _all_columns(self) -> pa.Schema:
        with self._lock:
            if self._declared is None:
                self._declared, self._guessed_from = first_schema(
                    self._files, self._format, by_folders=self._partitions is not None
                )
            schema = self._declared
        if self._filter is not None:
            RowFilter(self._filter, schema)
        return schema

    def _partitions_of(self, partitioning: Any) -> FolderPartitions | GivenPartitions | None:
        if partitioning is None:
            return None
        if not isinstance(partitioning, Mapping):
            one_of("hive")("partitioning", partitioning)
            return FolderPartitions(self._files.folder_values)
        for path, values in partitioning.items():
            if not isinstance(path, str) or not isinstance(values, Mapping):
                takes = 'paths with their columns, such as {"/data/a.parquet": {"day": 1}}'
                raise refuse("partitioning", partitioning, f"has {path!r}: {values!r}", takes)
        named = {name for values in partitioning.values() for name in values}
        missing = sorted(named - set(self._declared.names if self._declared else ()))
        if missing:
            takes = f"a schema with {', '.join(missing)}"
            raise refuse("partitioning", partitioning, "has columns without a type", takes)
        return GivenPartitions(partitioning, self._declared)

    def files(self) -> list[ListedFile]:
        """Return the files, sorted by path; blocks.

        Raises:
            SourceError: a path is missing or cannot be listed, or the order needs a time that a file does not have.
        """
        files = self._files.listed(missing_ok=self._interval is not None or self._until_now)
        undated = next((file.path for file in files if file.modified is None), None)
        if self._order == "modified" and undated is not None:
            raise SourceError(
                f"the file system has no time of modification of {undated}",
                asked="order='modified'",
                remedy='order="name"',
                details={"path": undated},
            )
        return files

    def _plan(self, files: Sequence[ListedFile], share: float) -> list[FileSplit]:
        schema = self._all_columns()
        columns = columns_to_read(schema, self.schema.names, self._filter, self._computed)
        planning = Planning(columns, schema, self._filter, self._split_size, share)
        splits: list[FileSplit] = []
        plannings: dict[Hashable, Planning | None] = {}
        for file in files:
            try:
                group = None if self._partitions is None else self._partitions.group(file.path)
                if group not in plannings:
                    plannings[group] = self._planning_of(file, planning)
                group_planning = plannings[group]
                planned: list[FileSplit] = []
                if group_planning is not None:
                    planned = self._format.plan(self._files, file, group_planning)
                hosts = tuple(self._hosts(file.path)) if self._hosts and planned else ()
            except HeadgateError:
                raise
            except Exception as error:
                text = str(error).strip().partition("\n")[0]
                raise SourceError(
                    f"{file.path} cannot be cut into splits: {text or type(error).__name__}",
                    asked=f"format={self._format.name!r}",
                    remedy=f"if it was still written: {RENAMED} · mend it · leave it out by a pattern",
                    details={"path": file.path},
                ) from error
            splits += [replace(split, hosts=hosts) for split in planned] if hosts else planned
        return splits

    def _planning_of(self, file: ListedFile, planning: Planning) -> Planning | None:
        """Return the parameters for files with a file's values; None if no row of them can pass the filter."""
        if self._partitions is None:
            return planning
        fixed = self._partitions.fixed(file.path, planning.schema)
        if planning.filter is not None and not may_match(planning.filter, fixed, planning.schema):
            return None
        return replace(planning, fixed=fixed)


def _format(name: str, csv: CsvOptions | None) -> FileFormat:
    """Return a format, and import the reader of no other."""
    if csv is not None and name != "csv":
        raise OptionError(
            f"csv=CsvOptions(...) is not allowed with format={name!r}",
            asked=f"format={name!r}, csv={csv!r}",
            remedy='format="csv" · leave csv out',
        )
    if not isinstance(csv, CsvOptions | None):
        raise refuse(
            "csv", csv, f"is {kind_of(csv)}", "a CsvOptions", 'csv=CsvOptions(delimiter=";")'
        )
    match name:
        case "parquet":
            from headgate.source.files.parquet import ParquetFormat  # noqa: PLC0415 - slow

            return ParquetFormat()
        case "arrow":
            from headgate.source.files.ipc import ArrowFormat  # noqa: PLC0415 - slow

            return ArrowFormat()
        case "csv":
            from headgate.source.files.csv import CsvFormat  # noqa: PLC0415 - slow

            return CsvFormat(csv or CsvOptions())
        case "json":
            from headgate.source.files.json_lines import JsonLinesFormat  # noqa: PLC0415 - slow

            return JsonLinesFormat()
        case _:
            takes = '"parquet" or "arrow" or "csv" or "json"'
            raise refuse("format", name, "is not a format of files", takes)
