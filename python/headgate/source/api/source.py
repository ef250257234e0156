"""A source: the factory of its enumerator and its readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from headgate.errors import NotBuiltError
from headgate.source.api.split import SourceSplit

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from headgate.source.api.enumerator import SplitEnumerator, SplitEnumeratorContext
    from headgate.source.api.reader import SourceReader, SourceReaderContext
    from headgate.source.api.serializer import SimpleVersionedSerializer

T = TypeVar("T")
SplitT = TypeVar("SplitT", bound=SourceSplit)
CheckpointT = TypeVar("CheckpointT")


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = auto()
    CONTINUOUS_UNBOUNDED = auto()


class Source(ABC, Generic[T, SplitT, CheckpointT]):
    """Describes what is read; travels to the workers by pickle, so it holds no open thing.

    ``T`` is what readers emit: on Spark a ``pyarrow.RecordBatch`` of :attr:`schema`.
    """

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Whether it ends by itself."""

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the batches that readers emit; None where records are no batches.

        May look at the data (a file's footer), so it is asked on the driver only.
        """
        return None

    @property
    def name(self) -> str:
        """What errors, logs and progress call it."""
        return type(self).__name__

    @abstractmethod
    def create_enumerator(
        self, context: SplitEnumeratorContext[SplitT]
    ) -> SplitEnumerator[SplitT, CheckpointT]:
        """Return an enumerator that begins at the beginning."""

    @abstractmethod
    def restore_enumerator(
        self, context: SplitEnumeratorContext[SplitT], checkpoint: CheckpointT
    ) -> SplitEnumerator[SplitT, CheckpointT]:
        """Return an enumerator that goes on from a checkpoint."""

    @abstractmethod
    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, SplitT]:
        """Return a reader; called in the process and thread that will poll it."""

    @property
    @abstractmethod
    def split_serializer(self) -> SimpleVersionedSerializer[SplitT]:
        """Makes splits bytes."""

    @property
    @abstractmethod
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[CheckpointT]:
        """Makes the enumerator's checkpoints bytes."""

    # What a source may offer beyond Flink's interface, for plans that know what they need.

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source that texts describe, as ``spark.read.format("headgate")`` has them.

        Args:
            options: by names whose case does not count.

        Raises:
            OptionError: an option that it does not know, lacks or cannot read.
            NotBuiltError: this source cannot be described by texts.
        """
        raise NotBuiltError(f"{cls.__name__} cannot be made of options", asked=f"{dict(options)}")

    def with_columns(self, columns: Sequence[str]) -> Source[T, SplitT, Any] | None:  # noqa: ARG002 - what others look at
        """Return this source reduced to some columns; None where it cannot leave any out."""
        return None

    def with_filter(self, expression: pc.Expression) -> Source[T, SplitT, Any] | None:  # noqa: ARG002 - what others look at
        """Return this source without the rows for which ``expression`` is not true.

        None where it cannot promise that *every* such row is left out.
        """
        return None
