"""A small job around one source: an enumerator and readers, all in the caller's thread.

It uses only the interfaces of the Source API, and none of the code that runs a source elsewhere.
Splits and checkpoints go through the source's serializers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from headgate.source.api import InputStatus, ReaderInfo, ReaderOutput, Source
from headgate.source.testing.contexts import TestEnumeratorContext, TestReaderContext
from headgate.source.testing.rows import rows_of

if TYPE_CHECKING:
    from headgate.source.api import SourceOutput, SourceReader, SourceSplit

#: Longest wait for the readers' futures, in seconds, before the job looks for other work.
_NAP: Final = 0.02

Stored = tuple[int, bytes]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of the job.

    Attributes:
        enumerator: version and bytes of the enumerator's state.
        splits: version and bytes of each unfinished split.
        rows: the rows emitted before the checkpoint, with their splits.
    """

    enumerator: Stored
    splits: tuple[Stored, ...]
    rows: tuple[tuple[str | None, Any], ...]


class CollectingOutput(ReaderOutput[Any]):
    """Keeps the records of a reader or of one split, each with its split."""

    def __init__(self, reader: ReaderSlot, split_id: str | None = None) -> None:
        self._reader = reader
        self._split_id = split_id
        self._is_released = False
        self._outputs: dict[str, CollectingOutput] = {}

    def collect(self, record: Any, timestamp: int | None = None) -> None:
        """Keep a record."""
        del timestamp
        if self._is_released:
            raise AssertionError(
                f"split {self._split_id} emitted a record after it was reported finished"
            )
        self._reader.records.append((self._split_id, record))

    def release(self) -> None:
        """Refuse further records."""
        self._is_released = True

    def emit_watermark(self, timestamp: int) -> None:
        """Do nothing: watermarks are not part of this contract."""

    def mark_idle(self) -> None:
        """Do nothing."""

    def mark_active(self) -> None:
        """Do nothing."""

    def create_output_for_split(self, split_id: str) -> SourceOutput[Any]:
        """Return the output of a split."""
        return self._outputs.setdefault(split_id, CollectingOutput(self._reader, split_id))

    def release_output_for_split(self, split_id: str) -> None:
        """Refuse further records of a split."""
        output = self._outputs.pop(split_id, None)
        if output is not None:
            output.release()


class ReaderSlot:
    """A reader and its state in the job.

    Attributes:
        index: the reader's number.
        records: the emitted records, with their splits.
        assigned: the assigned splits.
        waits_for: the future of the last poll, if that poll had no data.
        knows_no_more: True once the reader was told that no split follows.
        ended: True once the reader returned ``END_OF_INPUT``.
        lost: True once the reader was replaced.
    """

    def __init__(self, job: Job, index: int) -> None:
        self.index = index
        self.records: list[tuple[str | None, Any]] = []
        self.assigned: list[Stored] = []
        self.waits_for: Future[None] | None = None
        self.knows_no_more = False
        self.ended = False
        self.lost = False
        self.output = CollectingOutput(self)
        context = TestReaderContext(index, job.parallelism, lambda action: job.post(self, action))
        context.on_request = lambda: job.request(self)
        context.on_event = lambda event: job.enumerator.handle_source_event(index, event)
        self.reader: SourceReader[Any, Any] = job.source.create_reader(context)

    @property
    def is_idle(self) -> bool:
        """True while the reader waits for a pending future, and once it has ended."""
        return self.ended or (self.waits_for is not None and not self.waits_for.done())

    def poll(self) -> InputStatus:
        """Poll once and check the answer against the contract."""
        status = self.reader.poll_next(self.output)
        if not isinstance(status, InputStatus):
            raise AssertionError(  # noqa: TRY004 - a failed test
                f"poll_next() returned {status!r}, which is not an InputStatus"
            )
        if status is InputStatus.END_OF_INPUT:
            if not self.knows_no_more:
                raise AssertionError(
                    "END_OF_INPUT before notify_no_more_splits(): a split may still be added"
                )
            self.ended = True
        self.waits_for = None
        if status is InputStatus.NOTHING_AVAILABLE:
            self.waits_for = self.reader.is_available()
        return status


