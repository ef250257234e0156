"""A chain of sources, read one after another: for example old files, then a live stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from headgate._arguments import function, instance
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
from headgate.source.hybrid.chained import ChainedSource, SourceFactory
from headgate.source.hybrid.enumerator import HybridSplitEnumerator
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
    import pyarrow.fs as pafs

T = TypeVar("T")


class HybridSource(Source[T, HybridSplit, HybridCheckpoint]):
    """Reads one source to its end, then the next one; only the last may be unbounded.

    A source starts when all registered readers have finished the one before. A reader that
    registers late starts with the current source. If a reader is lost, the next reader that
    registers first reads the lost reader's splits of earlier sources.

    Made by :meth:`builder`::

        HybridSource.builder(files).add_source(stream).build()

    Args:
        links: the sources, in order.
    """

    def __init__(self, links: Sequence[ChainedSource]) -> None:
        self._links = tuple(links)

    @staticmethod
    def builder(first: Source[T, Any, Any]) -> HybridSourceBuilder[T]:
        """Return a builder to add further sources to."""
        instance("a Source", Source)("first", first)
        return HybridSourceBuilder([ChainedSource(first)])

    @property
    def boundedness(self) -> Boundedness:
        """The boundedness of the last source."""
        return self._links[-1].source.boundedness

    @property
    def emits_watermarks(self) -> bool:
        """True if the last source emits watermarks of its own."""
        return self._links[-1].source.emits_watermarks

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of all sources; None if their records are not batches.

        Raises:
            SchemaMismatchError: the sources have different schemas.
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

    def would_list(self, filesystem: pafs.FileSystem, file: str) -> bool:
        """Return True if one of the sources would."""
        return any(link.source.would_list(filesystem, file) for link in self._links)

    def create_enumerator(
        self, context: SplitEnumeratorContext[HybridSplit]
    ) -> SplitEnumerator[HybridSplit, HybridCheckpoint]:
        """Return an enumerator that starts with the first source."""
        return HybridSplitEnumerator(context, self._links)

    def restore_enumerator(
        self, context: SplitEnumeratorContext[HybridSplit], checkpoint: HybridCheckpoint
    ) -> SplitEnumerator[HybridSplit, HybridCheckpoint]:
        """Return an enumerator that continues with the checkpoint's current source."""
        return HybridSplitEnumerator(context, self._links, checkpoint)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, HybridSplit]:
        """Return a reader that creates the reader of each source when it becomes current."""
        return HybridSourceReader([link.source for link in self._links], context)

    @property
    def split_serializer(self) -> SimpleVersionedSerializer[HybridSplit]:
        """The source's number, then the bytes of its own serializer."""
        return HybridSplitSerializer([link.source.split_serializer for link in self._links])

    @property
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[HybridCheckpoint]:
        """JSON that contains the bytes of the sources' own serializers."""
        return HybridCheckpointSerializer()

    def with_columns(self, columns: Sequence[str]) -> HybridSource[T] | None:
        """Return this chain reduced to some columns; None if one of its sources cannot do it."""
        return self._with(lambda source: source.with_columns(columns))

    def with_filter(self, expression: pc.Expression) -> HybridSource[T] | None:
        """Return this chain without some rows; None if one of its sources cannot do it."""
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
        links: the first sources.
    """

    def __init__(self, links: Sequence[ChainedSource]) -> None:
        self._links = list(links)

    def add_source(
        self,
        source: Source[T, Any, Any] | SourceFactory,
        *,
        readers: Source[T, Any, Any] | None = None,
    ) -> Self:
        """Add the next source.

        Args:
            source: a source, or a function from the enumerator of the source before to a source.
                The coordinator calls the function when that enumerator has ended, and the result
                creates the next enumerator, which can continue where the one before ended.
            readers: required with a function, and only allowed there: the source that creates the
                readers, the serializers and a restored enumerator. These do not see the function's
                result: readers get their splits only, and an enumerator its checkpoint.

        Raises:
            OptionError: ``readers`` is missing, or given beside a source.
        """
        if readers is not None:
            instance("a Source", Source)("readers", readers)
        if isinstance(source, Source):
            if readers is not None:
                raise OptionError(
                    f"readers={readers.name} is not allowed beside a source",
                    asked=f"add_source({source.name}, readers={readers.name})",
                    remedy="add_source(source) · add_source(function, readers=source)",
                )
            self._links.append(ChainedSource(source))
            return self
        if readers is None:
            raise OptionError(
                "a function needs readers=, a source that creates the readers",
                asked=f"add_source({source!r})",
                remedy="add_source(function, readers=source)",
            )
        function("source", source, 1, "def source(enumerator): ..., which returns a source")
        self._links.append(ChainedSource(readers, source))
        return self

    def build(self) -> HybridSource[T]:
        """Return the chain.

        Raises:
            OptionError: an unbounded source is followed by another one.
        """
        for place, link in enumerate(self._links[:-1]):
            if link.source.boundedness is not Boundedness.BOUNDED:
                raise OptionError(
                    f"source {place} of the chain, {link.source.name}, has no end, "
                    "so the next one would never start",
                    asked=f"{len(self._links)} sources",
                    have=f"source {place} is {link.source.boundedness.name}",
                    remedy="make it the last source · give it an end",
                )
        return HybridSource(self._links)
