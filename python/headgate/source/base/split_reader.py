"""The part of a source that does the blocking I/O, in a fetcher's thread."""

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
        splits: the splits that the change is about.
    """

    splits: tuple[SplitT, ...]


class SplitsAddition(SplitsChange[SplitT]):
    """Splits to read, each from the position that it carries."""


class SplitsRemoval(SplitsChange[SplitT]):
    """Splits to read no further."""


class SplitReader(ABC, Generic[E, SplitT]):
    """Reads one or more splits; all methods but :meth:`wake_up` are called by one thread."""

    @abstractmethod
    def fetch(self) -> RecordsWithSplitIds[E]:
        """Return the next records; may block until there are some.

        It is called only while there are splits that are neither finished nor all paused by pausing
        the fetcher. After a wake-up it returns soon, with what it has, or with nothing; it must not
        lose what it read. What it raises ends the reader.
        """

    @abstractmethod
    def handle_splits_changes(self, change: SplitsChange[SplitT]) -> None:
        """Take a :class:`SplitsAddition` or a :class:`SplitsRemoval`; must not block.

        A removed split may have ended in a batch that was fetched and is not in the queue yet.
        """

    @abstractmethod
    def wake_up(self) -> None:
        """Make :meth:`fetch` return; called by other threads, at any moment, even after close.

        A wake-up that comes when no ``fetch()`` runs holds for the next one: it may be about to
        block. An event that ``fetch()`` waits for, and clears when it returns, does that.
        """

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[SplitT], splits_to_resume: Sequence[SplitT]
    ) -> None:
        """Stop and continue reading single splits.

        Raises:
            NotBuiltError: this split reader cannot.
        """
        raise cannot_pause_splits(
            type(self).__name__,
            [split.split_id for split in splits_to_pause],
            [split.split_id for split in splits_to_resume],
        )

    @abstractmethod
    def close(self) -> None:
        """Free everything; called once, when no fetch runs."""


def cannot_pause_splits(
    reader: str, to_pause: Sequence[str], to_resume: Sequence[str]
) -> NotBuiltError:
    """Return the error of a split reader without ``pause_or_resume_splits``, by ids of splits."""
    return NotBuiltError(
        f"{reader} cannot pause single splits",
        asked=f"pause {list(to_pause)}, resume {list(to_resume)}",
        remedy="implement pause_or_resume_splits() · allow_unaligned_splits=True",
    )
