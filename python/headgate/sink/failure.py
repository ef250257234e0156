"""Conversion of exceptions of file systems into a SinkError."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from headgate.errors import HeadgateError, SinkError

#: The exceptions of pyarrow's file systems.
FAULTS: Final = (OSError, pa.ArrowException)


class UnsafeError(OSError):
    """A file below a sink's path that the sink must not use: another user could have put it there.

    Args:
        said: the path and the reason.
        remedy: the ways out, as in an error of Headgate.
    """

    def __init__(
        self, text: str, remedy: str = "remove it, once you know who made it · another path"
    ) -> None:
        super().__init__(text)
        self.remedy = remedy


#: The state after a failure of a decided commit, for errors.
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
    """Convert an exception of the file system into a SinkError that names path and cause.

    Args:
        doing: the action, for the text "cannot <action> <path>".
        path: the path of the action.
        decided: True if the commit is decided, so that the job must not run again.
    """
    try:
        yield
    except HeadgateError:
        raise
    except FAULTS as error:
        code = getattr(error, "errno", None)
        cause = str(error).partition("\n")[0]
        failure = SinkError(
            f"cannot {doing} {path}: {cause}",
            remedy=getattr(error, "remedy", "") or _REMEDIES.get(code, ""),
            details={"path": path, "errno": code},
        )
        raise (mark_decided(failure) if decided else failure) from error


@contextmanager
def aborting(abort: Callable[[], None]) -> Iterator[None]:
    """Abort a job because of an error; note a failure of the abort in that error."""
    try:
        yield
    except BaseException as error:
        try:
            abort()
        except SinkError as more:
            error.add_note(f"the job's staged files are left: {more}")
        raise


def mark_decided(error: SinkError) -> SinkError:
    """Add to an error that its commit is decided, with the remedy, and return the error."""
    error.have = DECIDED
    remedy = "" if error.remedy == error.default_remedy else error.remedy
    first = remedy.partition(" · ")[0]
    error.remedy = " · then ".join(part for part in (first, "FileSink(path).recover()") if part)
    return error
