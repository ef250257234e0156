"""The reader of a source: one per parallel task, polled by one thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.errors import NotBuiltError
from headgate.source.api.split import SourceSplit

if TYPE_CHECKING:
    from headgate.source.api.event import SourceEvent
    from headgate.source.api.output import ReaderOutput

T = TypeVar("T")
SplitT = TypeVar("SplitT", bound=SourceSplit)


class InputStatus(Enum):
    """What :meth:`SourceReader.poll_next` found."""

    MORE_AVAILABLE = auto()
    """Poll again at once."""
    NOTHING_AVAILABLE = auto()
    """Wait for :meth:`SourceReader.is_available` first."""
    END_OF_INPUT = auto()
    """Nothing will ever follow; every further poll says the same."""


class SourceReaderContext(ABC):
    """What a reader may ask of its surroundings; its methods may be called from any thread."""

    @property
    @abstractmethod
    def index_of_subtask(self) -> int:
        """This reader's number, from 0."""

    @property
    @abstractmethod
    def current_parallelism(self) -> int:
        """How many readers there are in all."""

    @property
    @abstractmethod
    def local_host_name(self) -> str:
        """The host it runs on, as split requests name it."""

    @property
    @abstractmethod
    def configuration(self) -> Mapping[str, str]:
        """Options of the job, as texts."""

    @abstractmethod
    def send_split_request(self) -> None:
        """Ask the enumerator for a split; it answers with one, or with no more splits."""

    @abstractmethod
    def send_source_event_to_coordinator(self, event: SourceEvent) -> None:
        """Send an event to the enumerator."""


class SourceReader(ABC, Generic[T, SplitT]):
    """Reads splits; every method is called by one thread, the task's own, and must not block.

    Order: ``start`` once, then ``add_splits``, ``poll_next`` and the others in any order, ``close``.
    """

    @abstractmethod
    def start(self) -> None:
        """Begin; called once, before any split is added."""

    @abstractmethod
    def poll_next(self, output: ReaderOutput[T]) -> InputStatus:
        """Emit the next element, at most one, and say whether to poll again.

        After ``END_OF_INPUT`` it says so for ever. It must never say ``END_OF_INPUT`` before
        :meth:`notify_no_more_splits`.
        """

    @abstractmethod
    def is_available(self) -> Future[None]:
        """Return a future that is done when polling is worth while.

        It may be done without need, but must not stay open when there is data, nor be done all the
        time when there is none.
        """

    @abstractmethod
    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Take splits from the enumerator."""

    @abstractmethod
    def notify_no_more_splits(self) -> None:
        """Learn that no split will ever be added again."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """Return the unfinished splits, each as it stands after the records that were *emitted*.

        What was fetched and not emitted is read again after a restore.
        """

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]
    ) -> None:
        """Stop and continue reading single splits, by their ids, to align watermarks.

        Raises:
            NotBuiltError: this reader cannot.
        """
        raise NotBuiltError(
            f"{type(self).__name__} cannot pause single splits",
            asked=f"pause {list(splits_to_pause)}, resume {list(splits_to_resume)}",
            remedy="implement pause_or_resume_splits() · allow_unaligned_splits=True",
        )

    def handle_source_event(self, event: SourceEvent) -> None:
        """Take an event from the enumerator.

        Raises:
            NotBuiltError: this reader knows no events.
        """
        raise NotBuiltError(f"{type(self).__name__} has no use for event {event.name!r}")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint is stored for good."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint came to nothing."""

    @abstractmethod
    def close(self) -> None:
        """Free everything; may be called twice, and at any moment."""
