"""Files as a source: Parquet, Arrow IPC, CSV and JSON lines, on any file system of pyarrow."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from headgate.errors import HeadgateError, OptionError, SourceError
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
from headgate.source.arguments import duration, refuse, size, whole_number
from headgate.source.files.conform import RowFilter, plain_schema, select
from headgate.source.files.csv_options import CsvOptions
from headgate.source.files.enumerator import FileEnumerator, FileWork
from headgate.source.files.format import Cut, FileFormat
from headgate.source.files.listing import Files
from headgate.source.files.options import arguments_of
from headgate.source.files.partitions import constants, may_match
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

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class FileSource(Source[pa.RecordBatch, FileSplit, FileCheckpoint]):
    """Files, read in splits that are handed out on request.

    A Parquet split is a row group (small neighbours go together), an Arrow split some record
    batches, a JSON lines split a range of bytes cut at ends of lines; a CSV file is one split
    unless ``csv=CsvOptions(newlines_in_values=False)`` says that it may be cut. Files and folders
    whose names begin with ``_`` or ``.`` are left out.

    Every file is cast to one schema: a column that a file has not is null (an error where the
    schema says not null), one of another type is cast within its family as long as no value
    changes, a column that the schema has not is left out. Dictionaries come as their values.

    With ``discovery_interval`` the source has no end: the paths are listed again and again, and
    every path is read once, in the state in which it was first listed. So a writer must write a
    file under another name (``_`` or ``.`` first) or elsewhere and rename it when it is complete;
    a file that changes after it was listed is an error.

    Args:
        paths: files, folders, patterns (``*``, ``?``, ``**``) or URIs.
        format: ``"parquet"``, ``"arrow"``, ``"csv"`` or ``"json"`` (lines).
        columns: names of the columns to read, in this order; all when not given.
        filter: rows for which it is not true are left out, every one of them; it may use columns
            that ``columns`` has not.
        filesystem: a ``pyarrow.fs.FileSystem`` or a URI that the paths are below; by default that
            of the paths.
        schema: of all columns; by default that of the first file by path, inferred from its first
            MiB for CSV and JSON. A folder that is empty at the start needs one.
        split_size: what a split weighs at most (``"64m"``), where it can be cut so small. Splits
            are smaller when there is little to read, so that all readers get some.
        batch_rows: rows in a batch, at most; by default as many as make about 4 MiB.
        discovery_interval: seconds (or ``"5s"``) between two listings; None to list once.
        partitioning: ``"hive"`` when names of folders below the paths say columns, as
            ``day=2026-01-31``: these are then columns, in place of a file's own of that name,
            64-bit integers or texts unless ``schema`` says another type. A filter on them leaves
            whole files out.
        hosts: path -> the hosts where reading it is cheap; readers there get those splits first.
        csv: how CSV files are written.

    Raises:
        OptionError: an argument outside its limits.
    """

    def __init__(
        self,
        paths: Paths,
        format: str = "parquet",  # noqa: A002 - as Spark and pyarrow call it
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - as pyarrow calls it
        filesystem: pafs.FileSystem | str | None = None,
        schema: pa.Schema | None = None,
        split_size: str | int = "64m",
        batch_rows: int | None = None,
        discovery_interval: str | float | None = None,
        partitioning: str | None = None,
        hosts: Callable[[str], Sequence[str]] | None = None,
        csv: CsvOptions | None = None,
    ) -> None:
        self._files = Files(paths, filesystem)
        self._format = _format(format, csv)
        self._columns = None if columns is None else _names(columns)
        if self._columns == ():
            takes = "one name or more"
            raise refuse("columns", columns, "leaves no column, and so no rows", takes)
        self._filter = None if filter is None else _expression(filter)
        if not isinstance(schema, pa.Schema | None):
            raise refuse(
                "schema", schema, "is no Arrow schema", 'pyarrow.schema([("id", "int64")])'
            )
        self._given = None if schema is None else plain_schema(schema, "the schema")
        self._split_size = size("split_size", split_size, 1)
        if batch_rows is not None:
            batch_rows = whole_number("batch_rows", batch_rows, 1, 2**31 - 1)
        self._batch_rows = batch_rows
        self._interval: float | None = None
        if discovery_interval is not None:
            self._interval = duration("discovery_interval", discovery_interval, 0.001)
        if partitioning not in {None, "hive"}:
            raise refuse("partitioning", partitioning, "is not known", '"hive"')
        self._by_folders = partitioning is not None
        self._hosts = hosts
        self._lock = threading.Lock()

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source of ``path`` (or ``paths``), ``format`` and the others as texts.

        Names are those of the arguments in lower camel case: ``columns``, ``splitSize``,
        ``batchRows``, ``discoveryInterval``, ``partitioning``, ``filesystem``, ``schema`` (as ``"id int64, name
        string"``); for CSV ``delimiter``, ``quoteChar``, ``escapeChar``, ``header``,
        ``columnNames``, ``newlinesInValues``, ``nullValues``, ``stringsCanBeNull``.

        Raises:
            OptionError: another option, none of the paths, or a value that cannot be read.
        """
        return cls(**arguments_of(cls.__name__, options))

    @property
    def boundedness(self) -> Boundedness:
        """Bounded without ``discovery_interval``."""
        if self._interval is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def name(self) -> str:
        """Format and paths, as ``FileSource(parquet, /data)``."""
        paths = self._files.paths
        return (
            f"FileSource({self._format.name}, {', '.join(paths[:3])}{', ...' * (len(paths) > 3)})"
        )

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches: the columns asked for, as given or as the first file has them.

        Once it is known it travels with the source, so ask for it before the source is pickled.

        Raises:
            SourceError: there is no file to ask, or it cannot be read.
            UnknownColumnError: a column that is not there.
            OptionError: the filter does not fit the columns.
        """
        base = self._all_columns()
        return base if self._columns is None else select(base, self._columns, self.name)

    def create_enumerator(
        self, context: SplitEnumeratorContext[FileSplit]
    ) -> SplitEnumerator[FileSplit, FileCheckpoint]:
        """Return an enumerator that lists the files."""
        return self.restore_enumerator(context, FileCheckpoint())

    def restore_enumerator(
        self, context: SplitEnumeratorContext[FileSplit], checkpoint: FileCheckpoint
    ) -> SplitEnumerator[FileSplit, FileCheckpoint]:
        """Return an enumerator that goes on with the files of a checkpoint."""
        work = FileWork(self._list, self._plan, self._interval)
        return FileEnumerator(context, checkpoint, work)

    def create_reader(
        self, context: SourceReaderContext
    ) -> SourceReader[pa.RecordBatch, FileSplit]:
        """Return a reader of one split after another."""
        opener = self.split_opener()
        return BatchSourceReader(lambda: SequentialSplitReader(opener), context)

    def split_opener(self) -> SplitOpener:
        """Return what reads a split by itself: a callable that yields ``(batch, position)``."""
        return SplitOpener(
            self._files,
            self._format,
            self._all_columns(),
            self.schema.names,
            self._filter,
            self._batch_rows,
            by_folders=self._by_folders,
        )

    @property
    def split_serializer(self) -> SimpleVersionedSerializer[FileSplit]:
        """JSON."""
        return JsonSerializer(FileSplit)

    @property
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[FileCheckpoint]:
        """Compressed JSON."""
        return FileCheckpointSerializer()

    def with_columns(self, columns: Sequence[str]) -> FileSource | None:
        """Return this source reduced to some columns, in the order given; None for none at all.

        Raises:
            UnknownColumnError: a column that this source does not give.
        """
        names = _names(columns)
        select(self.schema, names, self.name)
        return self._changed(_columns=names) if names else None

    def with_filter(self, expression: pc.Expression) -> FileSource:
        """Return this source without the rows for which ``expression`` is not true.

        It may use every column of the files, and is added to the filter that there is.

        Raises:
            OptionError: the expression does not fit the columns.
        """
        RowFilter(expression, self._all_columns())
        both = expression if self._filter is None else self._filter & expression
        return self._changed(_filter=both)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a lock of this process."""
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def _changed(self, **changes: Any) -> FileSource:
        changed = object.__new__(type(self))
        changed.__setstate__({**self.__getstate__(), **changes})
        return changed

    def _all_columns(self) -> pa.Schema:
        with self._lock:
            if self._given is None:
                self._given = first_schema(self._files, self._format, by_folders=self._by_folders)
            schema = self._given
        if self._filter is not None:
            RowFilter(self._filter, schema)
        return schema

    def _list(self) -> list[ListedFile]:
        return self._files.listed(missing_ok=self._interval is not None)

    def _plan(self, files: Sequence[ListedFile], share: float) -> list[FileSplit]:
        schema = self._all_columns()
        columns = columns_to_read(schema, self.schema.names, self._filter)
        cut = Cut(columns, schema, self._filter, self._split_size, share)
        splits: list[FileSplit] = []
        cuts: dict[str, Cut | None] = {}
        for file in files:
            folder = file.path.rpartition("/")[0]
            try:
                if folder not in cuts:
                    cuts[folder] = self._cut_of(file, cut)
                own = cuts[folder]
                planned = [] if own is None else self._format.plan(self._files, file, own)
                hosts = tuple(self._hosts(file.path)) if self._hosts and planned else ()
            except HeadgateError:
                raise
            except Exception as error:
                text = str(error).strip().partition("\n")[0]
                raise SourceError(
                    f"{file.path} cannot be cut into splits: {text or type(error).__name__}",
                    asked=f"format={self._format.name!r}",
                    remedy='leave the file out, with a pattern such as "/data/*.parquet"',
                    details={"path": file.path},
                ) from error
            splits += [replace(split, hosts=hosts) for split in planned] if hosts else planned
        return splits

    def _cut_of(self, file: ListedFile, cut: Cut) -> Cut | None:
        """Return how the files of a folder are cut; None if no row of them can pass the filter."""
        if not self._by_folders:
            return cut
        fixed = constants(self._files.folder_values(file.path), cut.schema, file.path)
        if cut.filter is not None and not may_match(cut.filter, fixed, cut.schema):
            return None
        return replace(cut, fixed=fixed)


