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

_REMEDIES: Final = {
    errno.ENOSPC: "free space on that file system · another path",
    errno.EDQUOT: "a larger quota · another path",
    errno.EACCES: "give this user the right to write there · another path",
    errno.EPERM: "give this user the right to write there · another path",
    errno.EROFS: "a path on a file system that can be written to",
    errno.ENOTDIR: "a path whose parents are folders",
    errno.EFBIG: "a smaller target_file_size · a larger limit of file sizes",
}


@contextmanager
def failing(doing: str, path: str, after: str = "") -> Iterator[None]:
    """Raise a SinkError that names path and cause for whatever the file system raises.

    Args:
        doing: what is tried, as "cannot ..." goes on.
        path: where.
        after: what the failure leaves behind, when that is not "nothing".
    """
    try:
        yield
    except HeadgateError:
        raise
    except FAULTS as error:
        code = getattr(error, "errno", None)
        said = str(error).partition("\n")[0]
        raise SinkError(
            f"cannot {doing} {path}: {said}",
            have=after,
            remedy="" if code is None else _REMEDIES.get(code, ""),
            details={"path": path, "errno": code},
        ) from error
