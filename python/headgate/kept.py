"""Files of the indexes of kept partitions, by which consumers find what a producer kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headgate import _native
from headgate.partition import KeptSubpartition

if TYPE_CHECKING:
    from collections.abc import Sequence


def write_indexes(pages: str | os.PathLike[str], kept: Sequence[KeptSubpartition]) -> str:
    """Write the indexes of a producer beside its pages. Others see the file once it is complete.

    Args:
        pages: the file that was given to :meth:`ResultPartition.keep`.
        kept: what it returned.

    Returns:
        The path of the indexes: that of the pages with ``.index`` behind it.

    Raises:
        SpillError: the file system refuses the file.
    """
    path = os.fspath(pages)
    has_pages = any(one.file is not None for one in kept)
    _native.write_kept_indexes(path, has_pages, [(one.subpartition, one.index) for one in kept])
    return path + ".index"


def read_index(indexes: str | os.PathLike[str], subpartition: int) -> KeptSubpartition | None:
    """Return one subpartition of the producer that left these indexes; None if it has no rows.

    Raises:
        PartitionNotFoundError: the file is gone.
        IntegrityError: the file is damaged.
    """
    found = _native.read_kept_index(os.fspath(indexes), subpartition)
    if found is None:
        return None
    index, pages = found
    return KeptSubpartition(subpartition, 0, None if pages is None else os.fspath(pages), index)
