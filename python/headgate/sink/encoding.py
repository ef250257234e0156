"""The formats of a sink's files and their compressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import pyarrow as pa

from headgate.errors import OptionError

Format = Literal["parquet", "arrow", "csv", "json"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)

#: The compressions of each format, the default first.
COMPRESSIONS: Final[dict[str, tuple[str, ...]]] = {
    "parquet": ("snappy", "zstd", "gzip", "brotli", "lz4", "none"),
    "arrow": ("none", "lz4", "zstd"),
    "csv": ("none", "gzip"),
    "json": ("none", "gzip"),
}


@dataclass(frozen=True, slots=True)
class Encoding:
    """The bytes of a file.

    Attributes:
        format: one of :data:`FORMATS`.
        compression: one of the format's in :data:`COMPRESSIONS`.
        header: True if the first line of a CSV file has the names of the columns.
        delimiter: the character between the values of a CSV file.
    """

    format: str = "parquet"
    compression: str = "snappy"
    header: bool = True
    delimiter: str = ","


def compression_of(file_format: str, compression: Any) -> str:
    """Return the compression to use.

    Raises:
        OptionError: the format or this build of pyarrow does not support it.
    """
    compressions = COMPRESSIONS[file_format]
    if compression is None:
        return compressions[0]
    if (
        not isinstance(compression, str)
        or compression not in compressions
        or (compression != "none" and not pa.Codec.is_available(_codec(compression)))
    ):
        raise OptionError(
            f"compression={compression!r} is not supported by {file_format} files",
            remedy=" · ".join(f"compression={name!r}" for name in compressions),
        )
    return compression


def _codec(compression: str) -> str:
    return "lz4_raw" if compression == "lz4" else compression
