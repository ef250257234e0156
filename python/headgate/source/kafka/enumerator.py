"""The enumerator of Kafka's partitions."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headgate._kafka import LOG
from headgate.source.api import SplitEnumerator
from headgate.source.kafka.split import KafkaCheckpoint, KafkaSplit, Partition

if TYPE_CHECKING:
    from headgate.source.api import SplitEnumeratorContext

#: Returns the splits of partitions that are not known; the flag is True for the first listing.
Discover = Callable[[frozenset[Partition], bool], Sequence[KafkaSplit]]


class KafkaEnumerator(SplitEnumerator[KafkaSplit, KafkaCheckpoint]):
    """Lists partitions, once or again and again, and gives each reader its share.

    A partition belongs to the reader ``(hash of the topic + partition) modulo readers``, as in Flink.
    Without a later listing, readers hear that no more splits follow, so that one without a partition
    ends and holds no watermark back.

    Args:
        context: of the coordinator.
        checkpoint: the state to continue from.
        discover: lists partitions; may block.
        interval: seconds between two listings; None to list once.
        is_bounded: True if a restored job lists no new partitions.
    """

    def __init__(
        self,
        context: SplitEnumeratorContext[KafkaSplit],
        checkpoint: KafkaCheckpoint,
        discover: Discover,
        interval: float | None,
        *,
        is_bounded: bool,
    ) -> None:
        self._context = context
        self._discover = discover
        self._interval = interval
        self._partitions: set[Partition] = {(topic, number) for topic, number in checkpoint.known}
        self._pending = [KafkaSplit(*fields) for fields in checkpoint.pending]
        self._is_listed = checkpoint.is_listed
        self._is_complete = checkpoint.is_listed and is_bounded

    def start(self) -> None:
        """List the partitions."""
        if not self._is_complete:
            self._context.call_async(self._list, self._listed, period=self._interval)

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """Do nothing: a reader gets its splits without a request."""

    def add_splits_back(self, splits: Sequence[KafkaSplit], subtask_id: int) -> None:
        """Keep the splits of a lost reader for its successor."""
        del subtask_id
        self._pending.extend(splits)

    def add_reader(self, subtask_id: int) -> None:
        """Give a reader the splits that wait for it."""
        self._give([subtask_id])

    def snapshot_state(self, checkpoint_id: int) -> KafkaCheckpoint:
        """Return the known partitions and the splits that no reader has."""
        del checkpoint_id
        pending = tuple(dataclasses.astuple(split) for split in self._pending)
        return KafkaCheckpoint(tuple(sorted(self._partitions)), pending, self._is_listed)

    @property
    def total_splits(self) -> int | None:
        """The number of partitions; None while more may come."""
        return len(self._partitions) if self._is_complete else None

    def close(self) -> None:
        """Do nothing: each listing closes its client."""

    def _list(self) -> Sequence[KafkaSplit]:
        return self._discover(frozenset(self._partitions), not self._is_listed)

    def _listed(self, splits: Sequence[KafkaSplit] | None, error: BaseException | None) -> None:
        if splits is None:
            if error is not None and (not self._is_listed or self._interval is None):
                raise error
            LOG.warning("the partitions could not be listed; the next try follows: %s", error)
            return
        new = [split for split in splits if split.key not in self._partitions]
        self._partitions.update(split.key for split in new)
        self._pending.extend(new)
        self._is_listed = True
        self._is_complete = self._interval is None
        self._give(sorted(self._context.registered_readers))

    def _give(self, readers: Sequence[int]) -> None:
        for reader in readers:
            splits = [split for split in self._pending if self._owner(split) == reader]
            if splits:
                self._pending = [split for split in self._pending if self._owner(split) != reader]
                self._context.assign_splits({reader: splits})
            if self._is_complete:
                self._context.signal_no_more_splits(reader)

    def _owner(self, split: KafkaSplit) -> int:
        first = zlib.crc32(split.topic.encode())
        return (first + split.partition) % self._context.current_parallelism
