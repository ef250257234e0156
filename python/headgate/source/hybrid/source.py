"""One source after another: files of the past first, say, and then the stream that goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from headgate.errors import OptionError, SchemaMismatchError
from headgate.source.api import (
    Boundedness,
    SimpleVersionedSerializer,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from headgate.source.hybrid.enumerator import HybridSplitEnumerator
from headgate.source.hybrid.link import Link, SourceFactory
from headgate.source.hybrid.reader import HybridSourceReader
from headgate.source.hybrid.state import (
    HybridCheckpoint,
    HybridCheckpointSerializer,
    HybridSplit,
    HybridSplitSerializer,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

T = TypeVar("T")


class HybridSource(Source[T, HybridSplit, HybridCheckpoint]):
    """Reads one source to its end, then the next one; only the last may be without end.

    A source begins when all readers that are registered have finished the one before. A reader
    that comes late begins with the source that the others are at; splits that a lost reader had of
    an earlier source are read by the next reader that registers, before it goes on.

    Made by :meth:`builder`::

        HybridSource.builder(files).add_source(stream).build()

    Args:
        links: the sources, in their order.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = tuple(links)

    @staticmethod
    def builder(first: Source[T, Any, Any]) -> HybridSourceBuilder[T]:
        """Return what the further sources are added to."""
        return HybridSourceBuilder([Link(first)])

    @property
    def boundedness(self) -> Boundedness:
        """That of the last source."""
        return self._links[-1].source.boundedness

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of all sources; None where their records are no batches.

        Raises:
            SchemaMismatchError: they have not the same one.
        """
        first = self._links[0].source
        for link in self._links[1:]:
            if link.source.schema != first.schema:
                raise SchemaMismatchError(
                    f"{link.source.name} has another schema than {first.name}",
                    asked=f"{link.source.schema}".replace("\n", ", "),
                    have=f"{first.schema}".replace("\n", ", "),
                    remedy="give all sources of the chain the same columns",
                )
        return first.schema

    @property
    def name(self) -> str:
        """The names of its sources."""
        return f"HybridSource({' -> '.join(link.source.name for link in self._links)})"

    def create_enumerator(
        self, context: SplitEnumeratorContext[HybridSplit]
    ) -> SplitEnumerator[HybridSplit, HybridCheckpoint]:
        """Return an enumerator that begins with the first source."""
        return HybridSplitEnumerator(context, self._links)

    def restore_enumerator(
        self, context: SplitEnumeratorContext[HybridSplit], checkpoint: HybridCheckpoint
    ) -> SplitEnumerator[HybridSplit, HybridCheckpoint]:
        """Return an enumerator that goes on with the source that a checkpoint was taken in."""
        return HybridSplitEnumerator(context, self._links, checkpoint)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, HybridSplit]:
        """Return a reader that makes the reader of each source when its turn comes."""
        return HybridSourceReader([link.source for link in self._links], context)

    @property
    def split_serializer(self) -> SimpleVersionedSerializer[HybridSplit]:
        """The number of the source, then its own bytes."""
        return HybridSplitSerializer([link.source.split_serializer for link in self._links])

    @property
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[HybridCheckpoint]:
        """JSON around the bytes of the sources' own serializers."""
        return HybridCheckpointSerializer()

    def with_columns(self, columns: Sequence[str]) -> HybridSource[T] | None:
        """Return this chain reduced to some columns; None where one of its sources cannot."""
        return self._with(lambda source: source.with_columns(columns))

    def with_filter(self, expression: pc.Expression) -> HybridSource[T] | None:
        """Return this chain without some rows; None where one of its sources cannot."""
        return self._with(lambda source: source.with_filter(expression))

    def _with(
        self, change: Callable[[Source[Any, Any, Any]], Source[Any, Any, Any] | None]
    ) -> HybridSource[T] | None:
        links = []
        for link in self._links:
            changed = None if link.factory is not None else change(link.source)
            if changed is None:
                return None
            links.append(replace(link, source=changed))
        return type(self)(links)


class HybridSourceBuilder(Generic[T]):
    """Collects the sources of a chain.

    Args:
        links: those that are there.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = list(links)

    def add_source(
        self,
        source: Source[T, Any, Any] | SourceFactory,
        *,
        readers: Source[T, Any, Any] | None = None,
    ) -> Self:
        """Add the next source.

        Args:
            source: a source; or a function of the enumerator of the source before, which returns
                one. It is called when that enumerator is at its end, on the coordinator, and what
                it returns makes the enumerator: so it can begin where the one before ended.
            readers: with a function only, and needed there: the source that makes the readers, the
                serializers, and the enumerator of a restore. Readers are made elsewhere and know
                only what their splits say; a restored enumerator knows what its checkpoint says.

        Raises:
            OptionError: ``readers`` is missing, or has no use.
        """
        if isinstance(source, Source):
            if readers is not None:
                raise OptionError(
                    f"readers={readers.name} has no use beside a source",
                    asked=f"add_source({source.name}, readers={readers.name})",
                    remedy="add_source(source) · add_source(function, readers=source)",
                )
            self._links.append(Link(source))
            return self
        if readers is None:
            raise OptionError(
                "a function that makes a source needs readers: a source that makes the readers",
                asked=f"add_source({source!r})",
                remedy="add_source(function, readers=source)",
            )
        self._links.append(Link(readers, source))
        return self

    def build(self) -> HybridSource[T]:
        """Return the chain.

        Raises:
            OptionError: a source without end is followed by another one.
        """
        for place, link in enumerate(self._links[:-1]):
            if link.source.boundedness is not Boundedness.BOUNDED:
                raise OptionError(
                    f"source {place} of the chain, {link.source.name}, has no end, "
                    "so those after it would never begin",
                    asked=f"{len(self._links)} sources",
                    have=f"source {place} is {link.source.boundedness.name}",
                    remedy="put it last · give it an end",
                )
        return HybridSource(self._links)