def _format(name: str, csv: CsvOptions | None) -> FileFormat:
    """Return a format; imports what reads it, and no other."""
    if csv is not None and name != "csv":
        raise OptionError(
            f"csv=CsvOptions(...) has no use with format={name!r}",
            asked=f"format={name!r}, csv={csv!r}",
            remedy='format="csv" · leave csv out',
        )
    match name:
        case "parquet":
            from headgate.source.files.parquet import ParquetFormat  # noqa: PLC0415 - see above

            return ParquetFormat()
        case "arrow":
            from headgate.source.files.ipc import ArrowFormat  # noqa: PLC0415 - see above

            return ArrowFormat()
        case "csv":
            from headgate.source.files.csv import CsvFormat  # noqa: PLC0415 - see above

            return CsvFormat(csv or CsvOptions())
        case "json":
            from headgate.source.files.json_lines import JsonLinesFormat  # noqa: PLC0415 - see above

            return JsonLinesFormat()
        case _:
            takes = '"parquet" or "arrow" or "csv" or "json"'
            raise refuse("format", name, "is no format of files", takes)


def _expression(given: Any) -> pc.Expression:
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and only filters need it

    if not isinstance(given, pc.Expression):
        takes = 'an expression such as pyarrow.compute.field("n") > 5'
        raise refuse(
            "filter", given, f"is a {type(given).__name__}, not an Arrow expression", takes
        )
    return given


def _names(columns: Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if len(set(names)) != len(names):
        raise refuse("columns", list(names), "names a column twice", "each column once")
    return names
