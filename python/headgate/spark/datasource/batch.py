"""``spark.read.format("headgate")``: one partition per split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headgate.errors import OptionError
from headgate.source import Boundedness
from headgate.source.planning import plan_splits, read_splits
from headgate.spark.datasource.conversion import converter
from headgate.spark.datasource.filters import expression

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from headgate.source import Source


@dataclass
class SplitPartition(InputPartition):
    """One split for one task.

    Attributes:
        version: of the split's bytes.
        split_id: for errors.
        split: its bytes.
    """

    version: int
    split_id: str
    split: bytes


def read(
    source: Source[Any, Any, Any], schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split as batches of exactly Spark's schema."""
    if not isinstance(partition, SplitPartition):
        return
    splits = [(partition.split_id, partition.split)]
    yield from map(converter(schema), read_splits(source, partition.version, splits))


class BatchReader(DataSourceReader):
    """Plans and reads a bounded source.

    Spark runs one task per split, as slots come free: a slow task takes fewer of them.

    Args:
        source: what is read.
        schema: what Spark wants of it.

    Raises:
        OptionError: the source never ends.
    """

    def __init__(self, source: Source[Any, Any, Any], schema: StructType) -> None:
        if source.boundedness is not Boundedness.BOUNDED:
            raise OptionError(
                f"{source.name} never ends, and spark.read reads to the end",
                remedy='spark.readStream.format("headgate") · headgate.source.read()',
            )
        self.source = source.with_columns(schema.names) or source
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per split."""
        planned = plan_splits(self.source, None)
        return [SplitPartition(planned.version, name, split) for name, split in planned.splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        return read(self.source, self.schema, partition)


class FilteringBatchReader(BatchReader):
    """A reader to which Spark pushes filters.

    A class of its own: Spark refuses a reader that has ``pushFilters`` where
    ``spark.sql.python.filterPushdown.enabled`` is false.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that the source can apply exactly; return the others."""
        left = []
        arrow = self.source.schema
        for pushed in filters:
            wanted = None if arrow is None else expression(pushed, arrow)
            filtered = None if wanted is None else self.source.with_filter(wanted)
            if filtered is None:
                left.append(pushed)
            else:
                self.source = filtered
        return left
