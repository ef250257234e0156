"""The checkpoint folder and the commits of a streaming job, in the order in which its coordinator asks for them."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import CheckpointError
from headgate.stream.job.commits import SinkCommits
from headgate.stream.job.metadata import check_restorable, metadata
from headgate.stream.job.store import CheckpointStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.stream.api.graph import JobGraph
    from headgate.stream.job.checkpoints import Complete
    from headgate.stream.job.config import JobConfig
    from headgate.stream.job.store import Completed

_LOG: Final = logging.getLogger("headgate.stream")


class JobFiles:
    """What is done with files and sinks, one after the other on a thread of its own.

    Args:
        graph: the job.
        config: its options.
        store: keeps checkpoints; None if there are none.

    Attributes:
        completed: id of the last checkpoint that is complete.
    """

    def __init__(self, graph: JobGraph, config: JobConfig, store: CheckpointStore | None) -> None:
        self.completed = 0
        self._graph, self._config, self._store = graph, config, store
        self._commits = SinkCommits(graph, config.name)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headgate-checkpoints")

    def claim(self) -> None:
        """Become the driver of the folder, and check what the job is to continue from.

        Raises:
            CheckpointError: the folder or the savepoint cannot be used.
        """
        if self._store is not None:
            found = self._store.claim()
            if found is not None:
                self._check(found)
        if self._config.savepoint is not None:
            self._check(CheckpointStore.savepoint(self._config.savepoint))

    def submit(self, work: Callable[[], None]) -> None:
        """Have work done on the thread."""
        self._thread.submit(work)

    def close(self) -> None:
        """Wait for all work, and close the committers."""
        self._thread.shutdown()
        self._commits.close()

    # On the thread.

    def restore(self) -> Completed | None:
        """Return what to continue from, with its output committed.

        Raises:
            CheckpointError: it cannot be used, or another driver has the folder.
            SinkError: a sink cannot be used.
        """
        found = None
        if self._store is not None:
            self._store.check_owner()
            found = self._store.latest()
        if found is None and self._config.savepoint is not None:
            found = CheckpointStore.savepoint(self._config.savepoint)
        if found is not None:
            self._check(found)
        self._commits.restore(found)
        self.completed = 0 if found is None else found.checkpoint
        return found

    def complete(self, effect: Complete, enumerators: Mapping[str, str], attempt: str) -> str:
        """Write the metadata of a checkpoint or savepoint, and commit the output of a checkpoint.

        Args:
            effect: what all tasks acknowledged.
            enumerators: state of each source's enumerator.
            attempt: name of the attempt.

        Returns:
            Why the savepoint of a job that goes on cannot be written; empty if it is complete. Such a job goes on, whatever
            becomes of the savepoint.

        Raises:
            CheckpointError: it cannot be written, or another driver has the folder.
            SinkError: a commit failed.
        """
        checkpoint, trigger = effect.checkpoint, effect.trigger
        base = trigger.savepoint or ("" if self._store is None else self._store.uri)
        fields: dict[str, Any] = metadata(
            self._graph, checkpoint, effect.states, enumerators, self.completed, base
        )
        if trigger.savepoint is not None:
            try:
                CheckpointStore.write_savepoint(trigger.savepoint, fields)
            except CheckpointError as error:
                if trigger.stop:
                    raise
                return error.summary
            if not trigger.stop:
                return ""
        if self._store is not None:
            entry = fields
            if trigger.savepoint is not None:
                entry = {"checkpoint": checkpoint, "savepoint": trigger.savepoint}
            self._store.complete(entry)
        self._commits.commit(checkpoint, fields)
        self.completed = checkpoint
        self._delete_old(attempt)
        return ""

    def _delete_old(self, attempt: str) -> None:
        if self._store is None:
            return
        try:
            self._store.delete_old(attempt)
        except CheckpointError as error:
            # The checkpoint is complete. What is left is deleted after the next one.
            _LOG.warning("old checkpoints were not deleted: %s", error.summary)

    def _check(self, found: Completed) -> None:
        check_restorable(self._graph, found.fields, allow_dropped=self._config.allow_dropped_state)
