"""A source: the factory of its enumerator and its readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from headgate.errors import NotBuiltError, OptionError
from headgate.source.api.split import SourceSplit

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.fs as pafs

    from headgate.source.api.enumerator import SplitEnumerator, SplitEnumeratorContext
    from headgate.source.api.reader import SourceReader, SourceReaderContext
    from headgate.source.api.serializer import SimpleVersionedSerializer

T = TypeVar("T")
SplitT = TypeVar("SplitT", bound=SourceSplit)
CheckpointT = TypeVar("CheckpointT")


class Boundedness(Enum):
    """Bounded sources end; unbounded ones run until they are stopped."""

    BOUNDED = auto()
    CONTINUOUS_UNBOUNDED = auto()


class Source(ABC, Generic[T, SplitT, CheckpointT]):
    """Describes the data to read. It is pickled to the workers, so it holds no open resources.

    ``T`` is the type of the records: on Spark a ``pyarrow.RecordBatch`` of :attr:`schema`.
    """

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness:
        """``BOUNDED`` if the source ends by itself."""

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the batches that readers emit; None if records are not batches.

        May read data, such as a file's footer, so only the driver asks for it.
        """
        return None

    @property
    def name(self) -> str:
        """The name of the source in errors, logs and progress reports."""
        return type(self).__name__

    @abstractmethod
    def create_enumerator(
        self, context: SplitEnumeratorContext[SplitT]
    ) -> SplitEnumerator[SplitT, CheckpointT]:
        """Return an enumerator that starts from the beginning."""

    @abstractmethod
    def restore_enumerator(
        self, context: SplitEnumeratorContext[SplitT], checkpoint: CheckpointT
    ) -> SplitEnumerator[SplitT, CheckpointT]:
        """Return an enumerator that continues from a checkpoint."""

    @abstractmethod
    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, SplitT]:
        """Return a reader; called in the process and the thread that will poll it."""

    @property
    @abstractmethod
    def split_serializer(self) -> SimpleVersionedSerializer[SplitT]:
        """The serializer of splits."""

    @property
    @abstractmethod
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[CheckpointT]:
        """The serializer of the enumerator's checkpoints."""

    # Optional, and not part of Flink's interface.

    @property
    def emits_watermarks(self) -> bool:
        """True if the readers emit watermarks of their own, so that windows need no strategy for them."""
        return False

    @property
    def has_endless_splits(self) -> bool:
        """True if a split may never end, so that no micro-batch can read it to its end."""
        return False

    def would_list(self, filesystem: pafs.FileSystem, file: str) -> bool:  # noqa: ARG002 - for overrides
        """Return True if this source reads a file that does not exist yet, once it is there."""
        return False

    def until_now(self) -> Source[T, SplitT, CheckpointT]:
        """Return this source, with an end: readers read what is there when the enumerator starts.

        An enumerator that is restored from a checkpoint of this source or of that one continues with what has come since.
        A source that ends by itself is its own result, unless it can find out what has come since.

        Raises:
            OptionError: this source does not know what is there now.
        """
        if self.boundedness is Boundedness.BOUNDED:
            return self
        raise OptionError(
            f'{self.name} has no end, and cannot tell what is there now, as until="now" asks',
            have="FileSource, KafkaSource, DeltaSource and IcebergSource can",
            remedy="start() without until= · a source that ends",
        )

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source that string options describe, as in ``spark.read.option(...)``.

        Args:
            options: values by name; the case of a name does not matter.

        Raises:
            OptionError: an option is unknown, missing or malformed.
            NotBuiltError: this source cannot be described by options.
        """
        raise NotBuiltError(f"{cls.__name__} cannot be made of options", asked=f"{dict(options)}")

    def with_columns(self, columns: Sequence[str]) -> Source[T, SplitT, Any] | None:  # noqa: ARG002 - for overrides
        """Return this source reduced to some columns; None if it cannot drop columns."""
        return None

    def with_filter(self, expression: pc.Expression) -> Source[T, SplitT, Any] | None:  # noqa: ARG002 - for overrides
        """Return this source without the rows for which ``expression`` is not true.

        None if it cannot promise to drop *every* such row.
        """
        return None

    def with_schema(self, schema: pa.Schema) -> Source[T, SplitT, Any] | None:  # noqa: ARG002 - for overrides
        """Return this source with these columns, where no schema was given yet; None if its schema stays its own.

        Spark gives that of ``spark.read.schema(...)``. If it stays, the columns of the batches are cast.
        """
        return None
