"""A split: a part of a source that one reader reads at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod


class SourceSplit(ABC):
    """A part of a source: a file's row group, a range of numbers, a partition of a topic.

    It says what to read and, in a checkpoint, from where on. Readers get it by value: it crosses
    process borders as the bytes that the source's ``split_serializer`` makes of it.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def split_id(self) -> str:
        """Unique within the source, the same before and after a checkpoint; named in errors."""
