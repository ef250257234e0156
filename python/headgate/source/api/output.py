"""The outputs that a reader emits its records to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

T_contra = TypeVar("T_contra", contravariant=True)


class SourceOutput(ABC, Generic[T_contra]):
    """Takes the records of one split and their timestamps, in ms since 1970."""

    @abstractmethod
    def collect(self, record: T_contra, timestamp: int | None = None) -> None:
        """Emit a record; ``timestamp`` comes from the source and goes to the timestamp assigner."""

    @abstractmethod
    def emit_watermark(self, timestamp: int) -> None:
        """Promise that no record at or before ``timestamp`` follows.

        Ignored if the job's watermark strategy makes the watermarks.
        """

    @abstractmethod
    def mark_idle(self) -> None:
        """Exclude this output from the combined watermark until its next record."""

    @abstractmethod
    def mark_active(self) -> None:
        """Include this output in the combined watermark again."""


class ReaderOutput(SourceOutput[T_contra]):
    """The output of a whole reader; takes records that belong to no split directly."""

    @abstractmethod
    def create_output_for_split(self, split_id: str) -> SourceOutput[T_contra]:
        """Return the output of a split, the same one until it is released.

        Create it when the split is *added*: a split holds the combined watermark back even before
        its first record.
        """

    @abstractmethod
    def release_output_for_split(self, split_id: str) -> None:
        """Release the output of a finished split, which no longer holds the watermark back."""
