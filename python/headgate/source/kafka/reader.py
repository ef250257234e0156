"""The reader of Kafka's partitions: one consumer, read by one fetcher."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate._kafka import LOG, error_text
from headgate.errors import SourceError
from headgate.source.base.records import RecordsBySplits, RecordsWithSplitIds
from headgate.source.base.split_reader import (
    SplitReader,
    SplitsAddition,
    SplitsChange,
    SplitsRemoval,
)
from headgate.source.kafka.records import batch_of, latest_time
from headgate.source.kafka.split import KafkaSplit, Partition, lost
from headgate.source.sequential import BatchSourceReader, Positioned, Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.source.api import SourceReaderContext

#: Returns partitions with the offsets at which to stop; may block.
Ends: TypeAlias = Callable[[Sequence[KafkaSplit]], Sequence[KafkaSplit]]
#: Seconds of a poll, after which the split reader looks whether it was woken: librdkafka has no wake-up.
_POLL: Final = 0.1


class KafkaReader(BatchSourceReader[KafkaSplit]):
    """Reads partitions, and commits the positions of complete checkpoints to the consumer group.

    Args:
        settings: the properties of librdkafka.
        schema: the columns of the batches.
        batch_rows: rows in a batch, at most.
        commits: True to commit offsets.
        context: the reader's context.
        ends: returns where to stop in partitions that are added, if a later job goes on there; None for the splits' ends.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        schema: pa.Schema,
        batch_rows: int,
        commits: bool,
        context: SourceReaderContext,
        ends: Ends | None = None,
    ) -> None:
        from confluent_kafka import Consumer  # noqa: PLC0415 - optional

        self._consumer: Any = Consumer({**settings, "on_commit": _committed}, logger=LOG)
        self._commits = commits
        self._goes_on = ends is not None
        #: Partitions that were read to their ends, at which a later job goes on.
        self._at_end: dict[str, KafkaSplit] = {}
        self._positions: dict[int, dict[Partition, int]] = {}
        self._last_positions: dict[Partition, int] = {}
        #: Positions to commit. The client lets no thread in while another one polls.
        self._offsets: deque[Mapping[Partition, int]] = deque()
        super().__init__(
            lambda: KafkaSplitReader(self._consumer, schema, batch_rows, self._offsets, ends),
            context,
        )

    def start(self) -> None:
        """Do nothing: the enumerator assigns splits without a request."""

    def on_split_finished(self, finished: Mapping[str, Progress]) -> None:
        """Keep the last positions, which the next complete checkpoint commits."""
        self._last_positions.update(
            (progress.split.key, progress.position) for progress in finished.values()
        )
        if self._goes_on:
            self._at_end.update(
                (name, self.to_split_type(name, progress)) for name, progress in finished.items()
            )

    def snapshot_state(self, checkpoint_id: int) -> list[KafkaSplit]:
        """Return the partitions at their positions, which the completion commits."""
        splits = super().snapshot_state(checkpoint_id)
        if self._commits:
            positions = {split.key: split.position for split in splits}
            self._positions[checkpoint_id] = {**self._last_positions, **positions}
        return [*splits, *self._at_end.values()]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Have the fetcher commit the positions of the checkpoint.

        Nothing depends on it: a job continues from its checkpoint. The offsets are for tools that
        show the lag of a group, and for ``KafkaOffsets.committed()``.
        """
        positions = self._positions.pop(checkpoint_id, {})
        for older in [number for number in self._positions if number < checkpoint_id]:
            del self._positions[older]
        if positions:
            self._offsets.append(positions)
        for key, position in positions.items():
            if self._last_positions.get(key) == position:
                del self._last_positions[key]

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Forget the positions of the checkpoint."""
        self._positions.pop(checkpoint_id, None)

    def close(self) -> None:
        """Stop the fetcher, then close the consumer."""
        super().close()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            # Closing waits for commits that are on their way.
            _commit(consumer, self._offsets)
            consumer.close()