class Job:
    """Runs a source until a condition is true.

    Args:
        source: the source to run.
        parallelism: the number of readers.
        checkpoint: the checkpoint to restore; None to start at the beginning.
        timeout: seconds without progress after which the job fails.
    """

    def __init__(
        self,
        source: Source[Any, Any, Any],
        parallelism: int = 1,
        *,
        checkpoint: Checkpoint | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.source = source
        self.parallelism = parallelism
        self.timeout = timeout
        self.before = checkpoint.rows if checkpoint else ()
        self.hold_splits = self.hold_no_more = False
        self.split_ids: set[str] = set()
        self._held: deque[Callable[[], None]] = deque()
        self._checkpoint_id = 0
        self.context = TestEnumeratorContext(parallelism, self._assign, self._tell_no_more)
        self.context.on_event = lambda index, event: self.readers[index].reader.handle_source_event(
            event
        )
        if checkpoint is None:
            self.enumerator = source.create_enumerator(self.context)
        else:
            version, data = checkpoint.enumerator
            state = source.enumerator_checkpoint_serializer.deserialize(version, data)
            self.enumerator = source.restore_enumerator(self.context, state)
        self.readers = [ReaderSlot(self, index) for index in range(parallelism)]
        self._restored = checkpoint.splits if checkpoint else ()

    def start(self) -> Self:
        """Start enumerator and readers; the readers get the restored splits in turn."""
        self.enumerator.start()
        for slot in self.readers:
            self._register(slot)
        for place, stored in enumerate(self._restored):
            self._deliver(self.readers[(place + 1) % self.parallelism], [stored])
        return self

    def _register(self, slot: ReaderSlot) -> None:
        self.context.readers[slot.index] = ReaderInfo(slot.index, "localhost")
        self.enumerator.add_reader(slot.index)
        slot.reader.start()

    # Called by the source.

    def post(self, slot: ReaderSlot, action: Callable[[], None]) -> None:
        """Queue an action for a reader, which is dropped if the reader is lost by then."""
        self.context.mail.append(lambda: None if slot.lost else action())

    def request(self, slot: ReaderSlot) -> None:
        """Pass on a request, unless the reader was told that no split follows."""
        if not slot.knows_no_more:
            self.enumerator.handle_split_request(slot.index, "localhost")

    def _assign(self, index: int, splits: list[SourceSplit]) -> None:
        serializer = self.source.split_serializer
        stored = [(serializer.version, serializer.serialize(split)) for split in splits]
        self.split_ids.update(split.split_id for split in splits)
        slot = self.readers[index]
        slot.assigned += stored
        if self.hold_splits:
            self._held.append(lambda: self._deliver(slot, stored))
        else:
            self.post(slot, lambda: self._deliver(slot, stored))

    def _deliver(self, slot: ReaderSlot, stored: list[Stored]) -> None:
        if stored and not slot.lost:
            slot.reader.add_splits(self.splits_of(stored))

    def splits_of(self, stored: list[Stored]) -> list[Any]:
        """Return splits from their bytes."""
        return [self.source.split_serializer.deserialize(*versioned) for versioned in stored]

    def _tell_no_more(self, index: int) -> None:
        slot = self.readers[index]

        def tell() -> None:
            slot.knows_no_more = True
            slot.reader.notify_no_more_splits()

        if self.hold_no_more or self.hold_splits:
            self._held.append(tell)
        else:
            self.post(slot, tell)

    def release(self) -> None:
        """Deliver the held splits and signals, and stop holding them."""
        self.hold_splits = self.hold_no_more = False
        while self._held:
            self._held.popleft()()

    # Called by tests.

    def run(self, until: Callable[[], bool], what: str) -> None:
        """Run until a condition is true.

        Raises:
            AssertionError: there was no progress for ``timeout`` seconds.
        """
        deadline = time.monotonic() + self.timeout
        while not until():
            emitted = self.num_elements
            moved = self.context.run_mail()
            ready = False
            for slot in self.readers:
                if slot.is_idle:
                    continue
                ready |= slot.poll() is not InputStatus.NOTHING_AVAILABLE
                if until():
                    return
            if moved or self.num_elements > emitted:
                deadline = time.monotonic() + self.timeout
            elif time.monotonic() > deadline:
                raise AssertionError(f"waited {self.timeout:g} s for {what}; {self._standstill()}")
            elif not (ready or self.context.mail or self.context.run_async()):
                self._nap()

    def _nap(self) -> None:
        waiting = [s.waits_for for s in self.readers if s.waits_for is not None and not s.ended]
        if self.is_idle:
            wait(waiting, timeout=_NAP, return_when=FIRST_COMPLETED)

    def _standstill(self) -> str:
        states = []
        for slot in self.readers:
            if slot.ended:
                states.append(f"reader {slot.index} has ended")
            elif slot.waits_for is not None and not slot.waits_for.done():
                states.append(
                    f"reader {slot.index} returned NOTHING_AVAILABLE, and its future is still "
                    "pending"
                )
            else:
                states.append(f"reader {slot.index} is polled again and again without a record")
        return f"{self.num_elements} records came; {', '.join(states)}"

    def run_to_end(self) -> None:
        """Run until every reader has ended."""
        self.run(lambda: all(slot.ended for slot in self.readers), "the end of all readers")

    def run_elements(self, count: int) -> None:
        """Run until this job has emitted ``count`` records."""
        self.run(lambda: self.num_elements >= count, f"record {count}")

    # Results.

    @property
    def is_idle(self) -> bool:
        """True while there is no work until a future completes."""
        return not self.context.mail and all(slot.is_idle for slot in self.readers)

    @property
    def num_elements(self) -> int:
        """The number of records that this job's readers have emitted."""
        return sum(len(slot.records) for slot in self.readers)

    @property
    def emitted(self) -> list[tuple[str | None, Any]]:
        """The rows with their splits; rows before the restored checkpoint come first."""
        records = [record for slot in self.readers for record in slot.records]
        return [*self.before, *((i, row) for i, record in records for row in rows_of(record))]

    def checkpoint(self) -> Checkpoint:
        """Return a checkpoint of the enumerator and the readers."""
        while self.context.run_mail():
            pass
        self._checkpoint_id += 1
        serializer = self.source.enumerator_checkpoint_serializer
        state = serializer.serialize(self.enumerator.snapshot_state(self._checkpoint_id))
        splits = self.source.split_serializer
        stored = tuple(
            (splits.version, splits.serialize(split))
            for slot in self.readers
            for split in slot.reader.snapshot_state(self._checkpoint_id)
        )
        return Checkpoint((serializer.version, state), stored, tuple(self.emitted))

    def lose_reader(self, index: int) -> None:
        """Replace a reader: drop its records, return its splits and register a new reader."""
        old = self.readers[index]
        old.lost = True
        old.reader.close()
        del self.context.readers[index]
        self.enumerator.add_splits_back(self.splits_of(old.assigned), index)
        self.readers[index] = ReaderSlot(self, index)
        self._register(self.readers[index])

    def close(self) -> None:
        """Close readers and enumerator, each twice, which the contract allows."""
        for _ in range(2):
            for slot in self.readers:
                slot.reader.close()
            self.enumerator.close()

    def __enter__(self) -> Self:
        """Return the started job."""
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc: object) -> None:
        """Close the job."""
        self.close()
