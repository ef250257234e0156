"""The interfaces of a sink: writers in the tasks, and one committer on the driver.

Parts and names are those of Flink's two-phase sinks (FLIP-143, FLIP-191). A writer stages its
batches and finally returns a committable, which lists the staged files. The committer gets the
committables of exactly one attempt of every task and makes all of their files visible, or none.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from headgate._arguments import whole_number
from headgate._closing import Aborting
from headgate._sealed import seal, unseal
from headgate.errors import OptionError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

#: Valid names of jobs, attempts and staged files: one component of a path, never "..".
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class WriterContext:
    """The identity of a writer.

    Attributes:
        job: the job's name, from the committer.
        index: the task's number within the job; orders the files, and need not be unique.
        attempt: id of the attempt, unique within the job, among all writers and attempts.

    Raises:
        OptionError: a name cannot be a part of a path.
    """

    job: str
    index: int = 0
    attempt: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        """Check the fields."""
        whole_number("index", self.index, 0)
        chosen_name("job", self.job)
        chosen_name("attempt", self.attempt)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that waits for its commit.

    Attributes:
        name: the file's name within the folder of its attempt.
        rows: rows in the file.
        bytes: size of the file.
        crc32: checksum of the file, for sinks that read it again; None for others.
    """

    name: str
    rows: int
    bytes: int
    crc32: int | None = None


@dataclass(frozen=True, slots=True)
class Committable:
    """The staged files of one attempt; travels between processes as JSON.

    Attributes:
        job: the job of the attempt.
        index: the task's number.
        attempt: the attempt.
        files: the staged files; empty if the attempt got no rows.
    """

    job: str
    index: int
    attempt: str
    files: tuple[StagedFile, ...] = ()

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    def to_json(self) -> str:
        """Return the JSON."""
        return seal(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Committable:
        """Return the committable that :meth:`to_json` wrote.

        Raises:
            SinkError: the text is not a committable, or has changed.
        """
        try:
            fields = unseal(text)
            files = tuple(StagedFile(**file) for file in fields["files"])
            found = cls(fields["job"], fields["index"], fields["attempt"], files)
            for name in (found.job, found.attempt, *(file.name for file in files)):
                check_name(name)
            numbers = [found.index, *(n for file in files for n in (file.rows, file.bytes))]
            numbers += [file.crc32 for file in files if file.crc32 is not None]
            if any(type(n) is not int or n < 0 for n in numbers):
                raise ValueError("its index, or a file's rows, bytes or checksum, is no number")
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(f"this is no committable: {error}", have=repr(text[:200])) from error
        return found


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The files that a committed job made visible.

    Attributes:
        rows: rows in all files.
        bytes: size of all files.
        files: paths of the files, relative to the sink's path, in the order of the tasks.
    """

    rows: int
    bytes: int
    files: tuple[str, ...]


class SinkWriter(Aborting):
    """The writer of one attempt. Used by one thread; a context manager that aborts on errors."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage a batch.

        Raises:
            SchemaMismatchError: the batch has other columns than the sink.
            SinkError: the batch could not be written.
        """

    @abstractmethod
    def prepare_commit(self) -> Committable:
        """Make all written batches durable and return the committable.

        Afterwards the writer takes no further batch, and :meth:`close` keeps the staged files.

        Raises:
            SinkError: a file could not be written.
        """

    @abstractmethod
    def abort(self) -> None:
        """Remove the staged files of this attempt, if there are any."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; abort unless :meth:`prepare_commit` was called."""


class Committer(ABC):
    """The driver's part of a job."""

    @property
    @abstractmethod
    def job(self) -> str:
        """The job's name, for the writers' contexts."""

    @abstractmethod
    def start(self) -> None:
        """Check the sink and prepare it for writers; called once per job, before any writer.

        Raises:
            SinkError: the job must not or cannot write to the sink.
        """

    @abstractmethod
    def commit(self, committables: Iterable[Committable]) -> WriteResult:
        """Make the files of the committables visible, and remove those of all other attempts.

        Raises:
            SinkError: the commit failed. No file is visible, unless the error says that the commit
                is decided.
        """

    @abstractmethod
    def abort(self) -> None:
        """Remove the job's staged files, unless its commit is decided already."""


class AnySchema:
    """The part of a sink that knows which columns it can take."""

    def check_schema(self, schema: pa.Schema) -> None:
        """Check that the sink can take rows with these columns; called before a job starts.

        Takes all schemas unless a sink overrides it.

        Raises:
            HeadgateError: the sink cannot.
        """


class Sink(AnySchema, ABC):
    """A target for the rows of a job. Picklable, because writers are made in other processes."""

    @abstractmethod
    def create_committer(self, job: str | None = None) -> Committer:
        """Return the committer of a job; of a new job if there is no name."""

    @abstractmethod
    def create_writer(self, context: WriterContext, schema: pa.Schema | None = None) -> SinkWriter:
        """Return a writer of a started job.

        Args:
            context: the identity of the writer.
            schema: the schema of the batches; by default the first batch's.
        """


def chosen_name(option: str, name: object) -> str:
    """Return a name that a caller chose.

    Raises:
        OptionError: the name cannot be a part of a path.
    """
    try:
        return check_name(name)
    except ValueError as error:
        raise OptionError(
            f"{option}={name!r} is no valid name",
            remedy=f'letters, digits, ".", "_" and "-", up to 200, as in {option}="orders-7"',
        ) from error


def check_name(name: object) -> str:
    """Return a name that is safe as one component of a path.

    Raises:
        ValueError: the name is not safe.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} cannot be a part of a path")
    return name
