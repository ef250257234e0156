"""The committer of a file sink: of a batch, and of the checkpoints of a stream. Decision: ADR 0035."""

from __future__ import annotations

import os
from collections.abc import Collection
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError, SinkError
from headgate.sink import journal as journals
from headgate.sink.api import CommitterContext, WriteResult
from headgate.sink.failure import UnsafeError, aborting, failing, mark_decided
from headgate.sink.joining import changed, joined
from headgate.sink.layout import (
    COMMITS,
    JOB,
    STAGING,
    folder_name,
    is_hidden,
    marker_path,
    staged_path,
    target_path,
)
from headgate.sink.owner import Owner
from headgate.sink.recovery import JobFacts, discard, finish, recover
from headgate.sink.staging import Committable, StagedCommitter, clean_until

if TYPE_CHECKING:
    from headgate.sink.file_options import FileSinkOptions
    from headgate.sink.storage import Storage

#: Number of markers to keep. A checkpoint with a lower number than the newest marker is committed too.
_MARKERS: Final = 10


class FileCommitter(StagedCommitter):
    """Commits each checkpoint of a job once; a batch has a single one.

    The steps of :meth:`commit`, and the state after a crash that follows each step:

    1. With ``compact_below``, join small files of a folder in staged files. Check that every staged file
       exists with its size. No file is visible. The next job that finds a batch dead removes its staged
       files; a stream commits the checkpoint again, or writes the rows again if it is not complete.
    2. Write the journal, which decides the commit. The next use of the path completes it.
    3. Remove ``_SUCCESS`` and rename the files to their places. Some files are visible. The next
       use of the path completes the commit from the journal.
    4. For an overwrite, remove the files that were visible at step 2. The new files and some old
       ones are visible. The next use of the path completes the commit.
    5. Write ``_SUCCESS``. All files are visible. The next use of the path removes the staging
       folder.

    A stream does not end, so it has no ``_SUCCESS`` in the steps 3 and 5. Its step 5 writes a marker with
    the number of the checkpoint, by which a repeated commit sees that it is done.

    Readers that list the folder between steps 3 and 5 may see a part of a batch, unless they wait
    for ``_SUCCESS``. Appending jobs may commit at the same time. A job with ``mode="overwrite"`` or
    ``mode="error"`` expects to be alone: files that another job commits at the same time stay.

    Args:
        sink: the options of the sink.
        storage: the sink's folder.
        context: the identity of the committer.
        owner: the process that runs a batch; this process if it is None.
    """

    def __init__(
        self,
        sink: FileSinkOptions,
        storage: Storage,
        context: CommitterContext,
        owner: Owner | None = None,
    ) -> None:
        super().__init__(storage, context.job, storage.root)
        self._sink = sink
        self._is_batch = context.is_batch
        self._owner = owner

    def start(self, restored_checkpoint: int | None) -> None:
        """Check the path; for a batch, recover earlier ones and make its folder.

        Raises:
            SinkError: there is data and the mode is ``"error"``, the path is not writable, or the
                job would write rows again.
            OptionError: the mode of a stream is ``"overwrite"``, with which each checkpoint would
                remove the last.
        """
        storage, mode = self._storage, self._sink.mode
        _refuse_file(storage)
        if self._is_batch:
            self._start_batch()
            return
        if mode == "overwrite":
            raise OptionError(
                'mode="overwrite" is not for streams: each checkpoint would replace the one before',
                remedy='mode="append" · mode="error"',
            )
        super().start(restored_checkpoint)
        if restored_checkpoint is None and mode == "error":
            _refuse_existing(storage, "append")

    def commit_staged(self, checkpoint_id: int, staged: list[Committable]) -> WriteResult | None:
        """Make files visible; see the class. Completes a commit that is decided already.

        With ``mode="overwrite"`` a checkpoint without rows removes those that are there.
        """
        if self._is_batch:
            return self._commit_batch(staged)
        numbers = {n: list(files) for n, files in groupby(staged, attrgetter("number"))}
        if self._sink.mode == "overwrite":
            numbers.setdefault(checkpoint_id, [])
        commits = [self._commit_number(number, files) for number, files in numbers.items()]
        done = [journal for journal in commits if journal is not None]
        return _result_of(*done) if done else None

    def abort_unknown(self, committables: Collection[bytes], before: str | None = None) -> None:
        """Remove the staged files, and the folders that a batch made.

        Has no effect on the decided commit of a batch, which :func:`recover` completes.

        Raises:
            SinkError: a file could not be removed.
        """
        if not self._is_batch:
            super().abort_unknown(committables, before)
        elif journals.read(self._storage, self._folder) is None:
            with failing("look at", self._storage.at(STAGING, self._folder)):
                facts = JobFacts.read(self._storage, self._folder)
            discard(self._storage, self._folder, facts.created)

    def latest(self) -> int | None:
        """Return the number of the last committed checkpoint; None before the first one."""
        with failing("look at", self._storage.at(COMMITS, self._job)):
            return max(self._markers(), default=None)

    @property
    def _folder(self) -> str:
        """The folder of a batch."""
        return folder_name(self._job, 0)

    def _start_batch(self) -> None:
        storage = self._storage
        recover(storage, self._sink.stale_seconds)
        if self._sink.mode == "error":
            _refuse_existing(storage, "append", "overwrite")
        facts = JobFacts(self._owner or Owner.of(os.getpid()), tuple(_missing(storage)))
        path = storage.at(STAGING, self._folder, JOB)
        with (
            aborting(lambda: discard(storage, self._folder, facts.created)),
            failing("write", path),
        ):
            storage.write_first(path, facts.to_json())

    def _commit_batch(self, staged: list[Committable]) -> WriteResult:
        storage, mode, folder = self._storage, self._sink.mode, self._folder
        journal = journals.read(storage, folder)
        if journal is None:
            if mode == "overwrite":
                # Complete other commits, so that no file is removed that their journals expect.
                recover(storage, self._sink.stale_seconds, skip=folder, include_running=True)
            if mode == "error":
                _refuse_existing(storage, "append", "overwrite")
            journal = self._plan(folder, staged)
            if not journals.write(storage, journal):
                raise mark_decided(SinkError(f"job {self._job} is committed by another process"))
        journals.roll_forward(storage, journal)
        finish(storage, journal)
        return _result_of(journal)

    def _commit_number(self, number: int, staged: list[Committable]) -> journals.Journal | None:
        """Commit what is staged under a number of a stream; return None if that was done before."""
        storage, folder = self._storage, folder_name(self._job, number)
        _refuse_file(storage)
        recover(storage, self._sink.stale_seconds, skip=folder, include_running=True)
        latest, done = self.latest(), None
        if latest is None or number > latest:
            journal = self._plan(folder, staged, marker_path(self._job, number))
            if not journals.write(storage, journal):
                # An older driver, which still runs, has decided this commit.
                recover(storage, self._sink.stale_seconds, skip=folder, include_running=True)
            elif journals.roll_forward(storage, journal):
                done = journal
        self._clean(number)
        return done

    def _plan(
        self, folder: str, staged: list[Committable], marker: str | None = None
    ) -> journals.Journal:
        """Check the staged files of a commit and return its journal.

        Raises:
            SinkError: an attempt is there twice, or a staged file is missing or has another size.
        """
        attempts = [committable.attempt for committable in staged]
        if len(set(attempts)) != len(attempts):
            raise SinkError(
                "the same attempt is to be committed twice", have=", ".join(sorted(attempts))
            )
        staged = joined(self._sink, self._storage, folder, staged)
        rows = sum(file.rows for committable in staged for file in committable.files)
        moves: list[journals.Move] = []
        in_order = sorted(staged, key=attrgetter("index", "attempt"))
        for number, committable in enumerate(in_order):
            for file in committable.files:
                # An empty file only keeps the schema: keep one, and only if there are no rows.
                if file.rows == 0 and (rows or moves or marker is not None):
                    continue
                source = staged_path(folder, committable.attempt, file.name)
                target = target_path(folder, number, file.name, file.partition)
                moves.append(journals.Move(source, target, file.bytes))
        _check_sizes(self._storage, moves)
        _check_folders(self._storage, moves)
        removes: tuple[str, ...] = ()
        if self._sink.mode == "overwrite":
            targets = {move.target for move in moves}
            removes = tuple(path for path in _visible(self._storage) if path not in targets)
        return journals.Journal(folder, tuple(moves), removes, marker, rows)

    def _markers(self) -> list[int]:
        infos = self._storage.list(self._storage.at(COMMITS, self._job))
        names = ((info.path, info.path.rpartition("/")[2]) for info in infos)
        # A look at each, because a marker that another user made would hide rows.
        return [int(n) for path, n in names if n.isdecimal() and self._storage.is_file(path)]

    def _clean(self, number: int) -> None:
        """Remove the staged files of this and earlier checkpoints, and the oldest markers."""
        storage = self._storage
        clean_until(storage, self._job, number)
        with failing("clean up", storage.at(COMMITS)):
            for old in sorted(self._markers())[:-_MARKERS]:
                storage.delete_file(storage.at(COMMITS, self._job, str(old)))


