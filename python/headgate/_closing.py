"""Context managers that close themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Closing(ABC):
    """What a ``with`` statement closes at its end."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


class Aborting(Closing):
    """What a ``with`` statement closes at its end, after it has aborted it if there was an error."""

    @abstractmethod
    def abort(self) -> None:
        """Undo what is not finished."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Abort if there was an error, then close."""
        if error is not None:
            self.abort()
        self.close()
