"""Recovery of a path after earlier jobs: completes decided commits, removes files of dead jobs."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate._sealed import seal, unseal
from headgate.errors import HeadgateWarning, SinkError
from headgate.sink import journal as journals
from headgate.sink.failure import failing
from headgate.sink.layout import JOB, PARTIAL, STAGING, is_name
from headgate.sink.owner import Owner

if TYPE_CHECKING:
    from headgate.sink.storage import Storage


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery.

    Attributes:
        completed: jobs whose commit was rolled forward.
        removed: dead jobs whose staged files were removed.
    """

    completed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The contents of ``_job.json`` in a job's folder.

    Attributes:
        owner: the driver's process, if it is known.
        created: folders that the job made for its path, absolute, the innermost first.
    """

    owner: Owner | None = None
    created: tuple[str, ...] = ()

    @property
    def is_alive(self) -> bool | None:
        """True while the owner runs; None if that cannot be checked."""
        return None if self.owner is None else self.owner.is_alive

    def to_json(self) -> bytes:
        """Return the JSON."""
        owner = None if self.owner is None else self.owner.to_dict()
        return seal({"owner": owner, "made": self.created}).encode()

    @classmethod
    def read(cls, storage: Storage, job: str) -> JobFacts:
        """Return the facts of a job; empty ones if the file is missing, incomplete or damaged."""
        text = storage.read(storage.at(STAGING, job, JOB))
        try:
            fields = unseal(text or b"")
            owner, created = fields["owner"], tuple(fields["made"])
            # Only the sink's own folder and those above it can have been made for it.
            if not all(f and f"{storage.root}/".startswith(f"{f}/") for f in created):
                return cls()
            return cls(None if owner is None else Owner(**owner), created)
        except (ValueError, TypeError, KeyError):
            return cls()  # Incomplete: its writer died, or has not finished it.


def recover(
    storage: Storage, stale_after: float, *, skip: str | None = None, include_running: bool = False
) -> Recovered:
    """Complete decided commits and remove the staged files of dead jobs.

    A job is dead if its process ran on this machine and is gone. If that cannot be checked (another
    machine, a container, a streaming query), the job is dead once nothing in its folder has changed
    for ``stale_after`` seconds. Jobs of other users stay as they are, with a warning.

    Args:
        storage: the sink's folder.
        stale_after: in seconds.
        skip: the caller's job, which never counts as dead.
        include_running: True to complete the decided commits of running jobs too, as an overwrite
            needs; two processes may roll forward at the same time.

    Raises:
        SinkError: a decided commit could not be completed.
    """
    completed, removed = [], []
    with failing("look at", storage.at(STAGING)):
        folders = storage.list(storage.at(STAGING))
    for info in folders:
        job = info.path.rpartition("/")[2]
        if not is_name(job) or not is_ours(storage, info.path):
            continue
        # Read the owner first: a job that ends removes its journal before the owner's file.
        with failing("look at", info.path):
            facts = JobFacts.read(storage, job)
        journal = journals.read(storage, job)
        if journal is None and job == skip:
            continue
        if journal is not None:
            if include_running or not facts.is_alive:
                journals.roll_forward(storage, journal)
                finish(storage, journal)
                completed.append(job)
        elif _tidy(storage, job, facts, stale_after):
            removed.append(job)
    storage.remove_empty(storage.at(STAGING))
    return Recovered(tuple(completed), tuple(removed))


def finish(storage: Storage, journal: journals.Journal) -> None:
    """Remove the staged files of a completed commit; warn if that fails.

    For a streaming batch, remove only the journal's attempts, because the batch may run again.
    """
    attempts = None
    if journal.marker is not None:
        attempts = {move.source.split("/")[2] for move in journal.moves}
    try:
        journals.clean(storage, journal.job, attempts=attempts)
    except SinkError as error:
        # All rows are visible. An error would make the caller run the job again and repeat them.
        warnings.warn(_left("a complete job", error), stacklevel=2)


def discard(storage: Storage, job: str, created: tuple[str, ...]) -> None:
    """Remove an uncommitted job, and the empty ones of the folders that it made."""
    journals.clean(storage, job)
    for folder in created:
        if not storage.remove_empty(folder):
            return


def is_ours(storage: Storage, folder: str) -> bool:
    """Return True if a job's folder is one that this user made; warn if another user made it."""
    try:
        with failing("recover", folder):
            return not storage.info(folder).is_file
    except SinkError as error:
        warnings.warn(_left("another user's job", error), stacklevel=3)
        return False


def _tidy(storage: Storage, job: str, facts: JobFacts, stale_after: float) -> bool:
    """Remove a job that is dead or has no files; return True if it was removed."""
    folder = storage.at(STAGING, job)
    try:
        with failing("clean up", folder):
            if _is_unborn(storage, folder):
                storage.remove_empty(folder)
            elif not _is_dead(storage, folder, facts, stale_after):
                return False
            else:
                discard(storage, job, facts.created)
    except SinkError as error:
        # The files are invisible, so they must not keep the caller's job from writing.
        warnings.warn(_left("a dead job", error), stacklevel=2)
        return False
    return True


def _left(whose: str, error: SinkError) -> HeadgateWarning:
    warning = HeadgateWarning(f"the staged files of {whose} are left: {error.summary}")
    warning.code = error.code
    return warning


def _is_unborn(storage: Storage, folder: str) -> bool:
    """Empty a folder that has only unfinished files; return False if it has others.

    A process that is writing the first file there tries again: see :meth:`Storage.write_first`.
    """
    inside = storage.list(folder)
    if not all(not info.is_folder and info.path.endswith(PARTIAL) for info in inside):
        return False
    for info in inside:
        storage.delete_file(info.path)
    return True


def _is_dead(storage: Storage, folder: str, facts: JobFacts, stale_after: float) -> bool:
    alive = facts.is_alive
    return not alive if alive is not None else _age(storage, folder) > stale_after


def _age(storage: Storage, folder: str) -> float:
    """Return the seconds since the last change in a folder; 0 if that is not known."""
    infos = [storage.info(folder), *storage.list(folder, recursive=True)]
    changed = [info.mtime_ns / 1e9 for info in infos if info.mtime_ns is not None]
    return time.time() - max(changed) if changed else 0.0
