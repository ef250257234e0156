"""What a sink is: writers in the tasks, one committer on the driver, plain data between them.

The parts and their names are those of Flink's two-phase sinks (FLIP-143, FLIP-191): a writer stages
what it gets and says at the end, in a committable, what it staged; the committer gets the
committables of exactly one attempt of every task and makes all of them visible, or none.
"""

from __future__ import annotations

import json
import re
import secrets
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    import pyarrow as pa

#: What names of jobs, attempts and staged files may be: one part of a path, never a way out of it.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Who writes.

    Attributes:
        job: the job, as the committer named it.
        index: the task's number within the job; orders the files, need not be unique.
        attempt: unique within the job: no two writers, and no two tries of a task, share it.
    """

    job: str
    index: int = 0
    attempt: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file that waits for its commit.

    Attributes:
        name: within the folder of its attempt.
        rows: in the file.
        bytes: its size.
    """

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Committable:
    """What one attempt staged; crosses process borders as JSON.

    Attributes:
        job: the job that it belongs to.
        index: the task's number.
        attempt: the attempt.
        files: what it staged; empty when it got no rows.
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
        """Return it as text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Committable:
        """Return what :meth:`to_json` made text of.

        Raises:
            SinkError: the text is something else.
        """
        try:
            told = json.loads(text)
            files = tuple(StagedFile(f["name"], f["rows"], f["bytes"]) for f in told["files"])
            found = cls(told["job"], told["index"], told["attempt"], files)
            for name in (found.job, found.attempt, *(file.name for file in files)):
                check_name(name)
            if any(type(n) is not int or n < 0 for f in files for n in (f.rows, f.bytes)):
                raise ValueError("a file's rows or bytes are no number")
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError("this is no committable", have=repr(text[:200])) from error
        return found


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a committed job made visible.

    Attributes:
        rows: in all files.
        bytes: of all files.
        files: their paths, relative to the sink's path, in the order of the tasks.
    """

    rows: int
    bytes: int
    files: tuple[str, ...]


class SinkWriter(ABC):
    """One attempt's end of a sink. Used by one thread; a context manager that aborts on errors."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage a batch.

        Raises:
            SchemaMismatchError: it does not have the columns of the sink.
            SinkError: it could not be written.
        """

    @abstractmethod
    def prepare_commit(self) -> Committable:
        """Make everything that was written durable and return what the committer must know.

        After it the writer takes nothing more, and closing it keeps what it staged.

        Raises:
            SinkError: something could not be written.
        """

    @abstractmethod
    def abort(self) -> None:
        """Remove what this attempt staged. Harmless when there is nothing."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; without :meth:`prepare_commit` before, this aborts."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Abort when there was an error; close."""
        if error is not None:
            self.abort()
        self.close()


class Committer(ABC):
    """The driver's end of a job."""

    @property
    @abstractmethod
    def job(self) -> str:
        """The job's name, for the writers' contexts."""

    @abstractmethod
    def start(self) -> None:
        """Check the sink and make it ready for writers; once per job, before any of them.

        Raises:
            SinkError: this job may not or cannot write there.
        """

    @abstractmethod
    def commit(self, committables: Iterable[Committable]) -> WriteResult:
        """Make what the committables name visible; of all other attempts nothing stays.

        Raises:
            SinkError: it could not be done; the error says whether anything is visible.
        """

    @abstractmethod
    def abort(self) -> None:
        """Remove everything that the job staged, unless its commit is decided already."""


class Sink(ABC):
    """Where the rows of a job go. Picklable: writers are made in other processes."""

    @abstractmethod
    def create_committer(self, job: str | None = None) -> Committer:
        """Return the committer of a job; of a new one when no name is given."""

    @abstractmethod
    def create_writer(self, context: WriterContext, schema: pa.Schema | None = None) -> SinkWriter:
        """Return a writer of a started job.

        Args:
            context: who writes.
            schema: of the batches; by default the first batch's.
        """


def check_name(name: object) -> str:
    """Return a name that is safe as one part of a path.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} cannot be a part of a path")
    return name