class KafkaSplitReader(SplitReader[Positioned, KafkaSplit]):
    """Polls the consumer for all partitions of a reader.

    Args:
        consumer: owned by the reader.
        schema: the columns of the batches.
        batch_rows: messages per poll, at most.
        offsets: positions to commit between two polls, filled by the reader.
        ends: returns where to stop in new partitions; None for the splits' ends.
    """

    def __init__(
        self,
        consumer: Any,
        schema: pa.Schema,
        batch_rows: int,
        offsets: deque[Mapping[Partition, int]],
        ends: Ends | None = None,
    ) -> None:
        self._consumer = consumer
        self._schema = schema
        self._batch_rows = batch_rows
        self._offsets = offsets
        self._ends = ends
        self._splits: dict[Partition, KafkaSplit] = {}
        self._over: list[str] = []
        self._woken = threading.Event()

    def fetch(self) -> RecordsWithSplitIds[Positioned]:
        """Return the next records, or nothing after a wake-up.

        Raises:
            SourceError: an offset to read is not there any more, or the broker refuses a partition.
        """
        while not self._woken.is_set() and not self._over:
            _commit(self._consumer, self._offsets)
            first = self._consumer.poll(_POLL)
            if first is not None:
                # A time of 0 takes what is here; a longer one would wait until all have come.
                rest = (
                    self._consumer.consume(self._batch_rows - 1, 0) if self._batch_rows > 1 else []
                )
                records = self._by_split([first, *rest])
                if records:
                    return RecordsBySplits(records, self._take_over())
        self._woken.clear()
        return RecordsBySplits({}, self._take_over())

    def handle_splits_changes(self, change: SplitsChange[KafkaSplit]) -> None:
        """Start and stop to read partitions."""
        match change:
            case SplitsAddition():
                splits = change.splits if self._ends is None else self._ends(change.splits)
                self._over += [split.split_id for split in splits if split.is_over]
                added = [split for split in splits if not split.is_over]
                self._splits.update((split.key, split) for split in added)
                if added:
                    self._consumer.incremental_assign([_place(split) for split in added])
            case SplitsRemoval():
                self._remove([split for split in change.splits if split.key in self._splits])
            case _:
                raise TypeError(f"unknown change of splits: {type(change).__name__}")

    def wake_up(self) -> None:
        """End a waiting fetch within a tenth of a second; from any thread."""
        self._woken.set()

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[KafkaSplit], splits_to_resume: Sequence[KafkaSplit]
    ) -> None:
        """Pause and resume partitions."""
        self._consumer.pause([_place(s) for s in splits_to_pause if s.key in self._splits])
        self._consumer.resume([_place(s) for s in splits_to_resume if s.key in self._splits])

    def close(self) -> None:
        """Stop reading; the reader closes the consumer."""
        self._remove(list(self._splits.values()))

    def _by_split(self, messages: Sequence[Any]) -> dict[str, list[Positioned]]:
        by_partition: dict[Partition, list[Any]] = {}
        for message in messages:
            key = message.topic(), message.partition()
            if message.error() is not None:
                self._handle(message)
            elif (split := self._splits.get(key)) is not None:
                if split.end is not None and message.offset() >= split.end:
                    self._finish(split)
                else:
                    by_partition.setdefault(key, []).append(message)
        return {
            f"{topic}-{number}": [self._timed(group)]
            for (topic, number), group in by_partition.items()
        }

    def _timed(self, messages: Sequence[Any]) -> Positioned:
        position = messages[-1].offset() + 1
        key = messages[0].topic(), messages[0].partition()
        split = self._splits.get(key)
        if split is not None and split.end is not None and position >= split.end:
            self._finish(split)
        return batch_of(messages, self._schema), position, latest_time(messages)

    def _handle(self, message: Any) -> None:
        from confluent_kafka import KafkaError  # noqa: PLC0415 - optional

        error, split = message.error(), self._splits.get((message.topic(), message.partition()))
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            # Records before the end may be missing: markers of transactions, or compacted ones.
            if split is not None and split.end is not None and message.offset() >= split.end:
                self._finish(split)
            return
        if error.retriable():
            LOG.warning("librdkafka tries again: %s", error_text(error))
            return
        where = "a partition" if split is None else f"partition {split.split_id}"
        splits = [] if split is None else [split.split_id]
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name
            raise lost(where, message.offset(), error_text(error), splits, error.name())
        raise SourceError(
            f"{where} cannot be read: {error_text(error)}",
            details={"splits": splits, "error": error.name()},
        )

    def _finish(self, split: KafkaSplit) -> None:
        self._remove([split])
        self._over.append(split.split_id)

    def _remove(self, splits: Sequence[KafkaSplit]) -> None:
        if splits:
            self._consumer.incremental_unassign([_place(split) for split in splits])
        for split in splits:
            del self._splits[split.key]

    def _take_over(self) -> list[str]:
        over, self._over = self._over, []
        return over


def _place(split: KafkaSplit) -> Any:
    from confluent_kafka import TopicPartition  # noqa: PLC0415 - optional

    return TopicPartition(split.topic, split.partition, split.position)


def _commit(consumer: Any, offsets: deque[Mapping[Partition, int]]) -> None:
    """Commit positions without waiting for the broker."""
    from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - optional

    while offsets:
        positions = offsets.popleft()
        places = [TopicPartition(*key, position) for key, position in positions.items()]
        try:
            consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as error:
            LOG.warning("offsets were not committed: %s", error_text(error))


def _committed(error: Any, partitions: Any) -> None:
    if error is not None:
        LOG.warning("offsets of %s were not committed: %s", partitions, error_text(error))
