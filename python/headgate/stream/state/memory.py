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
    from collections.abc import Iterable, Sequence

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
            # Marks of a byte are read from one end to the other, all else where the keys of a batch are: the kernel is to
            # read those pages alone, as the pages beside them would drive out what is in use.
            if not in_memory and dtype.itemsize > 1:
                block.madvise(mmap.MADV_RANDOM)
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
        file = _file_of(values)
        if file is not None:
            file.madvise(mmap.MADV_SEQUENTIAL)
        copy[: len(values)] = values
        return copy

    @property
    def usage(self) -> Usage:
        """The bytes in use."""
        return Usage(*self.native.usage)


def want(memory: StateMemory, values: npt.NDArray[Any], places: npt.NDArray[np.int64]) -> None:
    """Have the kernel begin to read the values at some places, if the array is a file of the memory.

    A disk reads many pages at once in less time than one after another, as they are missed.
    """
    if _file_of(values) is not None:
        memory.native.want(values.ctypes.data, values.itemsize, places)


def want_runs(values: npt.NDArray[Any], starts: Iterable[int], length: int) -> None:
    """Have the kernel begin to read so many values from each start on, if the array is a file of a :class:`StateMemory`."""
    file = _file_of(values)
    if file is not None:
        for start in starts:
            first = start * values.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
            end = min(start + length, len(values)) * values.itemsize
            file.madvise(mmap.MADV_WILLNEED, first, end - first)


def _file_of(values: npt.NDArray[Any]) -> mmap.mmap | None:
    """Return the mapped file that an array is; None if it is in memory."""
    block = getattr(values.base, "obj", None)
    return block if isinstance(block, mmap.mmap) else None


def _paths(directories: str | Sequence[str]) -> tuple[str, ...]:
    try:
        return parse_directories(directories)
    except (TypeError, ValueError) as error:
        takes = "a path, several with commas between them, or a list of paths"
        raise refuse("directories", directories, f"is {error}", takes) from None


#: Without a limit, and without files.
ALL_IN_MEMORY: Any = StateMemory() if has_native() else absent("StateMemory")
