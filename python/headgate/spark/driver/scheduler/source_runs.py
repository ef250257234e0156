"""The enumerator of one epoch of a run: between the coordinator's thread and the thread of all enumerators.

Neither thread waits for the other: messages of readers are posted to the enumerators' thread, and
messages of an enumerator are posted to the coordinator's.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from headgate.control.cause import Cause
from headgate.errors import SourceError
from headgate.source.coordination import SourceCoordinator
from headgate.spark.wire.source_messages import assignments, event_fields, event_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.errors import HeadgateError
    from headgate.source import SourceEvent
    from headgate.source.coordination import CoordinatorThread
    from headgate.spark.driver.runs.run import Run
    from headgate.spark.tasks.task import SourcePlan


class SourceRun:
    """A new enumerator for one epoch of a run. All methods belong to the coordinator's thread; none blocks.

    Args:
        plan: the source.
        run: the run of the readers.
        thread: the thread of all enumerators.
        post: runs an action in the coordinator's thread.
    """

    def __init__(
        self,
        plan: SourcePlan,
        run: Run,
        thread: CoordinatorThread,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self.name = plan.name
        self._thread = thread
        self._gateway = _Gateway(self.name, run, post)
        self._coordinator: SourceCoordinator[Any, Any] = SourceCoordinator(
            plan.source, plan.parallelism, self._gateway, thread, watermarks=plan.watermarks
        )

    @property
    def total_splits(self) -> int | None:
        """The number of splits, if it is known."""
        return self._coordinator.total_splits

    def start(self) -> None:
        """Create and start the enumerator."""
        self._coordinator.start()

    def register(self, subtask: int, attempt: int, host: str) -> None:
        """Register a reader; messages of the enumerator go to this attempt from now on."""
        self._thread.execute(lambda: self._gateway.stands_for(subtask, attempt))
        self._coordinator.register_reader(subtask, host)

    def lost(self, subtask: int) -> None:
        """Give the splits of a lost reader back to the enumerator."""
        self._coordinator.reader_lost(subtask)

    def request(self, subtask: int, host: str) -> None:
        """Pass on a request for a split."""
        self._coordinator.request_split(subtask, host)

    def finished(self, subtask: int, ids: list[str]) -> None:
        """Pass on splits that were read to their end."""
        self._coordinator.splits_finished(subtask, ids)

    def event(self, subtask: int, fields: dict[str, Any]) -> None:
        """Pass on a reader's event."""
        self._coordinator.source_event(subtask, event_of(fields))

    def watermark(self, subtask: int, ms: int) -> None:
        """Pass on a reader's watermark."""
        self._coordinator.report_watermark(subtask, ms)

    def close(self) -> None:
        """Close the enumerator without waiting for it."""
        self._coordinator.close(timeout=0)


class _Gateway:
    """Carries messages of an enumerator to readers; called in the enumerators' thread."""

    def __init__(self, source: str, run: Run, post: Callable[[Callable[[], None]], None]) -> None:
        self._source = source
        self._run = run
        self._post = post
        # Reader -> task attempt that the enumerator knows of.
        self._attempts: dict[int, int] = {}

    def stands_for(self, subtask: int, attempt: int) -> None:
        self._attempts[subtask] = attempt

    def assign(self, subtask: int, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        try:
            messages = list(assignments(self._source, version, splits))
        except SourceError as error:
            self.failed(error)  # an enumerator that catches it must not lose splits
            raise
        for fields in messages:
            self._tell(subtask, "ASSIGN", fields)

    def no_more_splits(self, subtask: int) -> None:
        self._tell(subtask, "NO_MORE_SPLITS", {})

    def event(self, subtask: int, event: SourceEvent) -> None:
        self._tell(subtask, "SOURCE_EVENT", event_fields(self._source, event))

    def align(self, subtask: int, max_allowed_ms: int) -> None:
        self._tell(subtask, "ALIGN", {"ms": max_allowed_ms})

    def failed(self, error: HeadgateError) -> None:
        text = error.cause_text
        if not text and error.__cause__ is not None:
            text = "".join(traceback.format_exception(error.__cause__)).rstrip("\n")
        where = f"enumerator of source {self._source!r} on the driver"
        cause = Cause.of(error, text=text, where=where)
        self._post(lambda: self._run.fail(cause))

    def _tell(self, subtask: int, kind: str, fields: dict[str, Any]) -> None:
        attempt = self._attempts.get(subtask, -1)

        def tell() -> None:
            if self._run.readers is not None:
                self._run.readers.tell(subtask, attempt, kind, fields)

        self._post(tell)
