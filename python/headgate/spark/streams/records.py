"""Records of a job below its checkpoints about its DataFrames, for the next start of the same job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate._sealed import seal, unseal
from headgate.errors import CheckpointError
from headgate.stream.job.store import CheckpointStore
from headgate.stream.state.locations import storage_of

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Folder of DataFrames, beside those of the checkpoints.
FOLDER: Final = "frames"


class Record:
    """A file that is written in one step, and read at each start.

    Args:
        checkpoint: folder or URI of the job's checkpoints.
        name: of the record.

    Raises:
        CheckpointError: the folder cannot be used.
    """

    def __init__(self, checkpoint: str, name: str) -> None:
        self._checkpoint = checkpoint
        self._store = CheckpointStore(checkpoint)
        self._storage, root = storage_of(checkpoint)
        self._path = f"{root}/{FOLDER}/{name}.json"

    def read(self) -> dict[str, Any] | None:
        """Return what was written; None if nothing was.

        Raises:
            CheckpointError: the file cannot be read, or is damaged.
        """
        try:
            data = self._storage.read(self._path)
            return None if data is None else unseal(data)
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{self._path} cannot be read: {getattr(error, 'summary', error)}",
                remedy="another folder for checkpoint=",
            ) from error

    def write(self, fields: Mapping[str, Any]) -> None:
        """Write the record, in place of the one before.

        Raises:
            CheckpointError: the file cannot be written.
        """
        try:
            self._storage.write_first(self._path, seal(fields).encode())
        except OSError as error:
            raise CheckpointError(
                f"{self._path} cannot be written: {getattr(error, 'summary', error)}"
            ) from error

    def is_needed(self) -> bool:
        """Return True if the job has a checkpoint, which depends on what was written."""
        return self._store.newest() is not None
