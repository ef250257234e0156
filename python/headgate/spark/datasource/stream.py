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
from headgate.source import Boundedness, NumberSequenceSource, SocketSource
from headgate.source.planning import plan_splits
from headgate.spark.datasource.batch import max_partitions, partitions, positive, read
from headgate.spark.datasource.offsets import Offset, StoredSplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headgate.source import Source

#: The option that bounds a micro-batch.
MAX_SPLITS: Final = "maxSplitsPerTrigger"
#: Its default: an offset holds its splits, and some sources never run dry.
DEFAULT_MAX_SPLITS: Final = 1000
#: For numbers without end, of which any number of splits is there at once: some million rows.
_NUMBERS_MAX_SPLITS: Final = 8


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches.

    Exactly once across restarts, with a sink that is: a batch's splits are in its end offset, which
    Spark logs before it runs the batch.

    Args:
        source: bounded or not; a bounded one is read once.
        schema: what Spark wants of it.
        max_splits: most splits in one micro-batch.
        most: how many tasks a micro-batch may have; with more splits each task gets several.
    """

    def __init__(
        self, source: Source[Any, Any, Any], schema: StructType, max_splits: int, most: int
    ) -> None:
        self.source = source.with_columns(schema.names) or source
        self.schema = schema
        self.max_splits = max_splits
        self.most = most
        #: With Trigger.AvailableNow: False once what was there is in an offset's ``pending``.
        self._discovers = True
        self._is_available_now = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the beginning."""
        return Offset().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that ``maxSplitsPerTrigger`` sets; a split counts as a file."""
        return ReadMaxFiles(self.max_splits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read what is there now, and then no more.

        Raises:
            OptionError: what is there now has no end.
        """
        if _is_never_dry(self.source):
            raise OptionError(
                f"{self.source.name} has more at any time, and this trigger waits until it has not",
                asked="Trigger.AvailableNow",
                remedy='option("end", "1000000") · trigger(processingTime="1 second")',
            )
        self._is_available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the offset after the next splits; ``start`` when there is none.

        Raises:
            OptionError: a limit other than a number of splits.
            StateVersionError: ``start`` was written by something else.
        """
        begin, most = Offset.from_dict(start), _most(limit)
        return self._next(begin, most).to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the splits of the batch between two offsets, in partitions.

        Raises:
            SourceError: the offsets are not neighbours.
        """
        begin, last = Offset.from_dict(start), Offset.from_dict(end)
        if last.number == begin.number:
            return []
        if last.number != begin.number + 1:
            raise SourceError(
                f"batch {last.number} does not follow batch {begin.number}",
                have="an offset holds the splits of its own batch only",
                remedy="the checkpointLocation of this query, with its whole offset log",
            )
        return partitions(last.splits, self.most)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        return read(self.source, self.schema, partition)

    def _next(self, begin: Offset, most: int | None) -> Offset:
        waiting, checkpoint = begin.pending, begin.checkpoint
        lacks = most is None or len(waiting) < most
        if self._discovers and (lacks or self._is_available_now):
            room = None if most is None or self._is_available_now else most - len(waiting)
            planned = plan_splits(self.source, checkpoint, max_splits=room)
            found = (StoredSplit(planned.version, name, data) for name, data in planned.splits)
            waiting, checkpoint = (*waiting, *found), planned.checkpoint
            self._discovers = not self._is_available_now
        if not waiting:
            return begin
        taken = len(waiting) if most is None else most
        return Offset(begin.number + 1, checkpoint, waiting[:taken], waiting[taken:])


def stream_reader(
    source: Source[Any, Any, Any], schema: StructType, options: Mapping[str, str]
) -> StreamReader:
    """Return the reader of a query, its options checked.

    Raises:
        OptionError: an option that is no whole number above 0.
        NotBuiltError: a source whose split does not end, so that no micro-batch would.
    """
    if isinstance(source, SocketSource) and source.boundedness is not Boundedness.BOUNDED:
        raise NotBuiltError(
            f"{source.name} is one split without end, so a micro-batch of it would have none either",
            remedy='headgate.source.read() · option("reconnect", "false"), to its end',
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
    # Each task keeps to the rate by itself: only one at a time keeps it for all.
    has_rate = isinstance(source, NumberSequenceSource) and source.rows_per_second is not None
    return 1 if has_rate else _NUMBERS_MAX_SPLITS


def _most(limit: ReadLimit) -> int | None:
    if isinstance(limit, ReadAllAvailable):
        return None
    if isinstance(limit, ReadMaxFiles):
        return limit.max_files
    raise OptionError(
        f"Headgate bounds a micro-batch by splits, not by {type(limit).__name__}",
        remedy=f'option("{MAX_SPLITS}", "8")',
    )
