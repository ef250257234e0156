"""Paths, URIs and file systems of sources and sinks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from headgate._arguments import path as checked_path
from headgate._error import masked
from headgate.errors import OptionError

if TYPE_CHECKING:
    import pyarrow.fs as pafs


class MaskedPath(str):
    """A path or a URI, whose repr has no secrets."""

    __slots__ = ()

    @classmethod
    def of(cls, value: object, filesystem: pafs.FileSystem | None) -> Self:
        """Return the path of a sink, from the root, so that all processes mean the same folder.

        Args:
            value: a path or a URI.
            filesystem: has the path; None for the path's own.

        Raises:
            OptionError: the value is no path, or a URI beside a file system.
        """
        path = checked_path("path", value)
        if filesystem is not None:
            refuse_uri(path, filesystem)
        elif not is_uri(path):
            path = os.path.abspath(path)  # noqa: PTH100 - as given
        return cls(path)

    def __repr__(self) -> str:
        """Return the repr without secrets."""
        return str.__repr__(masked(self))


def is_uri(path: str) -> bool:
    """Return True for a URI, such as ``s3://bucket/folder``."""
    return "://" in path or path.startswith("file:/")


def from_uri(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a URI, and the path in it. Hadoop's names of S3 are known too.

    Raises:
        OptionError: pyarrow does not have the file system, or takes no such option.
    """
    import pyarrow.fs as pafs  # noqa: PLC0415 - slow to import

    scheme, _, rest = uri.partition(":")
    try:
        located: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(
            f"{'s3' if scheme in {'s3a', 's3n'} else scheme}:{rest}"
        )
    except (ValueError, OSError) as error:
        cause = str(error)
    else:
        return located
    # Not as the cause: its text may have the URI with its secrets.
    raise OptionError(
        f"{uri!r} is on no file system that pyarrow knows: {cause}",
        asked=uri,
        remedy='"s3://bucket/folder" · filesystem=a pyarrow.fs.FileSystem',
    )


def refuse_uri(path: str, filesystem: Any) -> None:
    """Refuse a URI as a path of a file system.

    Raises:
        OptionError: the path is a URI.
    """
    if is_uri(path):
        below = path.partition("://")[2].rpartition("@")[2] or path
        raise OptionError(
            f"{path!r} is a URI, and filesystem= has paths without a scheme",
            asked=f"{path!r}, filesystem={type(filesystem).__name__}",
            remedy=f"{below!r} as the path · leave filesystem out",
        )
