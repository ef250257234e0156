"""The committer of a streaming query, which commits every batch exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headgate.sink import journal as journals
from headgate.sink.api import Committable, WriteResult, chosen_name
from headgate.sink.commit import plan, refuse_file, result_of
from headgate.sink.failure import failing
from headgate.sink.layout import COMMITS, batch_job, marker_path
from headgate.sink.recovery import recover
from headgate.sink.staging import clean_until

if TYPE_CHECKING:
    from headgate.sink.file_options import FileSinkOptions
    from headgate.sink.storage import Storage

#: Number of markers to keep. A batch with a lower number than the newest marker is committed too.
_KEPT: Final = 10


class QueryCommitter:
    """Commits the batches of one streaming query, in the order of their numbers.

    After a crash the engine runs the last batch again under the same number. A marker file with
    that number exists if the batch was committed. The journal lists both the files and the marker.
    After a crash before the journal is written, no file is visible and the batch is written again.
    After a later crash, the next commit first completes the decided one, and then drops the files
    of the second run. A query with a new id (a new checkpoint) starts with no committed batch.

    There is no ``_SUCCESS``, because a stream does not end.

    Args:
        sink: the options of the sink; ``mode="overwrite"`` replaces all data with each batch.
        storage: the sink's folder.
        query: the id of the query, the same after a restart.
    """

    def __init__(self, sink: FileSinkOptions, storage: Storage, query: str) -> None:
        self._sink = sink
        self._storage = storage
        self._query = chosen_name("query", query)

    def job(self, batch: int) -> str:
        """Return the name of a batch's job, for the writers' contexts."""
        return batch_job(self._query, batch)

    def latest(self) -> int | None:
        """Return the number of the last committed batch; None before the first one."""
        folder = self._storage.at(COMMITS, self._query)
        with failing("look at", folder):
            return max(self._markers(), default=None)

    def commit(self, batch: int, committables: Iterable[Committable]) -> WriteResult | None:
        """Commit a batch, unless it is committed already.

        Returns:
            The result of the commit; None if the batch was committed before.

        Raises:
            SinkError: the commit failed. No file of the batch is visible, unless the error says
                that the commit is decided.
        """
        storage, job = self._storage, self.job(batch)
        refuse_file(storage)
        recover(storage, self._sink.stale_seconds, skip=job, include_running=True)
        latest = self.latest()
        result = None
        if latest is None or batch > latest:
            marker = marker_path(self._query, batch)
            overwrite = self._sink.mode == "overwrite"
            journal = plan(storage, job, committables, overwrite=overwrite, marker=marker)
            if not journals.write(storage, journal):
                # An older driver, which still runs, has decided this batch.
                recover(storage, self._sink.stale_seconds, skip=job, include_running=True)
            elif journals.roll_forward(storage, journal):
                result = result_of(journal)
        self._clean(batch)
        return result

    def abort(self, batch: int) -> None:
        """Remove the staged files of a batch, unless its commit is decided.

        Raises:
            SinkError: a file could not be removed.
        """
        job = self.job(batch)
        if journals.read(self._storage, job) is None:
            journals.clean(self._storage, job)

    def _markers(self) -> list[int]:
        infos = self._storage.list(self._storage.at(COMMITS, self._query))
        found = ((info.path, info.path.rpartition("/")[2]) for info in infos)
        # A look at each, because a marker that another user made would hide batches.
        return [int(n) for path, n in found if n.isdecimal() and self._storage.is_file(path)]

    def _clean(self, batch: int) -> None:
        """Remove the staged files of this and earlier batches, and the oldest markers."""
        storage = self._storage
        clean_until(storage, self._query, batch)
        with failing("clean up", storage.at(COMMITS)):
            for old in sorted(self._markers())[:-_KEPT]:
                storage.delete_file(storage.at(COMMITS, self._query, str(old)))
