"""``spark.read.format("headgate")``: a partition per split, up to ``maxPartitions``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headgate.errors import OptionError
from headgate.source import Boundedness
from headgate.source.planning import plan_splits, read_splits
from headgate.spark.datasource.conversion import converter
from headgate.spark.datasource.offsets import StoredSplit
from headgate.spark.filters import pushed_expression

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from headgate.source import Source


#: Option for the maximum number of reading tasks. It has a default as a task costs Spark 10 ms.
MAX_PARTITIONS: Final = "maxPartitions"
DEFAULT_MAX_PARTITIONS: Final = 200


@dataclass
class SplitPartition(InputPartition):
    """The splits of one task, which reads them in turn."""

    splits: tuple[StoredSplit, ...]


def partitions(splits: Sequence[StoredSplit], most: int) -> list[InputPartition]:
    """Return at most ``most`` partitions: one per split, or several splits in each."""
    number = min(most, len(splits))
    return [SplitPartition(tuple(splits[first::number])) for first in range(number)]


def max_partitions(options: Mapping[str, str]) -> int:
    """Return the value of ``maxPartitions``.

    Raises:
        OptionError: the value is not a whole number above 0.
    """
    return positive(options, MAX_PARTITIONS, DEFAULT_MAX_PARTITIONS)


def positive(options: Mapping[str, str], name: str, default: int) -> int:
    """Return the value of an option that must be a whole number above 0.

    Raises:
        OptionError: the value is not a whole number above 0.
    """
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(
            f"{name}={text!r} is not a whole number above 0",
            asked=f"{name}={text!r}",
            remedy=f'option("{name}", "8") · leave it out for the default, {default}',
        )
    return int(text)


def read(
    source: Source[Any, Any, Any], schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition's splits in batches with exactly Spark's schema."""
    if not isinstance(partition, SplitPartition):
        return
    convert = converter(schema)
    for version, splits in groupby(partition.splits, lambda split: split.version):
        pairs = [(split.split_id, split.data) for split in splits]
        with closing(read_splits(source, version, pairs)) as records:
            yield from map(convert, records)


class BatchReader(DataSourceReader):
    """Plans and reads a bounded source.

    Spark starts the task of the next split in the first free slot, so a slot with a slow task gets
    fewer splits.

    Args:
        source: the source.
        schema: the columns that Spark asks for.
        most: maximum number of tasks. With more splits each task gets several.

    Raises:
        OptionError: the source never ends.
    """

    def __init__(self, source: Source[Any, Any, Any], schema: StructType, most: int) -> None:
        if source.boundedness is not Boundedness.BOUNDED:
            raise OptionError(
                f"{source.name} never ends, and spark.read reads a source to its end",
                remedy='spark.readStream.format("headgate") · headgate.source.read()',
            )
        self.source = source.with_columns(schema.names) or source
        self.schema = schema
        self.most = most

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the source and return its splits in partitions."""
        planned = plan_splits(self.source, None)
        splits = [StoredSplit(planned.version, name, data) for name, data in planned.splits]
        return partitions(splits, self.most)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        return read(self.source, self.schema, partition)


class FilteringBatchReader(BatchReader):
    """A reader that accepts filters from Spark.

    It is a separate class because Spark rejects a reader with ``pushFilters`` if
    ``spark.sql.python.filterPushdown.enabled`` is false.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Apply the filters that the source evaluates exactly as Spark does; return the others."""
        left = []
        arrow = self.source.schema
        for pushed in filters:
            wanted = None if arrow is None else pushed_expression(pushed, arrow)
            filtered = None if wanted is None else self.source.with_filter(wanted)
            if filtered is None:
                left.append(pushed)
            else:
                self.source = filtered
        return left
