"""The committers of a job's sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headgate.errors import HeadgateError, InternalError, SinkError, StreamError
from headgate.sink.api import CommitterContext
from headgate.stream.job.metadata import committables_of
from headgate.stream.operators.results import calling
from headgate.stream.operators.sinks import SinkOperator

if TYPE_CHECKING:
    from headgate.stream.graph.stages import JobGraph
    from headgate.stream.job.store import Completed


class SinkCommits:
    """Commits the output of complete checkpoints; used by the thread of files only.

    Args:
        graph: the job.
        name: of the job.
    """

    def __init__(self, graph: JobGraph, name: str) -> None:
        self._sinks = _sinks_of(graph)
        self._graph = graph
        #: Name of each sink, by uid.
        self.names = {uid: sink.name for uid, sink in self._sinks.items()}
        self._name = name
        self._committers: dict[str, Any] = {}
        #: True while the committers are those that :meth:`check` has made, for this checkpoint.
        self._is_checked = False
        self._checkpoint: int | None = None

    def check_new_files(self) -> None:
        """Check that no source reads what a sink of the job writes.

        Raises:
            StreamError: one would, in this run or in the next one.
        """
        for uid, sink in self._sinks.items():
            new_file = sink.new_file
            for source in self._graph.sources.values():
                if new_file is not None and source.would_list(*new_file):
                    folder = new_file[1].rpartition("/")[0]
                    raise StreamError(
                        f"{uid} writes into {folder}, where {source.name} would read its files as input",
                        remedy="a folder of its own for the sink, beside that of the source",
                    )

    def check(self, restored_checkpoint: int | None) -> None:
        """Check that all sinks take a job that starts for the first time, or from a savepoint.

        Raises:
            SinkError: a sink does not, such as one that has rows behind the savepoint.
        """
        self._start(restored_checkpoint)
        self._is_checked = True

    def restore(self, restored: Completed | None, attempt: str | None) -> None:
        """Make new committers, unless :meth:`check` has, and commit again what a checkpoint has: the last driver may have died.

        Args:
            restored: what the job continues from.
            attempt: name of the attempt that comes next; None without a folder of checkpoints.

        Raises:
            SinkError: a sink cannot be used.
        """
        checkpoint = None if restored is None else restored.for_sinks
        if not self._is_checked or self._checkpoint != checkpoint:
            self._start(checkpoint)
        self._is_checked = False
        for uid, committer in self._committers.items():
            with calling(uid, "the committer", SinkError, HeadgateError):
                # A savepoint of a job that went on has output that this one has committed.
                if restored is not None and restored.number is not None:
                    committer.commit(restored.checkpoint, committables_of(restored.fields, uid))
                committer.abort_unknown([], before=attempt)

    def commit(self, checkpoint: int, fields: Mapping[str, Any]) -> None:
        """Commit the output of a complete checkpoint.

        Raises:
            SinkError: a commit failed; it is repeated after a restart.
        """
        for uid, committer in self._committers.items():
            with calling(uid, "the committer", SinkError, HeadgateError):
                committer.commit(checkpoint, committables_of(fields, uid))

    def _start(self, checkpoint: int | None) -> None:
        self.close()
        self._checkpoint = checkpoint
        for uid, sink in self._sinks.items():
            with calling(uid, "the committer", SinkError, HeadgateError):
                context = CommitterContext(f"{self._name}.{uid}")
                committer = sink.create_committer(context)
                self._committers[uid] = committer
                committer.start(checkpoint)

    def close(self) -> None:
        """Close the committers."""
        committers, self._committers = self._committers, {}
        for uid, committer in committers.items():
            with calling(uid, "the committer", SinkError, HeadgateError):
                committer.close()


def _sinks_of(graph: JobGraph) -> dict[str, Any]:
    """Return the sinks of a job, by uid."""
    sinks: dict[str, Any] = {}
    for stage in graph.stages:
        for node in stage.operators:
            if node.is_sink and node.make is not None:
                operator = node.make()
                if not isinstance(operator, SinkOperator):
                    raise InternalError(f"{node.uid} is no operator of a sink")
                sinks[node.uid] = operator.sink
    return sinks
