"""The blocking part of a source, which runs in a fetcher's thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.errors import NotBuiltError
from headgate.source.api.split import SourceSplit

if TYPE_CHECKING:
    from headgate.source.base.records import RecordsWithSplitIds

E = TypeVar("E")
SplitT = TypeVar("SplitT", bound=SourceSplit)


@dataclass(frozen=True, slots=True)
class SplitsChange(Generic[SplitT]):
    """A change of the splits that a split reader reads.

    Attributes:
        splits: the splits that are added or removed.
    """

    splits: tuple[SplitT, ...]


class SplitsAddition(SplitsChange[SplitT]):
    """Splits to read, each from its own position."""


class SplitsRemoval(SplitsChange[SplitT]):
    """Splits to stop reading."""


class SplitReader(ABC, Generic[E, SplitT]):
    """Reads one or more splits; all methods but :meth:`wake_up` are called by one thread."""

    @abstractmethod
    def fetch(self) -> RecordsWithSplitIds[E]:
        """Return the next records; may block until there are some.

        Called only while the fetcher has unfinished splits and is not paused. After a wake-up it
        returns soon, with the records it has or with none, and must not lose any that it has read.
        An exception ends the reader.
        """

    @abstractmethod
    def handle_splits_changes(self, change: SplitsChange[SplitT]) -> None:
        """Handle a :class:`SplitsAddition` or a :class:`SplitsRemoval`; must not block.

        A removed split may already have ended in a fetched batch that is not in the queue yet.
        """

    @abstractmethod
    def wake_up(self) -> None:
        """Make :meth:`fetch` return; called by other threads, at any moment, even after close.

        A wake-up while no ``fetch()`` runs applies to the next one, which may be about to block.
        To get this, let ``fetch()`` wait for an event and clear the event when it returns.
        """

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[SplitT], splits_to_resume: Sequence[SplitT]
    ) -> None:
        """Pause and resume single splits.

        Raises:
            NotBuiltError: this split reader cannot pause single splits.
        """
        raise cannot_pause_splits(
            type(self).__name__,
            [split.split_id for split in splits_to_pause],
            [split.split_id for split in splits_to_resume],
        )

    @abstractmethod
    def close(self) -> None:
        """Release all resources; called once, while no fetch runs."""


def cannot_pause_splits(
    reader: str, to_pause: Sequence[str], to_resume: Sequence[str]
) -> NotBuiltError:
    """Return the error for a split reader without ``pause_or_resume_splits``."""
    return NotBuiltError(
        f"{reader} cannot pause single splits",
        asked=f"pause {list(to_pause)}, resume {list(to_resume)}",
        remedy="implement pause_or_resume_splits() · "
        "with_watermark_alignment(..., allow_unaligned_splits=True)",
    )