def _visible(storage: Storage) -> list[str]:
    """Return the files at the path that readers see, relative to it."""
    with failing("look at", storage.root):
        start = len(storage.at(""))
        files = (i.path for i in storage.list(storage.root, recursive=True) if not i.is_folder)
        return [path[start:] for path in files if not is_hidden(path[start:])]


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


def _refuse_file(storage: Storage) -> None:
    """Check that the path is not a file.

    Raises:
        SinkError: the path is a file.
    """
    with failing("look at", storage.root):
        if storage.is_file(storage.root):
            raise SinkError(
                f"{storage.root} is a file; a sink writes files into a folder",
                remedy="give the path of a folder",
                details={"path": storage.root},
            )


def _refuse_existing(storage: Storage, *other_modes: str) -> None:
    """Check that the path has no data, as ``mode="error"`` requires.

    Raises:
        SinkError: there is a file that readers see.
    """
    there = _visible(storage)
    if there:
        raise SinkError(
            f"{storage.root} holds data already",
            asked='mode="error"',
            have=f"{len(there)} files, the first {there[0]}",
            remedy=" · ".join([*(f'mode="{mode}"' for mode in other_modes), "another path"]),
            details={"path": storage.root},
        )


def _check_sizes(storage: Storage, moves: list[journals.Move]) -> None:
    for move in moves:
        path = storage.at(move.source)
        with failing("look at", path):
            info = storage.info(path)
        if not info.is_file or info.size != move.bytes:
            raise changed(path, move.bytes, info.size if info.is_file else None)


def _check_folders(storage: Storage, moves: list[journals.Move]) -> None:
    """Check that no file or link is in the place of a folder, which would stop the commit halfway.

    Raises:
        SinkError: there is one.
    """
    for folder in journals.folders_above(move.target.rpartition("/")[0] for move in moves):
        path = storage.at(folder)
        with failing("write into", path):
            entry = storage.info(path)
            # A link has a time of its last change, and what is missing has none.
            if entry.is_file or (not entry.is_folder and entry.mtime_ns is not None):
                raise UnsafeError(f"{path} is no folder")


def _result_of(*commits: journals.Journal) -> WriteResult:
    moves = [move for journal in commits for move in journal.moves]
    files = tuple(move.target for move in moves)
    return WriteResult(sum(c.rows for c in commits), sum(move.bytes for move in moves), files)
