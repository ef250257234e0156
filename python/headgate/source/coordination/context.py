"""The coordinator's side of an enumerator's context, with the state of its readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from headgate.errors import HeadgateError, SourceError
from headgate.source.api.enumerator import ReaderInfo, SplitEnumeratorContext
from headgate.source.api.split import SourceSplit
from headgate.source.coordination.assignment import SplitAssignmentTracker
from headgate.source.runtime.context import check_event

if TYPE_CHECKING:
    from headgate.source.api.event import SourceEvent
    from headgate.source.api.source import Source
    from headgate.source.coordination.thread import Action, Cancellable, EnumeratorExecutor

SplitT = TypeVar("SplitT", bound=SourceSplit)
WorkT = TypeVar("WorkT")


class Gateway(Protocol):
    """Sends messages to the readers. The coordinator's thread calls it, so no method may block."""

    def assign(self, subtask: int, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        """Assign splits to a reader: their ids, and their bytes in a version of the serializer."""

    def no_more_splits(self, subtask: int) -> None:
        """Tell a reader that no split follows."""

    def event(self, subtask: int, event: SourceEvent) -> None:
        """Send an event to a reader."""

    def align(self, subtask: int, max_allowed_ms: int) -> None:
        """Send a reader the limit of its watermark."""

    def failed(self, error: HeadgateError) -> None:
        """End the job, because the enumerator failed. Called once, and no other call follows."""


class CoordinatorContext(SplitEnumeratorContext[SplitT], Generic[SplitT]):
    """Readers, their splits and the asynchronous calls of one enumerator.

    Args:
        source: the source of the enumerator.
        parallelism: the number of readers.
        gateway: sends messages to the readers.
        executor: runs the enumerator.
        run: runs a callback, with its name for errors; drops it if ``is_over()``.
        is_over: returns True once the enumerator was closed or has failed.
        skip_delays: True to run at once the work that ``start()`` delays, for a plan.
        has_watermarks: True if the readers make watermarks.

    Attributes:
        is_starting: True until the enumerator's ``start()`` has returned.
        tracker: the assigned splits since the last complete checkpoint.
        readers: the registered readers, by their numbers.
        told_no_more: the readers that were told that no split follows.
        is_processing_backlog: True while readers catch up on old data.
    """

    def __init__(
        self,
        source: Source[Any, SplitT, Any],
        parallelism: int,
        gateway: Gateway,
        executor: EnumeratorExecutor,
        *,
        run: Callable[[str, Callable[[], None]], None],
        is_over: Callable[[], bool],
        skip_delays: bool = False,
        has_watermarks: bool = False,
    ) -> None:
        self._source = source
        self._parallelism = parallelism
        self._gateway = gateway
        self._executor = executor
        self._run = run
        self._is_over = is_over
        self._skip_delays = skip_delays
        self._has_watermarks = has_watermarks
        self._timers: set[Cancellable] = set()
        self.is_starting = True
        self.tracker: SplitAssignmentTracker[SplitT] = SplitAssignmentTracker()
        self.readers: dict[int, ReaderInfo] = {}
        self.told_no_more: set[int] = set()
        self.is_processing_backlog = False

    @property
    def current_parallelism(self) -> int:
        """The number of readers."""
        return self._parallelism

    @property
    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        """The readers that are registered now."""
        return MappingProxyType(self.readers)

    @property
    def has_watermarks(self) -> bool:
        """True if the readers make watermarks of their rows."""
        return self._has_watermarks

    def assign_splits(self, assignment: Mapping[int, Sequence[SplitT]]) -> None:
        """Assign splits to readers: all of them or, if there is an error, none."""
        if self._is_silent("assign_splits"):
            return
        for subtask in assignment:
            self._check_registered(subtask)
            if subtask in self.told_no_more:
                raise ValueError(
                    f"reader {subtask} was told that no more splits come: nothing is assigned"
                )
        serializer = self._source.split_serializer
        version = serializer.version
        written = {
            subtask: [(split.split_id, serializer.serialize(split)) for split in splits]
            for subtask, splits in assignment.items()
        }
        self.tracker.record(assignment)
        for subtask, parts in written.items():
            if parts:
                self._gateway.assign(subtask, version, parts)

    def signal_no_more_splits(self, subtask_id: int) -> None:
        """Tell a reader that no split follows."""
        if self._is_silent("signal_no_more_splits"):
            return
        self._check_registered(subtask_id)
        if subtask_id not in self.told_no_more:
            self.told_no_more.add(subtask_id)
            self._gateway.no_more_splits(subtask_id)

    def send_event_to_source_reader(self, subtask_id: int, event: SourceEvent) -> None:
        """Send an event to a reader."""
        if self._is_silent("send_event_to_source_reader"):
            return
        self._check_registered(subtask_id)
        check_event(event)
        self._gateway.event(subtask_id, event)

    def call_async(
        self,
        work: Callable[[], WorkT],
        handler: Callable[[WorkT | None, BaseException | None], None],
        initial_delay: float = 0.0,
        period: float | None = None,
    ) -> None:
        """Run ``work`` on the pool and ``handler`` on this thread, once or periodically."""
        if self._is_silent("call_async"):
            return
        is_running = False

        def guarded() -> WorkT | None:
            return None if self._is_over() else work()

        def handle(result: WorkT | None, error: BaseException | None) -> None:
            nonlocal is_running
            is_running = False
            self._run("the handler of call_async", lambda: handler(result, error))

        def fire() -> None:
            nonlocal is_running
            if not is_running:
                is_running = True
                self._executor.submit(guarded, handle)

        delay = 0.0 if self._skip_delays and self.is_starting else max(0.0, initial_delay)
        if period is not None:
            self.every(delay, period, fire)
        elif delay:
            self._later(delay, fire)
        else:
            fire()

    def run_in_coordinator_thread(self, action: Callable[[], None]) -> None:
        """Run an action on the coordinator's thread; may be called from any thread."""
        self._executor.execute(lambda: self._run("run_in_coordinator_thread", action))

    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        """Set the flag that readers catch up on old data."""
        self.is_processing_backlog = is_processing_backlog

    def every(self, delay: float, period: float, action: Action) -> None:
        """Run an action after a delay in seconds and then periodically, until the coordinator is closed or fails.

        Raises:
            ValueError: the period is not positive.
        """
        if not period > 0:
            raise ValueError(f"period={period}: a period is a number of seconds greater than 0")

        def act() -> None:
            self._later(period, act)
            action()

        self._later(delay, act)

    def _later(self, delay: float, action: Action) -> None:
        def act() -> None:
            self._timers.discard(timer)
            if not self._is_over():
                action()

        timer = self._executor.call_later(delay, act)
        self._timers.add(timer)

    def close(self) -> None:
        """Cancel all timers, and forget the coordinator, which refers to this object. Calls have no effect any more."""
        self.cancel_timers()
        self._is_over = lambda: True
        self._run = lambda _callback, _action: None

    def cancel_timers(self) -> None:
        """Cancel all periodic and delayed calls."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _is_silent(self, method: str) -> bool:
        if self._is_over():
            return True
        if not self._executor.is_current:
            raise SourceError(
                f"the enumerator of {self._source.name} called {method}() on a thread of its own",
                remedy="context.run_in_coordinator_thread(action) · context.call_async()",
            )
        return False

    def _check_registered(self, subtask: int) -> None:
        if subtask not in self.readers:
            raise ValueError(
                f"reader {subtask} is not registered (registered: {sorted(self.readers)})"
            )
