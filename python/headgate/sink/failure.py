"""Turns what file systems raise into one clear error."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from headgate.errors import HeadgateError, SinkError

#: What file systems of pyarrow raise.
FAULTS: Final = (OSError, pa.ArrowException)

#: What a failure after the decision leaves.
DECIDED: Final = "the commit is decided: the next use of this path completes it"

_REMEDIES: Final[dict[int | None, str]] = {
    errno.ENOSPC: "free space on that file system · another path",
    errno.EDQUOT: "a larger quota · another path",
    errno.EACCES: "give this user the right to write there · another path",
    errno.EPERM: "give this user the right to write there · another path",
    errno.EROFS: "a path on a file system that can be written to",
    errno.ENOTDIR: "a path whose parents are folders",
    errno.EFBIG: "a smaller target_file_size · a larger limit of file sizes",
}


@contextmanager
def failing(doing: str, path: str, *, decided: bool = False) -> Iterator[None]:
    """Raise a SinkError that names path and cause for whatever the file system raises.

    Args:
        doing: what is tried, as "cannot ..." goes on.
        path: where.
        decided: the commit is decided, and so the job must not run again.
    """
    try:
        yield
    except HeadgateError:
        raise
    except FAULTS as error:
        code = getattr(error, "errno", None)
        said = str(error).partition("\n")[0]
        told = SinkError(
            f"cannot {doing} {path}: {said}",
            remedy=_REMEDIES.get(code, ""),
            details={"path": path, "errno": code},
        )
        raise (say_decided(told) if decided else told) from error


def say_decided(error: SinkError) -> SinkError:
    """Let an error say that its commit is decided, and what to do then; return it."""
    error.have = DECIDED
    first = _REMEDIES.get(error.details.get("errno"), "").partition(" · ")[0]
    error.remedy = " · then ".join(part for part in (first, "FileSink(path).recover()") if part)
    return error
