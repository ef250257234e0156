"""Memory of keyed state: of the process up to a limit, of mapped files beyond it. Decision: ADR 0057."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headgate import _native
from headgate._arguments import refuse, size
from headgate._directories import local_directories
from headgate._values import parse_directories
from headgate.errors import SpillError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

#: Bytes from which on a block counts, in Rust as here.
_LARGE: Final = 1 << 14


class Usage(NamedTuple):
    """Bytes of the large blocks of keyed state.

    Attributes:
        in_memory: of the process's memory.
        in_files: of mapped files. The kernel keeps those of their pages in memory that are in use.
    """

    in_memory: int
    in_files: int


class StateMemory:
    """Gives blocks of memory to keyed state, one for all tasks of a process. Any thread may ask.

    Blocks that would exceed the limit are files without names, which are gone with the process however it ends. The kernel
    writes their pages to the disk and reads them again as it does with all files, so that what is in use stays in memory.

    Args:
        limit: bytes that stay in memory, such as ``"1g"``; blocks below 16 KiB do not count. None for no limit and no files.
        directories: for the files, used in turn. By default Spark's local directories in a process of Spark, and the
            system's temporary directory elsewhere.

    Raises:
        OptionError: the limit is no size, or the directories are no texts.
    """

    def __init__(
        self, limit: str | int | None = None, directories: str | Sequence[str] = ()
    ) -> None:
        limit = None if limit is None else size("limit", limit, 0)
        chosen = _paths(directories) if directories else local_directories()
        directories = list(chosen or [tempfile.gettempdir()])
        self._directories = cycle(directories)
        #: The native structures of state take their memory of it; None without a limit.
        self.native = None if limit is None else _native.StateMemory(limit, directories)

    def zeros(self, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array of zeros.

        Raises:
            SpillError: there is no room for a file.
        """
        dtype = np.dtype(dtype)
        needed = length * dtype.itemsize
        if self.native is None or needed < _LARGE:
            return np.zeros(length, dtype)
        in_memory = self.native.reserve(needed)
        try:
            block: Any = np.zeros(length, dtype) if in_memory else self._file(needed)
        except BaseException:
            self.native.release(needed, in_memory)
            raise
        weakref.finalize(block, self.native.release, needed, in_memory).atexit = False
        return block if in_memory else np.frombuffer(block, dtype)

    def _file(self, length: int) -> mmap.mmap:
        """Return a mapped file without a name. Its room is taken, so that no write can fail for a full disk."""
        directory = next(self._directories)
        try:
            with tempfile.TemporaryFile(dir=directory) as file:
                os.posix_fallocate(file.fileno(), 0, length)
                return mmap.mmap(file.fileno(), length)
        except OSError as error:
            raise SpillError(
                f"there is no room for {length:,} bytes of state in {directory}: {error}",
                remedy="temp_directories on a disk with room · a larger state_memory",
            ) from error

    def wider(self, values: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
        """Return a copy with zeros at its end.

        Raises:
            SpillError: there is no room for a file.
        """
        copy = self.zeros(length, values.dtype)
        copy[: len(values)] = values
        return copy

    @property
    def usage(self) -> Usage:
        """The bytes in use; none are counted without a limit."""
        return Usage(0, 0) if self.native is None else Usage(*self.native.usage)


def _paths(directories: str | Sequence[str]) -> tuple[str, ...]:
    try:
        return parse_directories(directories)
    except (TypeError, ValueError) as error:
        takes = "a path, several with commas between them, or a list of paths"
        raise refuse("directories", directories, f"is {error}", takes) from None


#: Without a limit, and without files.
ALL_IN_MEMORY = StateMemory()
