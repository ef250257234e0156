"""The committer of a streaming query: every batch once, however often it is run or committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.sink import journal as journals
from headgate.sink.api import Committable, WriteResult, check_name
from headgate.sink.commit import plan, refuse_file, result_of
from headgate.sink.failure import failing
from headgate.sink.layout import COMMITS, STAGING
from headgate.sink.recovery import recover

if TYPE_CHECKING:
    from headgate.sink.file_options import FileSinkOptions
    from headgate.sink.storage import Storage

#: Markers that are kept; a batch with a lower number than the newest is committed as well.
_KEPT: Final = 10


class StreamCommitter:
    """Commits the batches of one streaming query, in the order of their numbers.

    After a crash the engine runs the last batch again under the same number. Whether it was
    committed is told by a marker of that number, and the journal makes files and marker one: a
    crash before the journal leaves nothing visible, and the batch is written again; a crash after
    it leaves a decided commit, which is completed first, and then what the batch wrote again is
    thrown away. A query with a new id (a new checkpoint) starts anew.

    There is no ``_SUCCESS``: a stream does not end.

    Args:
        sink: where and how; ``mode="overwrite"`` replaces everything with each batch.
        storage: its folder.
        query: the id of the query, the same after a restart.
    """

    def __init__(self, sink: FileSinkOptions, storage: Storage, query: str) -> None:
        self._sink = sink
        self._storage = storage
        try:
            self._query = check_name(query)
        except ValueError as error:
            raise OptionError(f"query={query!r} is no id of a streaming query") from error

    def job(self, batch: int) -> str:
        """Return the job's name of a batch, for the writers' contexts."""
        return batch_job(self._query, batch)

    def latest(self) -> int | None:
        """Return the number of the last batch that is committed; None before the first one."""
        folder = self._storage.at(COMMITS, self._query)
        with failing("look at", folder):
            return max(self._markers(), default=None)

    def commit(self, batch: int, committables: Iterable[Committable]) -> WriteResult | None:
        """Make a batch visible, or do nothing when it is already.

        Returns:
            What became visible; None when the batch was committed before.

        Raises:
            SinkError: nothing of the batch is visible, unless the error says that the commit is
                decided.
        """
        storage, job = self._storage, self.job(batch)
        refuse_file(storage)
        recover(storage, self._sink.stale_seconds, skip=job, everybody=True)
        latest = self.latest()
        result = None
        if latest is None or batch > latest:
            marker = f"{COMMITS}/{self._query}/{batch}"
            overwrite = self._sink.mode == "overwrite"
            journal = plan(storage, job, committables, overwrite=overwrite, marker=marker)
            if not journals.write(storage, journal):
                # An older driver that still lives has decided this batch.
                recover(storage, self._sink.stale_seconds, skip=job, everybody=True)
            elif journals.roll_forward(storage, journal):
                result = result_of(journal)
        self._clean(batch)
        return result

    def abort(self, batch: int) -> None:
        """Remove what a batch staged, unless its commit is decided.

        Raises:
            SinkError: it could not be removed.
        """
        job = self.job(batch)
        if journals.read(self._storage, job) is None:
            journals.clean(self._storage, job)

    def _markers(self) -> list[int]:
        infos = self._storage.list(self._storage.at(COMMITS, self._query))
        names = (info.path.rpartition("/")[2] for info in infos)
        return [int(name) for name in names if name.isdecimal()]

    def _clean(self, batch: int) -> None:
        """Remove what this and earlier batches staged, and the oldest markers."""
        storage = self._storage
        with failing("clean up", storage.at(STAGING)):
            for info in storage.list(storage.at(STAGING)):
                query, _, number = info.path.rpartition("/")[2].rpartition("-")
                if query == self._query and number.isdecimal() and int(number) <= batch:
                    journals.clean(storage, batch_job(query, int(number)))
            for old in sorted(self._markers())[:-_KEPT]:
                storage.delete_file(storage.at(COMMITS, self._query, str(old)))


def batch_job(query: str, batch: int) -> str:
    """Return the job's name of a streaming query's batch."""
    return f"{query}-{batch}"
