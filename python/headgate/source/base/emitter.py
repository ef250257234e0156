"""The conversion of fetched elements into records, which also advances a split's state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from headgate.source.api.output import SourceOutput

E_contra = TypeVar("E_contra", contravariant=True)
T = TypeVar("T")
StateT_contra = TypeVar("StateT_contra", contravariant=True)


class RecordEmitter(ABC, Generic[E_contra, T, StateT_contra]):
    """Converts elements into records; runs in the reader's thread, once per element."""

    @abstractmethod
    def emit_record(
        self, element: E_contra, output: SourceOutput[T], split_state: StateT_contra
    ) -> None:
        """Emit the records of an element, none or many, and advance the state past it.

        A checkpoint is taken between two calls, never during one.
        """
