"""The committer of a file sink: one job, from the check of its path to its last rename."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate.errors import SinkError
from headgate.sink import journal as journals
from headgate.sink.api import Committable, Committer, WriteResult
from headgate.sink.commit import abort_after, plan, refuse_existing, refuse_file, result_of
from headgate.sink.failure import failing, say_decided
from headgate.sink.layout import JOB, STAGING
from headgate.sink.owner import Owner
from headgate.sink.recovery import JobFacts, discard, finish, recover

if TYPE_CHECKING:
    from headgate.sink.file_options import FileSinkOptions
    from headgate.sink.storage import Storage


class FileCommitter(Committer):
    """Commits one job.

    The steps of :meth:`commit`, and what a crash after each leaves:

    1. Every staged file is there with its size: nothing visible; the staged files are removed by
       the next job that sees that this one is dead.
    2. The journal is written: the commit is decided. The next use of the path completes it.
    3. ``_SUCCESS`` is removed and the files are renamed to their places: some are visible, and the
       journal says so; the next use completes it.
    4. An overwrite removes the files that were visible at step 2: new and some old ones are
       visible; the next use completes it.
    5. ``_SUCCESS`` is written: everything is visible, and the staging folder is left; the next use
       removes it.

    Readers that list the folder between steps 3 and 5 may see a part of the job; those that wait
    for ``_SUCCESS`` do not. Appending jobs may commit at the same time. An overwrite, and a job
    with ``mode="error"``, expect to be alone: what another job commits in the same moment stays.

    Args:
        sink: where and how.
        storage: its folder.
        job: the job's name; a new one when it is None.
        owner: the process that runs the job; this one when it is None.
    """

    def __init__(
        self,
        sink: FileSinkOptions,
        storage: Storage,
        job: str | None = None,
        owner: Owner | None = None,
    ) -> None:
        self._sink = sink
        self._storage = storage
        self._job = job or secrets.token_hex(8)
        self._owner = owner

    @property
    def job(self) -> str:
        """The job's name."""
        return self._job

    def start(self) -> None:
        """Recover what others left, check the path, make the job's folder.

        Raises:
            SinkError: there is data and the mode is ``"error"``, or the path cannot be written.
        """
        storage = self._storage
        refuse_file(storage)
        recover(storage, self._sink.stale_seconds)
        if self._sink.mode == "error":
            refuse_existing(storage)
        facts = JobFacts(self._owner or Owner.of(os.getpid()), tuple(_missing(storage)))
        path = storage.at(STAGING, self._job, JOB)
        try:
            with failing("write", path):
                storage.write_first(path, facts.to_json())
        except BaseException as error:
            abort_after(error, lambda: discard(storage, self._job, facts.made))
            raise

    def commit(self, committables: Iterable[Committable]) -> WriteResult:
        """Make the files of the committables visible; see the class.

        Where the commit was decided before and failed then, this completes it.

        Raises:
            SinkError: nothing is visible, unless the error says that the commit is decided.
        """
        storage, mode = self._storage, self._sink.mode
        journal = journals.read(storage, self._job)
        if journal is None:
            if mode == "overwrite":
                # So that no file is removed that another journal still expects.
                recover(storage, self._sink.stale_seconds, skip=self._job, everybody=True)
            if mode == "error":
                refuse_existing(storage)
            journal = plan(storage, self._job, committables, overwrite=mode == "overwrite")
            if not journals.write(storage, journal):
                raise say_decided(SinkError(f"job {self._job} is committed by another process"))
        journals.roll_forward(storage, journal)
        finish(storage, journal)
        return result_of(journal)

    def abort(self) -> None:
        """Remove everything that the job staged, and the folders that it made.

        A decided commit is left to :func:`recover`.

        Raises:
            SinkError: it could not be removed.
        """
        if journals.read(self._storage, self._job) is None:
            with failing("look at", self._storage.at(STAGING, self._job)):
                facts = JobFacts.read(self._storage, self._job)
            discard(self._storage, self._job, facts.made)


def _missing(storage: Storage) -> list[str]:
    """Return the folders that must be made for the path, the innermost first."""
    if not storage.is_local:
        return []
    missing, folder = [], storage.root
    with failing("look at", storage.root):
        while folder and not storage.is_folder(folder):
            missing.append(folder)
            folder = folder.rpartition("/")[0]
    return missing
