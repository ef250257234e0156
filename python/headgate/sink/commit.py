"""The plan of a commit and its checks, for jobs and for streaming queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headgate.errors import SinkError
from headgate.sink import journal as journals
from headgate.sink.api import Committable, WriteResult
from headgate.sink.failure import failing
from headgate.sink.layout import is_hidden, staged_path, target_path

if TYPE_CHECKING:
    from headgate.sink.storage import Storage


def visible(storage: Storage) -> list[str]:
    """Return the files at the path that readers see, relative to it."""
    with failing("look at", storage.root):
        start = len(storage.at(""))
        found = (i.path for i in storage.list(storage.root, recursive=True) if not i.is_folder)
        return [path[start:] for path in found if not is_hidden(path[start:])]


def refuse_file(storage: Storage) -> None:
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


def refuse_existing(storage: Storage, *other_modes: str) -> None:
    """Check that the path has no data, as ``mode="error"`` requires.

    Args:
        storage: the folder.
        other_modes: that the job could have.

    Raises:
        SinkError: there is a file that readers see.
    """
    there = visible(storage)
    if there:
        raise SinkError(
            f"{storage.root} holds data already",
            asked='mode="error"',
            have=f"{len(there)} files, the first {there[0]}",
            remedy=" · ".join([*(f'mode="{mode}"' for mode in other_modes), "another path"]),
            details={"path": storage.root},
        )


def plan(
    storage: Storage,
    job: str,
    committables: Iterable[Committable],
    *,
    overwrite: bool = False,
    marker: str | None = None,
) -> journals.Journal:
    """Check the staged files of a commit and return its journal.

    Raises:
        SinkError: a committable belongs to another job, an attempt is there twice, or a staged
            file is missing or has another size.
    """
    accepted = sorted(committables, key=lambda c: (c.index, c.attempt))
    attempts = [committable.attempt for committable in accepted]
    wrong = next((c for c in accepted if c.job != job), None)
    if wrong is not None:
        raise SinkError("a committable of another job", asked=f"job {job}", have=f"job {wrong.job}")
    if len(set(attempts)) != len(attempts):
        raise SinkError("the same attempt is to be committed twice", have=", ".join(attempts))
    rows = sum(committable.rows for committable in accepted)
    moves: list[journals.Move] = []
    for number, committable in enumerate(accepted):
        for file in committable.files:
            # An empty file only keeps the schema: keep one, and only if there are no rows.
            if file.rows == 0 and (rows or moves or marker is not None):
                continue
            source = staged_path(job, committable.attempt, file.name)
            moves.append(journals.Move(source, target_path(job, number, file.name), file.bytes))
    _check(storage, moves)
    targets = {move.target for move in moves}
    removes = tuple(path for path in visible(storage) if path not in targets) if overwrite else ()
    return journals.Journal(job, tuple(moves), removes, marker, rows)


def abort_after(error: BaseException, abort: Callable[[], None]) -> None:
    """Abort a job because of an error; note a failure of the abort in that error."""
    try:
        abort()
    except SinkError as more:
        error.add_note(f"the job's staged files are left: {more}")


def result_of(journal: journals.Journal) -> WriteResult:
    """Return the result of a commit."""
    size = sum(move.bytes for move in journal.moves)
    return WriteResult(journal.rows, size, tuple(move.target for move in journal.moves))


def _check(storage: Storage, moves: list[journals.Move]) -> None:
    for move in moves:
        path = storage.at(move.source)
        with failing("look at", path):
            info = storage.info(path)
        if not info.is_file or info.size != move.bytes:
            raise SinkError(
                f"a staged file is missing or has changed: {path}",
                asked=f"{move.bytes} bytes",
                have=f"{info.size} bytes" if info.is_file else "no file",
                remedy="give a path that driver and executors share · run the action again",
                details={"path": path},
            )
