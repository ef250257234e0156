"""The enumerator of a source: one per job, on the coordinator's only thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.errors import NotBuiltError
from headgate.source.api.split import SourceSplit

if TYPE_CHECKING:
    from headgate.source.api.event import SourceEvent

SplitT = TypeVar("SplitT", bound=SourceSplit)
CheckpointT = TypeVar("CheckpointT")
WorkT = TypeVar("WorkT")


@dataclass(frozen=True, slots=True)
class ReaderInfo:
    """A reader that has registered.

    Attributes:
        subtask_id: its number, from 0.
        location: the host it runs on.
    """

    subtask_id: int
    location: str


class SplitEnumeratorContext(ABC, Generic[SplitT]):
    """An enumerator's view of the coordinator; called on the coordinator's thread only."""

    @property
    @abstractmethod
    def current_parallelism(self) -> int:
        """The number of readers of the job; on Spark not all of them run at the same time."""

    @property
    @abstractmethod
    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        """The readers that are registered now, by their numbers."""

    @property
    def has_watermarks(self) -> bool:
        """True if the readers make watermarks of their rows, so that the order of the splits matters."""
        return False

    @abstractmethod
    def assign_splits(self, assignment: Mapping[int, Sequence[SplitT]]) -> None:
        """Give splits to readers, by their numbers.

        Raises:
            ValueError: a reader is not registered. Nothing is assigned then.
        """

    def assign_split(self, split: SplitT, subtask_id: int) -> None:
        """Give one split to one reader."""
        self.assign_splits({subtask_id: [split]})

    @abstractmethod
    def signal_no_more_splits(self, subtask_id: int) -> None:
        """Tell a reader that it gets no further split; its later requests are ignored."""

    @abstractmethod
    def send_event_to_source_reader(self, subtask_id: int, event: SourceEvent) -> None:
        """Send an event to a reader."""

    @abstractmethod
    def call_async(
        self,
        work: Callable[[], WorkT],
        handler: Callable[[WorkT | None, BaseException | None], None],
        initial_delay: float = 0.0,
        period: float | None = None,
    ) -> None:
        """Run ``work`` on a pool and ``handler(result, error)`` on the coordinator's thread.

        Args:
            work: may block, for example list a folder or ask a broker.
            handler: gets the result or the exception; the other one is None.
            initial_delay: seconds before the first run.
            period: seconds between two runs; None to run once. A run is skipped while the
                previous one has not ended.
        """

    @abstractmethod
    def run_in_coordinator_thread(self, action: Callable[[], None]) -> None:
        """Run an action on the coordinator's thread; may be called from any thread."""

    @abstractmethod
    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        """Set to True while readers catch up on old data, for which latency does not matter."""


class SplitEnumerator(ABC, Generic[SplitT, CheckpointT]):
    """Finds splits and assigns them to readers on request.

    Every method is called on one thread, which all enumerators share. Work that may block belongs
    into ``context.call_async``. An exception ends the job.
    """

    @abstractmethod
    def start(self) -> None:
        """Start; called once, before any other method."""

    @abstractmethod
    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """Answer a reader's request, now or later: assign a split or signal no more splits."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[SplitT], subtask_id: int) -> None:
        """Take back the splits assigned to a lost reader since the last complete checkpoint."""

    @abstractmethod
    def add_reader(self, subtask_id: int) -> None:
        """Handle the registration of a reader."""

    def handle_source_event(self, subtask_id: int, event: SourceEvent) -> None:
        """Handle an event from a reader.

        Raises:
            NotBuiltError: this enumerator takes no events.
        """
        raise NotBuiltError(
            f"{type(self).__name__} has no use for event {event.name!r} of reader {subtask_id}"
        )

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> CheckpointT:
        """Return the state, without the splits that are assigned to readers."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Handle the abort of a checkpoint."""

    @property
    def total_splits(self) -> int | None:
        """The number of splits of the job, for progress reports; None if it is not known."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Release all resources; may be called twice."""
