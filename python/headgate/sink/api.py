"""The interfaces of a sink: a writer in each task, and one committer. Decision: ADR 0035.

Names and steps are those of Flink's Sink V2 (FLIP-191), per checkpoint::

    task                                            coordinator
    writer.write(batch) ...
    the barrier of checkpoint n:
        writer.flush(end_of_input=False)
        writer.prepare_commit(n) -> committable -->  stored in checkpoint n
                                                    checkpoint n is complete
                                                    committer.commit(n, committables)

The committables of a checkpoint that is aborted belong to the next one that completes: they are
stored in that checkpoint, and passed to its commit together with its own. A task that has not heard yet
that a checkpoint is complete does the same with that one's, so a commit leaves out what is committed.

After a restart from checkpoint n, before any writer is made: ``committer.start(n)``, then
``committer.commit(n, ...)`` again with what checkpoint n stored, then
``committer.abort_unknown([], before=attempt)``.

A batch is a stream of one checkpoint: ``start(None)``, the writers of all tasks, and ``commit`` with the
committables of one attempt of each task; or ``abort_unknown([])``, if a task failed.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from headgate._arguments import flag, whole_number
from headgate._closing import Aborting
from headgate.errors import OptionError, SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

Delivery = Literal["exactly_once", "at_least_once"]
DELIVERIES: Final = ("exactly_once", "at_least_once")

#: Valid names of jobs, attempts and staged files: one component of a path, never "..".
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class WriterContext:
    """The identity of a writer.

    Attributes:
        job: the name of the job at this sink: no other job or sink of this job has it, and it is the
            same after a restart.
        index: the task's number, from 0.
        parallelism: number of writers of a streaming job.
        attempt: id of this run of the task, which no earlier run had. In a job with checkpoints, ids of later runs sort
            behind it as text.
        restored_checkpoint: the checkpoint that the job continues from; None at its first start.
        is_batch: True if the only checkpoint is at the end.

    Raises:
        OptionError: a name cannot be a part of a path.
    """

    job: str
    index: int = 0
    parallelism: int = 1
    attempt: str = field(default_factory=lambda: secrets.token_hex(8))
    restored_checkpoint: int | None = None
    is_batch: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        whole_number("index", self.index, 0)
        whole_number("parallelism", self.parallelism, 1)
        if self.restored_checkpoint is not None:
            whole_number("restored_checkpoint", self.restored_checkpoint, 0)
        chosen_name("job", self.job)
        chosen_name("attempt", self.attempt)
        flag("is_batch", self.is_batch)

    @property
    def first_checkpoint(self) -> int:
        """The number of the first checkpoint that the writer can see."""
        return 0 if self.restored_checkpoint is None else self.restored_checkpoint + 1


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """The identity of a committer.

    Attributes:
        job: the name of the job at this sink, as in the writers' contexts.
        is_batch: True if the only checkpoint is at the end.

    Raises:
        OptionError: the name cannot be a part of a path.
    """

    job: str
    is_batch: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        chosen_name("job", self.job)
        flag("is_batch", self.is_batch)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The rows that a commit made visible.

    Attributes:
        rows: number of rows.
        bytes: size of all files.
        files: paths of the files, relative to the sink's path, in the order of the tasks.
    """

    rows: int
    bytes: int
    files: tuple[str, ...]


class SinkWriter(Aborting):
    """The writer of one task. Used by one thread; a context manager that aborts on errors."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch.

        Raises:
            SchemaMismatchError: the batch has other columns than the sink takes.
            SinkError: the batch could not be written.
        """

    def flush(self, end_of_input: bool) -> None:
        """Handle the end of the rows before a barrier; called before each :meth:`prepare_commit`.

        Args:
            end_of_input: True if no batch follows.
        """

    def prepare_commit(self, checkpoint_id: int) -> bytes | None:  # noqa: ARG002 - overridden
        """Make all batches since the last call durable and return their committable.

        Args:
            checkpoint_id: the number of the checkpoint, greater than that of the last call.

        Returns:
            What the committer needs to make these rows visible, small: it is stored in the checkpoint.
            None if there is nothing to commit.

        Raises:
            SinkError: a batch could not be made durable.
        """
        return None

    def abort(self) -> None:
        """Remove what was written since the last :meth:`prepare_commit`, if that is possible."""

    def close(self) -> None:
        """Release all resources, and abort what is not prepared. May be called twice."""


class SinkCommitter:
    """The coordinator's part of a sink. Used by one thread at a time; its methods may block.

    This one is for sinks whose writers leave nothing to commit.
    """

    def start(self, restored_checkpoint: int | None) -> None:
        """Check the sink and prepare it; called once, before any writer is made.

        Args:
            restored_checkpoint: the checkpoint that the job continues from; None at its first start.

        Raises:
            SinkError: the sink cannot be written to, or has rows of a later checkpoint of this job,
                which would be repeated.
        """

    def commit(self, checkpoint_id: int, committables: Iterable[bytes]) -> WriteResult | None:
        """Make the rows of a complete checkpoint visible.

        May be called again with the same checkpoint and committables, after an error or a restart, and
        may get committables of earlier checkpoints: rows that are visible already are not repeated.

        Returns:
            What became visible; None if nothing did, or the sink does not count it.

        Raises:
            SinkError: the commit failed; call it again.
        """
        if any(True for _ in committables):
            raise SinkError(
                f"no committer makes the rows of checkpoint {checkpoint_id} visible",
                remedy="create_committer() that returns one · prepare_commit() that returns None",
            )
        return None

    def abort_unknown(self, committables: Collection[bytes], before: str | None = None) -> None:
        """Remove staged rows of this job that no checkpoint names.

        Called before any writer is made, and for a batch that failed.

        Args:
            committables: committables that may still be committed.
            before: rows of a writer whose ``attempt`` sorts behind this text stay: a newer driver of the
                job has staged them. None if there can be no other driver.
        """

    def close(self) -> None:
        """Release all resources. May be called twice."""


class Sink(ABC):
    """A target for the rows of a job. Picklable: writers are made in other processes."""

    @property
    def name(self) -> str:
        """The name of the target, by which a job notices that it continues with another one."""
        return type(self).__name__

    @property
    def new_file(self) -> tuple[fs.FileSystem, str] | None:
        """File system and path of a file as a job makes them; None if the target is no folder of files."""
        return None

    @property
    @abstractmethod
    def delivery(self) -> Delivery:
        """``"exactly_once"`` if a row is visible once after any restart, else ``"at_least_once"``."""

    def check_schema(self, schema: pa.Schema) -> None:  # noqa: B027 - overridden by some
        """Check that the sink can take rows with these columns; called before a job starts.

        Takes all schemas unless a sink overrides it.

        Raises:
            HeadgateError: the sink cannot.
        """

    @abstractmethod
    def create_writer(self, context: WriterContext, schema: pa.Schema | None = None) -> SinkWriter:
        """Return a writer; called in the process that uses it.

        Args:
            context: the identity of the writer.
            schema: the schema of the batches; by default the first batch's.
        """

    def create_committer(self, context: CommitterContext) -> SinkCommitter:  # noqa: ARG002 - overridden
        """Return the committer of a job; by default one that has nothing to commit."""
        return SinkCommitter()


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
