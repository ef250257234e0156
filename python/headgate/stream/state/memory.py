"""Memory of keyed state: of the process up to a limit, of mapped files beyond it. Decision: ADR 0057."""

from __future__ import annotations

import copy
import mmap
import os
import tempfile
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from headgate import _native
from headgate._arguments import refuse, size
from headgate._directories import local_directories
from headgate._missing import absent, has_native
from headgate._values import parse_directories

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


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
        #: The native structures of state take their memory of it.
        self.native = _native.StateMemory(limit, list(chosen or [tempfile.gettempdir()]))

    def share(self) -> Self:
        """Return a memory under the same limit whose :attr:`usage` has its own blocks alone."""
        share = copy.copy(self)
        share.native = self.native.share()
        return share

    def zeros(self, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array of zeros.

        Raises:
            SpillError: there is no room for a file.
        """
        dtype = np.dtype(dtype)
        needed = length * dtype.itemsize
        in_memory = self.native.reserve(needed)
        try:
            block: Any = np.zeros(length, dtype) if in_memory else self._file(needed)
        except BaseException:
            self.native.release(needed, in_memory)
            raise
        weakref.finalize(block, self.native.release, needed, in_memory).atexit = False
        return block if in_memory else np.frombuffer(block, dtype)

    def _file(self, length: int) -> mmap.mmap:
        """Return a mapped file."""
        descriptor = self.native.file(length)
        try:
            return mmap.mmap(descriptor, length)
        finally:
            os.close(descriptor)

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
        """The bytes in use."""
        return Usage(*self.native.usage)


def _paths(directories: str | Sequence[str]) -> tuple[str, ...]:
    try:
        return parse_directories(directories)
    except (TypeError, ValueError) as error:
        takes = "a path, several with commas between them, or a list of paths"
        raise refuse("directories", directories, f"is {error}", takes) from None


#: Without a limit, and without files.
ALL_IN_MEMORY: Any = StateMemory() if has_native() else absent("StateMemory")
