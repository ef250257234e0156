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
    """The result of :meth:`SourceReader.poll_next`."""

    MORE_AVAILABLE = auto()
    """Poll again at once."""
    NOTHING_AVAILABLE = auto()
    """Wait for :meth:`SourceReader.is_available` before the next poll."""
    END_OF_INPUT = auto()
    """No record will ever follow; every further poll returns the same."""


class SourceReaderContext(ABC):
    """A reader's view of the task that runs it; its methods may be called from any thread."""

    @property
    @abstractmethod
    def index_of_subtask(self) -> int:
        """This reader's number, from 0."""

    @property
    @abstractmethod
    def current_parallelism(self) -> int:
        """The number of readers of the job."""

    @property
    @abstractmethod
    def local_host_name(self) -> str:
        """The host that the reader runs on, as split requests name it."""

    @property
    @abstractmethod
    def configuration(self) -> Mapping[str, str]:
        """Options of the job, as strings."""

    @abstractmethod
    def send_split_request(self) -> None:
        """Request a split; the enumerator answers with one or with no more splits."""

    @abstractmethod
    def send_source_event_to_coordinator(self, event: SourceEvent) -> None:
        """Send an event to the enumerator."""


class SourceReader(ABC, Generic[T, SplitT]):
    """Reads splits. The task's thread calls every method, and no method may block.

    Call order: ``start`` once, then ``add_splits``, ``poll_next`` and the others in any order,
    then ``close``.
    """

    @property
    def reads_in_order(self) -> bool:
        """True if splits are read one after another, in the order of their arrival.

        Those that wait for the one before them do not count as idle.
        """
        return False

    @abstractmethod
    def start(self) -> None:
        """Start; called once, before any split is added."""

    @abstractmethod
    def poll_next(self, output: ReaderOutput[T]) -> InputStatus:
        """Emit at most one element and return when to poll again.

        Once it has returned ``END_OF_INPUT``, it always does. It must not return ``END_OF_INPUT``
        before :meth:`notify_no_more_splits`.
        """

    @abstractmethod
    def is_available(self) -> Future[None]:
        """Return a future that completes when the reader may have data.

        A spurious completion is allowed. The future must not stay pending while there is data, and
        must not always be complete while there is none.
        """

    @abstractmethod
    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Add splits that the enumerator assigned."""

    @abstractmethod
    def notify_no_more_splits(self) -> None:
        """Handle the enumerator's signal that no split will be added any more."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """Return the unfinished splits, each at its position after the last *emitted* record.

        Records that were fetched but not emitted are read again after a restore.
        """

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]
    ) -> None:
        """Pause and resume single splits, by their ids, to align watermarks.

        Raises:
            NotBuiltError: this reader cannot pause single splits.
        """
        raise NotBuiltError(
            f"{type(self).__name__} cannot pause single splits",
            asked=f"pause {list(splits_to_pause)}, resume {list(splits_to_resume)}",
            remedy="implement pause_or_resume_splits() · "
            "with_watermark_alignment(..., allow_unaligned_splits=True)",
        )

    def handle_source_event(self, event: SourceEvent) -> None:
        """Handle an event from the enumerator.

        Raises:
            NotBuiltError: this reader takes no events.
        """
        raise NotBuiltError(f"{type(self).__name__} has no use for event {event.name!r}")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Handle the abort of a checkpoint."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; may be called twice, and at any moment."""
