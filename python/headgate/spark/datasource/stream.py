"""``spark.readStream.format("headgate")``: micro-batches whose offsets are enumerator checkpoints.

Decision: ADR 0009.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from headgate.errors import NotBuiltError, OptionError, SourceError
from headgate.source import Boundedness, NumberSequenceSource
from headgate.source.planning import plan_splits
from headgate.spark.datasource.batch import max_partitions, partitions, positive, read
from headgate.spark.datasource.offsets import Offset, StoredSplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headgate.source import Source

#: Option for the maximum number of splits in a micro-batch.
MAX_SPLITS: Final = "maxSplitsPerTrigger"
#: Default of :data:`MAX_SPLITS`. It bounds an offset, which holds the splits of its batch.
DEFAULT_MAX_SPLITS: Final = 1000
#: Default for unbounded numbers, whose splits are all available at once: some million rows.
_NUMBERS_MAX_SPLITS: Final = 8


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches.

    Rows arrive exactly once across restarts if the sink writes each batch once: the end offset of a
    batch has the batch's splits, and Spark logs it before it runs the batch.

    Args:
        source: a source. A bounded one is read once.
        schema: the columns that Spark asks for.
        max_splits: maximum number of splits in a micro-batch.
        most: maximum number of tasks of a micro-batch. With more splits each task gets several.
    """

    def __init__(
        self, source: Source[Any, Any, Any], schema: StructType, max_splits: int, most: int
    ) -> None:
        self.source = source.with_columns(schema.names) or source
        self.schema = schema
        self.max_splits = max_splits
        self.most = most
        #: True until Trigger.AvailableNow has discovered its splits; always true without it.
        self._discovers = True
        self._is_available_now = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at the beginning."""
        return Offset().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of ``maxSplitsPerTrigger``. A split counts as one of Spark's files."""
        return ReadMaxFiles(self.max_splits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Discover the splits that exist now, and none after that.

        Raises:
            OptionError: the source has splits without end already now.
        """
        if _is_never_dry(self.source):
            raise OptionError(
                f"{self.source.name} always has more splits, so Trigger.AvailableNow never ends",
                asked="Trigger.AvailableNow",
                remedy='option("end", "1000000") · trigger(processingTime="1 second")',
            )
        self._is_available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the offset after the next splits, or ``start`` if there are none.

        Raises:
            OptionError: the limit is not a number of splits.
            StateVersionError: another version or another program wrote ``start``.
        """
        begin, most = Offset.from_dict(start), _most(limit)
        return self._next(begin, most).to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the splits of the batch between two offsets, in partitions.

        Raises:
            SourceError: the offsets are those of more than one batch.
        """
        begin, last = Offset.from_dict(start), Offset.from_dict(end)
        if last.number == begin.number:
            return []
        if last.number != begin.number + 1:
            raise SourceError(
                f"batch {last.number} does not follow batch {begin.number}",
                have="an offset holds the splits of its own batch only",
                remedy="restore the checkpointLocation of this query with its whole offset log",
            )
        return partitions(last.splits, self.most)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        return read(self.source, self.schema, partition)

    def _next(self, begin: Offset, most: int | None) -> Offset:
        waiting, checkpoint = begin.pending, begin.checkpoint
        lacks = most is None or len(waiting) < most
        if self._discovers and (lacks or self._is_available_now):
            room = None if most is None or self._is_available_now else most - len(waiting)
            planned = plan_splits(self.source, checkpoint, max_splits=room)
            discovered = (StoredSplit(planned.version, name, data) for name, data in planned.splits)
            waiting, checkpoint = (*waiting, *discovered), planned.checkpoint
            self._discovers = not self._is_available_now
        if not waiting:
            return begin
        count = len(waiting) if most is None else most
        return Offset(begin.number + 1, checkpoint, waiting[:count], waiting[count:])


def stream_reader(
    source: Source[Any, Any, Any], schema: StructType, options: Mapping[str, str]
) -> StreamReader:
    """Check the options and return the reader of a query.

    Raises:
        OptionError: an option is not a whole number above 0.
        NotBuiltError: the source has endless splits, so a micro-batch would never end.
    """
    if source.has_endless_splits:
        raise NotBuiltError(
            f"{source.name} has endless splits, so a micro-batch of it would never end",
            remedy="headgate.source.read() · options that make the source end",
        )
    return StreamReader(
        source,
        schema,
        positive(options, MAX_SPLITS, _default_splits(source)),
        max_partitions(options),
    )


def _is_never_dry(source: Source[Any, Any, Any]) -> bool:
    is_bounded = source.boundedness is Boundedness.BOUNDED
    return isinstance(source, NumberSequenceSource) and not is_bounded


def _default_splits(source: Source[Any, Any, Any]) -> int:
    if not _is_never_dry(source):
        return DEFAULT_MAX_SPLITS
    # Each task limits its own rate, so only a single task keeps the rate of the whole query.
    has_rate = isinstance(source, NumberSequenceSource) and source.rows_per_second is not None
    return 1 if has_rate else _NUMBERS_MAX_SPLITS


def _most(limit: ReadLimit) -> int | None:
    if isinstance(limit, ReadAllAvailable):
        return None
    if isinstance(limit, ReadMaxFiles):
        return limit.max_files
    raise OptionError(
        f"Headgate limits a micro-batch by splits, not by {type(limit).__name__}",
        remedy=f'option("{MAX_SPLITS}", "8")',
    )
