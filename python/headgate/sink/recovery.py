"""What earlier jobs left at a path: decided commits are completed, remains of dead jobs removed."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.errors import HeadgateWarning, SinkError
from headgate.sink import journal as journals
from headgate.sink.failure import failing
from headgate.sink.layout import JOB, STAGING
from headgate.sink.owner import Owner
from headgate.sink.storage import PARTIAL, is_name

if TYPE_CHECKING:
    from headgate.sink.storage import Storage


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery did.

    Attributes:
        completed: jobs whose commit was rolled forward.
        removed: dead jobs whose staged files were removed.
    """

    completed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a job's folder says of it.

    Attributes:
        owner: the driver's process, if that is known.
        made: folders that the job made for its path, the innermost first; absolute.
    """

    owner: Owner | None = None
    made: tuple[str, ...] = ()

    @property
    def is_alive(self) -> bool | None:
        """Whether the owner lives; None when that cannot be seen."""
        return None if self.owner is None else self.owner.is_alive

    def to_json(self) -> bytes:
        """Return it as text."""
        owner = None if self.owner is None else self.owner.to_dict()
        return json.dumps({"owner": owner, "made": self.made}).encode()

    @classmethod
    def read(cls, storage: Storage, job: str) -> JobFacts:
        """Return a job's; empty ones when its folder says nothing (yet)."""
        text = storage.read(storage.at(STAGING, job, JOB))
        try:
            told = json.loads(text or b"{}")
            owner = told.get("owner")
            return cls(None if owner is None else Owner(**owner), tuple(told.get("made", ())))
        except (ValueError, TypeError, AttributeError):
            return cls()  # half written: its writer died, or is about to finish it


def recover(
    storage: Storage, stale_after: float, *, skip: str | None = None, everybody: bool = False
) -> Recovered:
    """Complete decided commits and remove what dead jobs staged.

    A job is dead when the process that runs it is of this machine and is gone. Where that cannot
    be seen (another machine, a container, a streaming query) it is dead when nothing in its folder
    has changed for ``stale_after`` seconds.

    Args:
        storage: the sink's folder.
        stale_after: seconds.
        skip: a job that is not to be taken for dead: the caller's.
        everybody: complete the decided commits of living jobs too, before an overwrite: rolling
            forward twice at the same time is harmless.

    Raises:
        SinkError: a decided commit could not be completed.
    """
    completed, removed = [], []
    with failing("look at", storage.at(STAGING)):
        folders = storage.list(storage.at(STAGING))
    for info in folders:
        job = info.path.rpartition("/")[2]
        if not is_name(job):
            continue
        # The owner first: a job that ends removes its journal, and only then what names its owner.
        with failing("look at", info.path):
            facts = JobFacts.read(storage, job)
        journal = journals.read(storage, job)
        if journal is None and job == skip:
            continue
        if journal is not None:
            if everybody or not facts.is_alive:
                journals.roll_forward(storage, journal)
                finish(storage, journal)
                completed.append(job)
        elif _tidy(storage, job, facts, stale_after):
            removed.append(job)
    storage.remove_empty(storage.at(STAGING))
    return Recovered(tuple(completed), tuple(removed))


def finish(storage: Storage, journal: journals.Journal) -> None:
    """Remove what is staged of a completed commit; warn when that cannot be done.

    Of a streaming batch only what the journal names: the batch may be running again.
    """
    attempts = None
    if journal.marker is not None:
        attempts = {move.source.split("/")[2] for move in journal.moves}
    try:
        journals.clean(storage, journal.job, attempts=attempts)
    except SinkError as error:
        # All rows are visible: an error would have the job run again, and its rows appear twice.
        warnings.warn(_left("a complete job", error), stacklevel=2)


def discard(storage: Storage, job: str, made: tuple[str, ...]) -> None:
    """Remove a job that never became visible, and the folders that it made and nobody uses."""
    journals.clean(storage, job)
    for folder in made:
        if not storage.remove_empty(folder):
            return


def _tidy(storage: Storage, job: str, facts: JobFacts, stale_after: float) -> bool:
    """Remove a job that is dead, or was not even begun; return whether it was."""
    folder = storage.at(STAGING, job)
    try:
        with failing("clean up", folder):
            if _is_unborn(storage, folder):
                storage.remove_empty(folder)
            elif not _is_dead(storage, folder, facts, stale_after):
                return False
            else:
                discard(storage, job, facts.made)
    except SinkError as error:
        # Somebody else's remains are invisible; they must not keep this job from writing.
        warnings.warn(_left("a dead job", error), stacklevel=2)
        return False
    return True


def _left(whose: str, error: SinkError) -> HeadgateWarning:
    warning = HeadgateWarning(f"what {whose} staged is left: {error.summary}")
    warning.code = error.code
    return warning


def _is_unborn(storage: Storage, folder: str) -> bool:
    """Empty a folder that has nothing but unfinished files; return whether it is empty then.

    Whoever is just making it does so again: see :meth:`Storage.write_first`.
    """
    inside = storage.list(folder)
    if not all(info.is_file and info.path.endswith(PARTIAL) for info in inside):
        return False
    for info in inside:
        storage.delete_file(info.path)
    return True


def _is_dead(storage: Storage, folder: str, facts: JobFacts, stale_after: float) -> bool:
    alive = facts.is_alive
    return not alive if alive is not None else _age(storage, folder) > stale_after


def _age(storage: Storage, folder: str) -> float:
    """Return the seconds since anything changed in a folder; 0 when that is not known."""
    infos = [storage.info(folder), *storage.list(folder, recursive=True)]
    changed = [info.mtime_ns / 1e9 for info in infos if info.mtime_ns is not None]
    return time.time() - max(changed) if changed else 0.0
