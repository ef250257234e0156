"""The options of a file sink, as its committers and writers need them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from pyarrow import fs

from headgate._kinds import kind_of
from headgate._locations import MaskedPath, refuse_uri
from headgate._matches import close_matches
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

    def __post_init__(self) -> None:
        """Check the options."""
        path: Any = self.path.__fspath__() if hasattr(self.path, "__fspath__") else self.path
        if not isinstance(path, str) or not path:
            raise OptionError(f"path={path!r} is not a path", remedy='path="/data/out"')
        if self.filesystem is not None:
            refuse_uri(path, self.filesystem)
        object.__setattr__(self, "path", MaskedPath(path))
        _choice("format", self.format, FORMATS)
        _choice("mode", self.mode, MODES)
        compression_of(self.format, self.compression)
        rows: Any = self.max_rows_per_file
        if rows is not None and (type(rows) is not int or rows < 1):
            raise OptionError(f"max_rows_per_file={rows!r} is not a whole number of at least 1")
        if self.filesystem is not None and not isinstance(self.filesystem, fs.FileSystem):
            raise OptionError(
                f"filesystem is {kind_of(self.filesystem)}, not one of pyarrow's",
                remedy="pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs)) · leave it out",
            )
        if _parsed("target_file_size", self.target_file_size, parse_size) < 1:
            raise OptionError(f"target_file_size={self.target_file_size!r} is below 1")
        if _parsed("stale_after", self.stale_after, parse_duration) < 0:
            raise OptionError(f"stale_after={self.stale_after!r} is below 0")

        self._check_csv()

    def _check_csv(self) -> None:
        changed = [name for name, usual in _CSV.items() if getattr(self, name) != usual]
        if changed and self.format != "csv":
            raise OptionError(
                f"{changed[0]} is an option of CSV files, not of format={self.format!r}",
                remedy=f'format="csv" · leave {changed[0]} out',
            )
        if not isinstance(self.header, bool):
            raise OptionError(f"header={self.header!r} is neither True nor False")
        if self.delimiter not in _DELIMITERS:
            raise OptionError(
                f"delimiter={self.delimiter!r} does not separate values: it may be a part of them",
                have=f"delimiter takes one of {_DELIMITERS!r}",
                remedy='delimiter=";"',
            )

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
    def stale_seconds(self) -> float:
        """``stale_after`` in seconds."""
        return parse_duration(self.stale_after)

    @property
    def encoding(self) -> Encoding:
        """The bytes of the files; their compression is by default the format's."""
        codec = compression_of(self.format, self.compression)
        return Encoding(self.format, codec, self.header, self.delimiter)


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        near = close_matches(str(value), choices) or choices
        raise OptionError(
            f"{name}={value!r} is none of {', '.join(choices)}",
            remedy=" · ".join(f'{name}="{choice}"' for choice in near),
        )


def _parsed(name: str, value: Any, parse: Any) -> float:
    try:
        return float(parse(value))
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name}={value!r}: {error}") from error
