"""One source of a chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headgate.source.api import Source, SplitEnumerator, SplitEnumeratorContext

#: Makes a source from the enumerator of the source before it, which has ended and is still open.
SourceFactory = Callable[[SplitEnumerator[Any, Any]], Source[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class ChainedSource:
    """One source of a chain.

    Attributes:
        source: makes readers and serializers, and the enumerator if there is no factory.
        factory: makes the source that creates the enumerator; None for ``source`` itself.
    """

    source: Source[Any, Any, Any]
    factory: SourceFactory | None = None

    def create_enumerator(
        self, context: SplitEnumeratorContext[Any], previous: SplitEnumerator[Any, Any] | None
    ) -> SplitEnumerator[Any, Any]:
        """Return a new enumerator; a factory gets the enumerator of the source before."""
        if self.factory is None or previous is None:
            return self.source.create_enumerator(context)
        return self.factory(previous).create_enumerator(context)
