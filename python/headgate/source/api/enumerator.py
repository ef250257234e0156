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
    """What an enumerator may ask of the coordinator; called on the coordinator's thread only."""

    @property
    @abstractmethod
    def current_parallelism(self) -> int:
        """How many readers there will be; on Spark not all of them at the same time."""

    @property
    @abstractmethod
    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        """The readers that are there now, by their numbers."""

    @abstractmethod
    def assign_splits(self, assignment: Mapping[int, Sequence[SplitT]]) -> None:
        """Give splits to readers, by their numbers.

        Raises:
            ValueError: a reader that is not registered; then nothing is assigned.
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
            work: may block: list a folder, ask a broker.
            handler: gets the result, or the exception.
            initial_delay: seconds before the first time.
            period: seconds between two times; None for once. A time is left out while the one
                before still runs.
        """

    @abstractmethod
    def run_in_coordinator_thread(self, action: Callable[[], None]) -> None:
        """Run an action on the coordinator's thread; may be called from any thread."""

    @abstractmethod
    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        """Say whether what is read now is old, so that latency does not matter."""


class SplitEnumerator(ABC, Generic[SplitT, CheckpointT]):
    """Finds splits and gives them to readers, on request.

    Every method is called on one thread, shared by all enumerators: what may block belongs into
    ``context.call_async``. An exception ends the job.
    """

    @abstractmethod
    def start(self) -> None:
        """Begin; called once, before anything else."""

    @abstractmethod
    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """Answer a reader that wants a split: now or later, with splits or with no more splits."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[SplitT], subtask_id: int) -> None:
        """Take back what a lost reader had been given since the last complete checkpoint."""

    @abstractmethod
    def add_reader(self, subtask_id: int) -> None:
        """Learn of a reader that has registered."""

    def handle_source_event(self, subtask_id: int, event: SourceEvent) -> None:
        """Take an event from a reader.

        Raises:
            NotBuiltError: this enumerator knows no events.
        """
        raise NotBuiltError(
            f"{type(self).__name__} has no use for event {event.name!r} of reader {subtask_id}"
        )

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> CheckpointT:
        """Return the state; splits that readers hold are not in it."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint is stored for good."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint came to nothing."""

    @property
    def total_splits(self) -> int | None:
        """How many splits there are in all, for progress; None while or where it is not known."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Free everything; may be called twice."""
