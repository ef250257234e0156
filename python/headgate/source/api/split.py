"""A split: a part of a source that one reader reads at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod


class SourceSplit(ABC):
    """A part of a source: a file's row group, a range of numbers, a partition of a topic.

    It names the data to read and, in a checkpoint, the position to continue from. It travels
    between processes as the bytes that the source's ``split_serializer`` writes.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def split_id(self) -> str:
        """The name of the split: unique within the source, and the same after a restore."""
