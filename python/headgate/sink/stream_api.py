"""The interfaces of a sink of a streaming job: a writer in each task, and one committer. Decision: ADR 0035.

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
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from headgate._arguments import whole_number
from headgate._closing import Aborting
from headgate.errors import SinkError
from headgate.sink.api import AnySchema, chosen_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

Delivery = Literal["exactly_once", "at_least_once"]
DELIVERIES: Final = ("exactly_once", "at_least_once")


@dataclass(frozen=True, slots=True)
class StreamWriterContext:
    """The identity of a writer.

    Attributes:
        job: the name of the job at this sink: no other job or sink of this job has it, and it is the
            same after a restart.
        index: the task's number, from 0.
        parallelism: number of writers.
        attempt: id of this run of the task, which no earlier run had. In a job with checkpoints, ids of later runs sort
            behind it as text.
        restored_checkpoint: the checkpoint that the job continues from; None at its first start.

    Raises:
        OptionError: a name cannot be a part of a path.
    """

    job: str
    index: int
    parallelism: int
    attempt: str
    restored_checkpoint: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        whole_number("index", self.index, 0)
        whole_number("parallelism", self.parallelism, 1)
        if self.restored_checkpoint is not None:
            whole_number("restored_checkpoint", self.restored_checkpoint, 0)
        chosen_name("job", self.job)
        chosen_name("attempt", self.attempt)


class StreamSinkWriter(Aborting):
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

    @abstractmethod
    def prepare_commit(self, checkpoint_id: int) -> bytes | None:
        """Make all batches since the last call durable and return their committable.

        Args:
            checkpoint_id: the number of the checkpoint, greater than that of the last call.

        Returns:
            What the committer needs to make these rows visible, small: it is stored in the checkpoint.
            None if there is nothing to commit.

        Raises:
            SinkError: a batch could not be made durable.
        """

    @abstractmethod
    def abort(self) -> None:
        """Remove what was written since the last :meth:`prepare_commit`, if that is possible."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources, and abort what is not prepared. May be called twice."""


class StreamSinkCommitter(ABC):
    """The coordinator's part of a sink. Used by one thread at a time; its methods may block."""

    @abstractmethod
    def start(self, restored_checkpoint: int | None) -> None:
        """Check the sink and prepare it; called once, before any other method and any writer.

        Args:
            restored_checkpoint: the checkpoint that the job continues from; None at its first start.

        Raises:
            SinkError: the sink cannot be written to, or has rows of a later checkpoint of this job,
                which would be repeated.
        """

    @abstractmethod
    def commit(self, checkpoint_id: int, committables: Iterable[bytes]) -> None:
        """Make the rows of a complete checkpoint visible.

        May be called again with the same checkpoint and committables, after an error or a restart, and
        may get committables of earlier checkpoints: rows that are visible already are not repeated.

        Raises:
            SinkError: the commit failed; call it again.
        """

    @abstractmethod
    def abort_unknown(self, known: Collection[bytes], before: str | None = None) -> None:
        """Remove staged rows of this job that no checkpoint names; called before any writer is made.

        Args:
            known: committables that may still be committed.
            before: rows of a writer whose ``attempt`` sorts behind this text stay: a newer driver of the
                job has staged them. None if there can be no other driver.
        """

    @abstractmethod
    def close(self) -> None:
        """Release all resources. May be called twice."""


class StreamSink(AnySchema, ABC):
    """A target for the rows of a streaming job. Picklable: writers are made in other processes."""

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

    @abstractmethod
    def create_stream_writer(
        self, context: StreamWriterContext, schema: pa.Schema | None = None
    ) -> StreamSinkWriter:
        """Return a writer; called in the process that uses it.

        Args:
            context: the identity of the writer.
            schema: the schema of the batches; by default the first batch's.
        """

    @abstractmethod
    def create_stream_committer(self, job: str) -> StreamSinkCommitter:
        """Return the committer of a job.

        Args:
            job: the job's name, as in the writers' contexts.
        """


def first_checkpoint(restored: int | None) -> int:
    """Return the number of the first checkpoint that can follow the one a job continues from."""
    return 0 if restored is None else restored + 1


def refuse_older(restored: int | None, committed: int | None, job: str, target: str) -> None:
    """Check that a job does not continue from before its last commit.

    Raises:
        SinkError: the sink has a later checkpoint of the job, whose rows would come again.
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
