"""Where a reader puts its records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

T_contra = TypeVar("T_contra", contravariant=True)


class SourceOutput(ABC, Generic[T_contra]):
    """Takes records of one split, with what is known of their time. All times are ms since 1970."""

    @abstractmethod
    def collect(self, record: T_contra, timestamp: int | None = None) -> None:
        """Emit a record; ``timestamp`` is the source's own, given to the timestamp assigner."""

    @abstractmethod
    def emit_watermark(self, timestamp: int) -> None:
        """Say that no record at or before ``timestamp`` follows; ignored where a strategy does."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Leave this output out of the combined watermark until its next record."""

    @abstractmethod
    def mark_active(self) -> None:
        """Count this output in again."""


class ReaderOutput(SourceOutput[T_contra]):
    """The output of a whole reader; records that belong to no split go to it directly."""

    @abstractmethod
    def create_output_for_split(self, split_id: str) -> SourceOutput[T_contra]:
        """Return the output of a split, the same one until it is released.

        It is to be created when the split is *added*: a split without records yet must hold the
        combined watermark back.
        """

    @abstractmethod
    def release_output_for_split(self, split_id: str) -> None:
        """Forget a split that is finished: it holds no watermark back any more."""
