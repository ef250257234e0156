"""Staged files of a streaming job or query: one folder per checkpoint or batch, to be cleaned up."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from headgate.errors import SinkError
from headgate.sink import journal as journals
from headgate.sink.api import Committable
from headgate.sink.failure import failing
from headgate.sink.layout import STAGING, batch_job
from headgate.sink.recovery import is_ours

if TYPE_CHECKING:
    from headgate.sink.storage import Storage


def staged_numbers(storage: Storage, job: str) -> Iterator[int]:
    """Yield the numbers of the job's checkpoints, or the query's batches, that have a folder."""
    for info in storage.list(storage.at(STAGING)):
        name, _, number = info.path.rpartition("/")[2].rpartition("-")
        if name == job and number.isdecimal() and is_ours(storage, info.path):
            yield int(number)


def clean_until(storage: Storage, job: str, last: int) -> None:
    """Remove the staged files of all numbers up to the last one."""
    with failing("clean up", storage.at(STAGING)):
        for number in staged_numbers(storage, job):
            if number <= last:
                journals.clean(storage, batch_job(job, number))


def clean_unknown(
    storage: Storage, job: str, known: Collection[bytes], before: str | None = None
) -> None:
    """Remove the job's staged files but those of known committables; complete decided commits.

    Args:
        storage: the sink's folder.
        job: its name.
        known: committables whose files stay.
        before: files of attempts that sort behind it stay.
    """
    kept = {(one.job, one.attempt) for one in committables_of(known)}
    with failing("clean up", storage.at(STAGING)):
        for number in staged_numbers(storage, job):
            name = batch_job(job, number)
            journal = journals.read(storage, name)
            if journal is not None:
                journals.roll_forward(storage, journal)
            inside = storage.list(storage.at(STAGING, name))
            attempts = {info.path.rpartition("/")[2] for info in inside}
            gone = {attempt for attempt in attempts if (name, attempt) not in kept}
            if before is not None:
                gone = {attempt for attempt in gone if attempt < before}
            journals.clean(storage, name, attempts=gone)


def committables_of(texts: Collection[bytes]) -> list[Committable]:
    """Return committables from their bytes.

    Raises:
        SinkError: bytes are no committable.
    """
    try:
        return [Committable.from_json(text.decode()) for text in texts]
    except UnicodeDecodeError as error:
        raise SinkError(f"this is no committable: {error}") from error


def number_of(committable: Committable, job: str) -> int:
    """Return the number under which a committable of a job is staged.

    Raises:
        SinkError: it is of another job.
    """
    name, _, number = committable.job.rpartition("-")
    if name != job or not number.isdecimal():
        raise SinkError("a committable of another job", asked=f"job {job}", have=committable.job)
    return int(number)
