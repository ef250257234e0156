"""Files that wait for their commit: what a checkpoint stores of them, and their committers' common part. ADR 0035."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from headgate._partition_names import is_partition
from headgate._sealed import seal, unseal
from headgate.errors import SinkError
from headgate.sink import journal as journals
from headgate.sink.api import SinkCommitter, WriteResult, check_name
from headgate.sink.failure import failing
from headgate.sink.layout import STAGING, folder_name
from headgate.sink.recovery import is_ours

if TYPE_CHECKING:
    from headgate.sink.storage import Storage


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that waits for its commit.

    Attributes:
        name: the file's name within the folder of its attempt.
        rows: rows in the file.
        bytes: size of the file.
        crc32: checksum of the file, for sinks that read it again; None for others.
        partition: the folders of the file below the sink's path, as in ``day=2026-01-31``; empty for none.
    """

    name: str
    rows: int
    bytes: int
    crc32: int | None = None
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Committable:
    """The files that one attempt has staged for a checkpoint.

    Attributes:
        job: the job of the attempt.
        number: of the first checkpoint that the rows can belong to; they are staged under it.
        index: the task's number.
        attempt: the attempt.
        files: the staged files.
    """

    job: str
    number: int
    index: int
    attempt: str
    files: tuple[StagedFile, ...]

    def to_bytes(self) -> bytes:
        """Return the JSON."""
        return seal(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Committable:
        """Return the committable that :meth:`to_bytes` wrote.

        Raises:
            SinkError: the bytes are not a committable, or have changed.
        """
        try:
            fields = unseal(data)
            files = tuple(StagedFile(**file) for file in fields.pop("files"))
            committable = cls(**fields, files=files)
            for name in (committable.job, committable.attempt, *(file.name for file in files)):
                check_name(name)
            if not all(file.partition == "" or is_partition(file.partition) for file in files):
                raise ValueError("a file's partition names no folders of columns")
            numbers = [committable.number, committable.index]
            numbers += [number for file in files for number in (file.rows, file.bytes)]
            numbers += [file.crc32 for file in files if file.crc32 is not None]
            if any(type(number) is not int or number < 0 for number in numbers):
                raise ValueError("its number, or a file's rows, bytes or checksum, is no number")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SinkError(f"this is no committable: {error}", have=repr(data[:200])) from error
        return committable


class StagedCommitter(SinkCommitter, ABC):
    """Commits staged files, by the numbers in their committables.

    Args:
        storage: the folder of the staged files.
        job: the job's name.
        target: where the rows become visible, for errors.
    """

    def __init__(self, storage: Storage, job: str, target: str) -> None:
        self._storage = storage
        self._job = job
        self._target = target

    @abstractmethod
    def latest(self) -> int | None:
        """Return the number of the last committed checkpoint; None before the first one."""

    @abstractmethod
    def commit_staged(self, checkpoint_id: int, staged: list[Committable]) -> WriteResult | None:
        """Make files visible, sorted by their numbers; see :meth:`SinkCommitter.commit`."""

    def start(self, restored_checkpoint: int | None) -> None:
        """Check that the job does not continue from before its last commit.

        Raises:
            SinkError: the sink has a later checkpoint of the job, whose rows would come again.
        """
        refuse_repeats(self._target, self._job, self.latest(), restored_checkpoint)

    def commit(self, checkpoint_id: int, committables: Iterable[bytes]) -> WriteResult | None:
        """Make the files visible; see :meth:`SinkCommitter.commit`.

        Raises:
            SinkError: the commit failed, or a committable is of another job or a later checkpoint.
        """
        staged = sorted(map(Committable.from_bytes, committables), key=attrgetter("number"))
        check_origins([(entry.job, entry.number) for entry in staged], self._job, checkpoint_id)
        return self.commit_staged(checkpoint_id, staged)

    def abort_unknown(self, committables: Collection[bytes], before: str | None = None) -> None:
        """Remove staged files, and complete decided commits; see :meth:`SinkCommitter.abort_unknown`."""
        staged = map(Committable.from_bytes, committables)
        named = {(entry.number, entry.attempt) for entry in staged if entry.job == self._job}
        storage = self._storage
        with failing("clean up", storage.at(STAGING)):
            for number in staged_numbers(storage, self._job):
                folder = folder_name(self._job, number)
                journal = journals.read(storage, folder)
                if journal is not None:
                    journals.roll_forward(storage, journal)
                inside = storage.list(storage.at(STAGING, folder))
                attempts = {info.path.rpartition("/")[2] for info in inside}
                unnamed = {name for name in attempts if (number, name) not in named}
                if before is not None:
                    unnamed = {name for name in unnamed if name < before}
                journals.clean(storage, folder, attempts=unnamed)


def check_order(checkpoint_id: int, least: int) -> None:
    """Check that a writer prepares the commit of a checkpoint that it has not prepared.

    Raises:
        SinkError: the checkpoint is before the least one.
    """
    if checkpoint_id < least:
        raise SinkError(
            "the checkpoints of a writer come in the order of their numbers",
            asked=f"checkpoint {checkpoint_id}",
            have=f"at least {least}",
        )


def check_origins(origins: Sequence[tuple[str, int]], job: str, checkpoint_id: int) -> None:
    """Check that the committables of a checkpoint are of its job, and not of a later one.

    Args:
        origins: job and number of each committable.
        job: the job whose checkpoint is committed.
        checkpoint_id: its number.

    Raises:
        SinkError: one is of another job or a later checkpoint.
    """
    other = next((of for of, _ in origins if of != job), None)
    if other is not None:
        raise SinkError("a committable of another job", asked=f"job {job}", have=str(other))
    last = max((number for _, number in origins), default=checkpoint_id)
    if last > checkpoint_id:
        raise SinkError(
            "a committable of a later checkpoint",
            asked=f"checkpoint {checkpoint_id}",
            have=f"checkpoint {last}",
        )


def refuse_repeats(target: str, job: str, committed: int | None, restored: int | None) -> None:
    """Check that a job does not continue from before its last commit.

    Args:
        target: where its rows are visible.
        job: the job's name.
        committed: the last checkpoint of the job that is visible there; None for none.
        restored: the checkpoint that the job continues from; None at its first start.

    Raises:
        SinkError: the rows of the later checkpoints would come again.
    """
    if committed is None or (restored is not None and committed <= restored):
        return
    raise SinkError(
        f"{target} has rows of job {job} that the job would write again",
        asked="a first start" if restored is None else f"a restart from checkpoint {restored}",
        have=f"checkpoint {committed}, which is committed",
        remedy="restart from the last checkpoint · another name for the job, to write them again",
        details={"job": job, "committed": committed},
    )


def staged_numbers(storage: Storage, job: str) -> Iterator[int]:
    """Yield the numbers of the job's checkpoints that have a folder."""
    for info in storage.list(storage.at(STAGING)):
        name, _, number = info.path.rpartition("/")[2].rpartition("-")
        if name == job and number.isdecimal() and is_ours(storage, info.path):
            yield int(number)


def clean_until(storage: Storage, job: str, last: int) -> None:
    """Remove the staged files of all numbers up to the last one."""
    with failing("clean up", storage.at(STAGING)):
        for number in staged_numbers(storage, job):
            if number <= last:
                journals.clean(storage, folder_name(job, number))
