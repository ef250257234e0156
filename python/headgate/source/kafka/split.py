"""A split of Kafka, which is a partition, and the state of the enumerator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.errors import SourceError
from headgate.source.api import SourceSplit

#: A topic and the number of a partition.
Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class KafkaSplit(SourceSplit):
    """A partition of a topic.

    Attributes:
        topic: the topic.
        partition: the partition's number.
        position: the offset of the next record to read.
        end: the offset after the last one to read; None without end.
    """

    topic: str
    partition: int
    position: int
    end: int | None = None

    @property
    def split_id(self) -> str:
        """Topic and partition, such as ``orders-3``."""
        return f"{self.topic}-{self.partition}"

    @property
    def key(self) -> Partition:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def is_over(self) -> bool:
        """True if no record is left."""
        return self.end is not None and self.position >= self.end


@dataclass(frozen=True, slots=True)
class KafkaCheckpoint:
    """The state of the enumerator.

    Attributes:
        known: topic and number of each partition that was found so far.
        pending: fields of each split that no reader has.
        is_listed: True once the partitions were listed.
    """

    known: Sequence[tuple[str, int]] = ()
    pending: Sequence[tuple[str, int, int, int | None]] = ()
    is_listed: bool = False


def lost(where: str, offset: int, cause: str, splits: Sequence[str], name: str) -> SourceError:
    """Return the error for a partition that does not have the record at an offset any more, or not yet.

    Args:
        where: the partition, in words.
        offset: of the record.
        cause: in words.
        splits: id of the partition's split.
        name: of the broker's error.
    """
    return SourceError(
        f"{where} has no record at the offset to read, and none is skipped: {cause}",
        asked=f"offset {offset}",
        remedy="a longer retention.ms of the topic · start again from KafkaOffsets.earliest(), "
        "without the lost records",
        details={"splits": list(splits), "error": name},
    )
