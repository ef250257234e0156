"""The committer of a file sink, for one job."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate.errors import SinkError
from headgate.sink import journal as journals
from headgate.sink.api import Committable, Committer, WriteResult, chosen_name
from headgate.sink.commit import abort_after, plan, refuse_existing, refuse_file, result_of
from headgate.sink.failure import failing, mark_decided
from headgate.sink.layout import JOB, STAGING
from headgate.sink.owner import Owner
from headgate.sink.recovery import JobFacts, discard, finish, recover

if TYPE_CHECKING:
    from headgate.sink.file_options import FileSinkOptions
    from headgate.sink.storage import Storage


class FileCommitter(Committer):
    """Commits one job.

    The steps of :meth:`commit`, and the state after a crash that follows each step:

    1. Check that every staged file exists with its size. No file is visible. The next job that
       finds this one dead removes its staged files.
    2. Write the journal, which decides the commit. The next use of the path completes it.
    3. Remove ``_SUCCESS`` and rename the files to their places. Some files are visible. The next
       use of the path completes the commit from the journal.
    4. For an overwrite, remove the files that were visible at step 2. The new files and some old
       ones are visible. The next use of the path completes the commit.
    5. Write ``_SUCCESS``. All files are visible. The next use of the path removes the staging
       folder.

    Readers that list the folder between steps 3 and 5 may see a part of the job, unless they wait
    for ``_SUCCESS``. Appending jobs may commit at the same time. A job with ``mode="overwrite"`` or
    ``mode="error"`` expects to be alone: files that another job commits at the same time stay.

    Args:
        sink: the options of the sink.
        storage: the sink's folder.
        job: the job's name; a new one if it is None.
        owner: the process that runs the job; this process if it is None.
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
        self._job = chosen_name("job", job or secrets.token_hex(8))
        self._owner = owner

    @property
    def job(self) -> str:
        """The job's name."""
        return self._job

    def start(self) -> None:
        """Recover earlier jobs, check the path, and make the job's folder.

        Raises:
            SinkError: there is data and the mode is ``"error"``, or the path is not writable.
        """
        storage = self._storage
        refuse_file(storage)
        recover(storage, self._sink.stale_seconds)
        if self._sink.mode == "error":
            refuse_existing(storage, "append", "overwrite")
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

        Completes the commit if it is decided already and failed afterwards.

        Raises:
            SinkError: the commit failed. No file is visible, unless the error says that the commit
                is decided.
        """
        storage, mode = self._storage, self._sink.mode
        journal = journals.read(storage, self._job)
        if journal is None:
            if mode == "overwrite":
                # Complete other commits, so that no file is removed that their journals expect.
                recover(storage, self._sink.stale_seconds, skip=self._job, include_running=True)
            if mode == "error":
                refuse_existing(storage, "append", "overwrite")
            journal = plan(storage, self._job, committables, overwrite=mode == "overwrite")
            if not journals.write(storage, journal):
                raise mark_decided(SinkError(f"job {self._job} is committed by another process"))
        journals.roll_forward(storage, journal)
        finish(storage, journal)
        return result_of(journal)

    def abort(self) -> None:
        """Remove the job's staged files, and the folders that it made.

        Has no effect on a decided commit, which :func:`recover` completes.

        Raises:
            SinkError: a file could not be removed.
        """
        if journals.read(self._storage, self._job) is None:
            with failing("look at", self._storage.at(STAGING, self._job)):
                facts = JobFacts.read(self._storage, self._job)
            discard(self._storage, self._job, facts.made)


def _missing(storage: Storage) -> list[str]:
    """Return the missing folders of the path, the innermost first."""
    if not storage.is_local:
        return []
    missing, folder = [], storage.root
    with failing("look at", storage.root):
        while folder and not storage.is_folder(folder):
            missing.append(folder)
            folder = folder.rpartition("/")[0]
    return missing
