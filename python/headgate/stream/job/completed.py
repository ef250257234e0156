"""The complete checkpoints of a job: which one it continues from, and what is written and committed for a new one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import CheckpointError, OptionError
from headgate.stream.job.commits import SinkCommits
from headgate.stream.job.metadata import metadata, names
from headgate.stream.job.restoring import check_has_state, check_restorable
from headgate.stream.job.store import CheckpointStore, Completed, NotWrittenError
from headgate.stream.state.locations import below

if TYPE_CHECKING:
    from headgate.stream.graph.stages import JobGraph
    from headgate.stream.job.checkpoints import Complete
    from headgate.stream.job.config import JobConfig
    from headgate.stream.job.notices import Notices
    from headgate.stream.job.stop import Stop

_LOG: Final = logging.getLogger("headgate.stream")
#: Folder of rows in flight, beside those of operators.
_IN_FLIGHT: Final = "rows in flight"


class CompletedCheckpoints:
    """The complete checkpoints of a job, and the output that they commit. Used by the thread of files.

    Args:
        graph: the job.
        config: its options.
        store: keeps checkpoints; None if there are none.
        stop: how the job is to end.
        notices: for the user.

    Attributes:
        last: id of the last one.
        can_restore: True if a failed job can continue.
    """

    def __init__(
        self,
        graph: JobGraph,
        config: JobConfig,
        store: CheckpointStore | None,
        stop: Stop,
        notices: Notices,
    ) -> None:
        self.last = 0
        self.can_restore = store is not None
        self._graph = graph
        self._config = config
        self._store = store
        self._stop = stop
        self._notices = notices
        self._commits = SinkCommits(graph, config.name)
        sources = {uid: source.name for uid, source in graph.sources.items()}
        self._names = sources | self._commits.names | {"name=": config.name}

    def claim(self) -> None:
        """Become the driver of the checkpoint folder; called before all others, on any thread.

        Raises:
            CheckpointError: there is a checkpoint or savepoint that the job cannot continue from.
            OptionError: there are both, and the job does not say from which to continue.
            StreamError: a source would read what a sink writes.
            SinkError: a sink refuses a job that starts for the first time.
        """
        self._commits.check_new_files()
        store, savepoint, restore = self._store, self._config.savepoint, self._config.restore
        if savepoint is not None:
            newest = None if store is None else store.newest()
            if store is not None and newest is not None and restore is None:
                raise OptionError(
                    f"savepoint={savepoint!r} is not where the job would start: {store.uri} has checkpoint {newest}",
                    remedy='restore="latest" for the checkpoint · restore="savepoint" for the savepoint · '
                    "another folder for checkpoint=",
                )
            if newest is None or restore == "savepoint":
                # Before the claim, which may be that none of the checkpoints counts any more.
                started = CheckpointStore.savepoint(savepoint)
                self._check(started)
                self._commits.check(started.for_sinks)
        is_anew = savepoint is not None and restore == "savepoint"
        restored = None if store is None else store.claim(anew=is_anew)
        if restored is None and savepoint is None:
            self._commits.check(None)
        if store is not None and restored is not None:
            self._check_names(restored, store.uri)
            self._check(restored)
            check_has_state(
                self._graph,
                restored.fields,
                store.uri,
                allow_dropped=self._config.allow_dropped_state,
            )
            for source in self._graph.sources.values() if self._graph.ends_open else ():
                if source.until_now() is source:
                    self._notices.add(
                        f"{source.name} ends by itself: what an earlier run has read of it is all that is read"
                    )
            if restored.fields.get("has_ended") and self._graph.is_bounded:
                self._notices.add(
                    f"an earlier run has read all rows of its sources, as the checkpoint in {store.uri} says:"
                    ' nothing is left to do. until="now" in each run reads what is new · an empty folder starts over'
                )

    def read(self, attempt: int) -> Completed | None:
        """Return the checkpoint that an attempt continues from, when all that it has is committed."""
        restored = None if self._store is None else self._store.latest()
        if restored is None and self._config.savepoint is not None:
            restored = CheckpointStore.savepoint(self._config.savepoint)
        if restored is not None:
            self._check(restored)
        self._commits.restore(restored, None if self._store is None else self.name(attempt))
        self.last = 0 if restored is None else restored.checkpoint
        return restored

    def write(
        self, attempt: str, effect: Complete, enumerators: Mapping[str, str], *, has_ended: bool
    ) -> str | None:
        """Write a checkpoint and commit; return None, or why the checkpoint is to be given up."""
        checkpoint, trigger = effect.checkpoint, effect.trigger
        base = trigger.savepoint or ("" if self._store is None else self._store.uri)
        fields = metadata(self._graph, checkpoint, effect.states, enumerators, self.last, base)
        fields |= {"has_ended": has_ended, "sinks": self._commits.names, "name": self._config.name}
        entry = fields
        if trigger.savepoint is not None:
            is_own = trigger.stop and trigger.savepoint == self._stop.written
            try:
                CheckpointStore.write_savepoint(trigger.savepoint, fields, replace=is_own)
            except CheckpointError as error:
                return error.summary
            if not trigger.stop:
                return None
            self._stop.written = trigger.savepoint
            entry = {"checkpoint": checkpoint, "savepoint": trigger.savepoint}
        if trigger.stop:
            self._stop.checkpoint = checkpoint
        try:
            if self._store is not None:
                self._store.complete(entry)
        except NotWrittenError as error:
            # A savepoint that is there cannot be given up: the next attempt writes its entry.
            if trigger.savepoint is not None:
                raise
            return error.summary
        self._commits.commit(checkpoint, fields)
        self.last = checkpoint
        self._delete_old(attempt)
        return None

    def folders(self, attempt: str, stage: int, index: int) -> dict[str, Any]:
        """Return where a task writes its snapshots and its rows in flight."""
        store = self._store
        if store is None:
            return {"folders": {}, "channels": None}
        uids = [node.uid for node in self._graph.stages[stage].operators]
        folders = {
            uid: below(store.uri, store.task_folder(attempt, stage, index, uid))
            for uid in (*uids, _IN_FLIGHT)
        }
        return {"channels": folders.pop(_IN_FLIGHT), "folders": folders}

    def name(self, attempt: int) -> str:
        """Return the name of an attempt, which no other driver's has."""
        return f"attempt-{attempt}" if self._store is None else self._store.attempt(attempt)

    def close(self) -> None:
        """Close the committers."""
        self._commits.close()

    def _check_names(self, restored: Completed, folder: str) -> None:
        """Check that a checkpoint is of this job, by what the job reads and writes.

        Raises:
            CheckpointError: it is not, and ``restore="latest"`` does not say that this is meant.
        """
        now = self._names
        before = names(restored.fields)
        for uid in sorted(now.keys() & before.keys()):
            if now[uid] == before[uid]:
                continue
            summary = f"{folder} has checkpoints of a job whose {uid} was {before[uid]}, and is {now[uid]} now"
            if self._config.restore != "latest":
                raise CheckpointError(
                    summary,
                    asked=f"checkpoint={folder!r}",
                    have="rows that the other job has read or written count as done by this one",
                    remedy="a folder of its own for checkpoint= · "
                    'restore="latest" if this is the same job, with its data in another place',
                )
            self._notices.add(f"{summary}, as restore='latest' allows", logging.WARNING)

    def _check(self, restored: Completed) -> None:
        check_restorable(
            self._graph, restored.fields, allow_dropped=self._config.allow_dropped_state
        )

    def _delete_old(self, attempt: str) -> None:
        if self._store is None:
            return
        try:
            self._store.delete_old(attempt)
        except CheckpointError as error:
            # The checkpoint is complete. What is left is deleted after the next one.
            _LOG.warning("old checkpoints were not deleted: %s", error.summary)
