"""The options of a file sink, as its committers and writers need them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from headgate._arguments import duration, flag, names, one_of, refuse, size, text, whole_number
from headgate._kinds import kind_of
from headgate._locations import MaskedPath
from headgate._partition_names import HIDDEN
from headgate._units import parse_duration, parse_size
from headgate.errors import OptionError
from headgate.sink.encoding import FORMATS, Encoding, Format, compression_of

Mode = Literal["error", "append", "overwrite"]
MODES: Final[tuple[str, ...]] = get_args(Mode)
_CSV: Final = {"header": True, "delimiter": ","}
#: None is a part of a number, a time or an end of a line, which have no quotes around them.
_DELIMITERS: Final = (",", ";", "\t", "|", "~", "^", "\x01")


@dataclass(frozen=True, slots=True)
class FileSinkOptions:
    """The options of :class:`~headgate.sink.FileSink`, which documents them."""

    path: str
    format: Format = field(default="parquet", kw_only=True)
    filesystem: fs.FileSystem | None = field(default=None, kw_only=True)
    mode: Mode = field(default="error", kw_only=True)
    max_rows_per_file: int | None = field(default=None, kw_only=True)
    target_file_size: int | str = field(default="512m", kw_only=True)
    compression: str | None = field(default=None, kw_only=True)
    stale_after: float | str = field(default="1d", kw_only=True)
    header: bool = field(default=True, kw_only=True)
    delimiter: str = field(default=",", kw_only=True)
    partition_by: str | Iterable[str] = field(default=(), kw_only=True)
    sort_within: str | Iterable[str] = field(default=(), kw_only=True)
    time_zone: str | None = field(default=None, kw_only=True)
    compact_below: int | str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the options."""
        object.__setattr__(self, "path", MaskedPath.of(self.path, self.filesystem))
        one_of(*FORMATS)("format", self.format)
        one_of(*MODES)("mode", self.mode)
        compression_of(self.format, self.compression)
        if self.max_rows_per_file is not None:
            whole_number("max_rows_per_file", self.max_rows_per_file, 1)
        if self.filesystem is not None and not isinstance(self.filesystem, fs.FileSystem):
            raise OptionError(
                f"filesystem is {kind_of(self.filesystem)}, not one of pyarrow's",
                remedy="pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs)) · leave it out",
            )
        size("target_file_size", self.target_file_size, 1)
        duration("stale_after", self.stale_after, 0)
        self._check_csv()
        self._check_order()
        if self.compact_below is not None:
            self._check_compaction(self.compact_below)

    def _check_csv(self) -> None:
        changed = [name for name, usual in _CSV.items() if getattr(self, name) != usual]
        if changed and self.format != "csv":
            raise OptionError(
                f"{changed[0]} is an option of CSV files, not of format={self.format!r}",
                remedy=f'format="csv" · leave {changed[0]} out',
            )
        flag("header", self.header)
        if self.delimiter not in _DELIMITERS:
            raise OptionError(
                f"delimiter={self.delimiter!r} does not separate values: it may be a part of them",
                have=f"delimiter takes one of {_DELIMITERS!r}",
                remedy='delimiter=";"',
            )

    def _check_order(self) -> None:
        for option in ("partition_by", "sort_within"):
            columns = names(option, getattr(self, option))
            twice = [name for name in columns if columns.count(name) > 1]
            if twice:
                raise refuse(option, list(columns), f"has {twice[0]!r} twice", "different columns")
            object.__setattr__(self, option, columns)
        for name in self.partition_by:
            if name.startswith(HIDDEN) or "\0" in name:
                wrong = f'has {name!r}: readers ignore folders whose names start with "_" or "."'
                remedy = "rename the column"
                raise refuse("partition_by", self.partition_by, wrong, "visible names", remedy)
            if name in self.sort_within:
                wrong = f"has {name!r}, by which rows are partitioned: it is one value in a file"
                remedy = "leave it out"
                raise refuse("sort_within", self.sort_within, wrong, "columns of the files", remedy)
        if self.time_zone is not None:
            self._check_zone(self.time_zone)

    def _check_zone(self, zone: str) -> None:
        text("time_zone", zone)
        if not self.partition_by:
            raise refuse(
                "time_zone",
                zone,
                "is for timestamps in the names of folders, and there are none",
                "a zone beside partition_by",
                'partition_by="time" · leave time_zone out',
            )
        try:
            pc.local_timestamp(pa.scalar(0, pa.timestamp("us", zone)))
        except pa.ArrowException as error:
            wrong = f"is no time zone: {error}"
            remedy = 'time_zone="UTC" · time_zone="Europe/Berlin" · time_zone="+02:00"'
            raise refuse("time_zone", zone, wrong, "the name of a zone", remedy) from error

    def _check_compaction(self, below: int | str) -> None:
        size("compact_below", below, 1)
        if self.format not in {"parquet", "arrow"}:
            raise OptionError(
                f"compact_below is for Parquet and Arrow files, not for format={self.format!r}",
                remedy='format="parquet" · leave compact_below out',
            )
        if parse_size(below) > self.target_bytes:
            raise refuse(
                "compact_below",
                below,
                f"is more than target_file_size={self.target_file_size!r}, so each joined file would be joined again",
                "at most target_file_size",
            )

    @property
    def is_arranged(self) -> bool:
        """True if a file takes rows in another order than they come in."""
        return bool(self.partition_by or self.sort_within)

    @property
    def suffix(self) -> str:
        """The end of the files' names, by which readers know a compressed one."""
        is_text = self.format in {"csv", "json"}
        return f".{self.format}" + (".gz" if is_text and self.compression == "gzip" else "")

    @property
    def target_bytes(self) -> int:
        """``target_file_size`` in bytes."""
        return parse_size(self.target_file_size)

    @property
    def compact_bytes(self) -> int:
        """``compact_below`` in bytes; 0 to join no files."""
        return 0 if self.compact_below is None else parse_size(self.compact_below)

    @property
    def stale_seconds(self) -> float:
        """``stale_after`` in seconds."""
        return parse_duration(self.stale_after)

    @property
    def encoding(self) -> Encoding:
        """The bytes of the files; their compression is by default the format's."""
        codec = compression_of(self.format, self.compression)
        return Encoding(self.format, codec, self.header, self.delimiter)
