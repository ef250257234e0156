"""Small outputs that are kept without a file, and files of indexes, by which consumers find the others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headgate import _native
from headgate.partition import KeptSubpartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headgate.selectors import HashSelector


def keep_small(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    selector: HashSelector,
    num_subpartitions: int,
    *,
    all_bytes: int,
    page_bytes: int,
    max_page_bytes: int,
) -> tuple[list[KeptSubpartition], list[int]] | None:
    """Keep a producer's whole output in one page per subpartition, each as large as its rows.

    Args:
        batch: the output.
        schema: of the output.
        selector: places the rows.
        num_subpartitions: number of consumers.
        all_bytes: bytes of the pages of a small output.
        page_bytes: an output is small, too, if none of its pages has more bytes.
        max_page_bytes: bytes; with a larger page the output is not small, as it may have a record that
            must be refused, or not fit the receiver's segments.

    Returns:
        The subpartitions that have rows and the rows of each; None if the output is not small.

    Raises:
        UnknownColumnError: a key column that the schema does not have.
        UnsupportedTypeError: a column that cannot be hashed, or cannot travel in pages.
    """
    subpartitions = _native.keep_small(
        schema,
        selector.paths,
        batch,
        num_subpartitions,
        all_bytes=all_bytes,
        page_bytes=page_bytes,
        max_page_bytes=max_page_bytes,
    )
    if subpartitions is None:
        return None
    return (
        [KeptSubpartition(number, size, None, index) for number, _, size, index in subpartitions],
        [rows for _, rows, _, _ in subpartitions],
    )


def write_indexes(pages: str | os.PathLike[str], subpartitions: Sequence[KeptSubpartition]) -> str:
    """Write the indexes of a producer beside its pages. Others see the file once it is complete.

    Args:
        pages: the file that was given to :meth:`ResultPartition.keep`.
        subpartitions: what it returned.

    Returns:
        The path of the indexes: that of the pages with ``.index`` behind it.

    Raises:
        SpillError: the file system refuses the file.
    """
    path = os.fspath(pages)
    has_pages = any(part.file is not None for part in subpartitions)
    indexes = [(part.subpartition, part.index) for part in subpartitions]
    _native.write_kept_indexes(path, has_pages, indexes)
    return path + ".index"


def read_index(indexes: str | os.PathLike[str], subpartition: int) -> KeptSubpartition | None:
    """Return one subpartition of the producer that left these indexes; None if it has no rows.

    Raises:
        PartitionNotFoundError: the file is gone.
        IntegrityError: the file is damaged.
    """
    entry = _native.read_kept_index(os.fspath(indexes), subpartition)
    if entry is None:
        return None
    index, pages = entry
    return KeptSubpartition(subpartition, 0, None if pages is None else os.fspath(pages), index)
