"""Rows of data files that are deleted by positions, in Parquet files or in deletion vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.errors import NotBuiltError
from headgate.source.tables.rows import encoded, kept_without

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow.fs as pafs


class PositionDeletes:
    """Reads each file of deletes once, for all data files that it is for.

    Args:
        filesystem: has the files.
        path_of: returns the path of a location in it.
    """

    def __init__(self, filesystem: pafs.FileSystem, path_of: Callable[[str], str]) -> None:
        self._filesystem, self._path_of = filesystem, path_of
        self._positions: dict[str, dict[str, pa.Array]] = {}

    def left_out(self, location: str, rows: int, deletes: Iterable[Any]) -> str:
        """Return the rows of a data file that are deleted, encoded.

        Args:
            location: of the data file.
            rows: their number.
            deletes: the files of deletes for it.

        Raises:
            NotBuiltError: one is of another format.
        """
        positions = [self._of(each).get(location) for each in deletes]
        deleted = [each for each in positions if each is not None]
        if not deleted:
            return ""
        return encoded(kept_without(pa.concat_arrays(deleted).to_pylist(), rows))

    def _of(self, file: Any) -> dict[str, pa.Array]:
        if file.file_path not in self._positions:
            self._positions[file.file_path] = self._read(file)
        return self._positions[file.file_path]

    def _read(self, file: Any) -> dict[str, pa.Array]:
        kind, path = file.file_format.name, self._path_of(file.file_path)
        with self._filesystem.open_input_file(path) as opened:
            if kind == "PARQUET":
                table = pq.read_table(opened, columns=["file_path", "pos"])
                groups = table.group_by("file_path").aggregate([("pos", "list")])
                return {
                    location.as_py(): positions.values.cast(pa.int64())
                    for location, positions in zip(
                        groups["file_path"], groups["pos_list"], strict=True
                    )
                }
            if kind == "PUFFIN":
                return _vectors(bytes(opened.read()))
        raise NotBuiltError(
            f"{file.file_path} has deletes in a file of the format {kind}",
            have="Parquet and deletion vectors are read",
            remedy='spark.read.format("iceberg") · rewrite_position_delete_files',
        )


def _vectors(data: bytes) -> dict[str, pa.Array]:
    from pyiceberg.table.deletion_vector import (  # noqa: PLC0415 - optional
        deletion_vectors_from_puffin_file,
    )
    from pyiceberg.table.puffin import PuffinFile  # noqa: PLC0415

    vectors = deletion_vectors_from_puffin_file(PuffinFile(data))
    return {
        each.referenced_data_file: pc.cast(each.to_vector(), pa.int64()).combine_chunks()
        for each in vectors
    }
