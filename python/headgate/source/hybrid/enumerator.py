"""The enumerator of a chain of sources, which runs one source's enumerator at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.source.api import ReaderInfo, SourceEvent, SplitEnumerator, SplitEnumeratorContext
from headgate.source.hybrid.state import (
    FINISHED,
    NO_MORE_SPLITS,
    SWITCH,
    HybridCheckpoint,
    HybridSplit,
    HybridSplitSerializer,
    index_event,
    index_of,
    inner_event,
    parse_inner_event,
)

if TYPE_CHECKING:
    from headgate.source.hybrid.chained import ChainedSource

WorkT = TypeVar("WorkT")


class HybridSplitEnumerator(SplitEnumerator[HybridSplit, HybridCheckpoint]):
    """Passes requests to the current source's enumerator, and switches when all readers are done.

    A reader sends :data:`FINISHED` at its start and at the end of each source, and gets
    :data:`SWITCH`. A reader that requests splits without having sent an event belongs to a plan; it
    moves from source to source without events.

    Args:
        context: the coordinator.
        links: the sources.
        checkpoint: the checkpoint to restore; None to start at the beginning.
    """

    def __init__(
        self,
        context: SplitEnumeratorContext[HybridSplit],
        links: Sequence[ChainedSource],
        checkpoint: HybridCheckpoint | None = None,
    ) -> None:
        self._context, self._links = context, links
        self._serializer = HybridSplitSerializer([link.source.split_serializer for link in links])
        self._index = 0 if checkpoint is None else checkpoint.index
        self._earlier = [
            self._serializer.deserialize(self._serializer.version, data)
            for data in (() if checkpoint is None else checkpoint.earlier)
        ]
        #: Readers that are at the current source.
        self._admitted: set[int] = set()
        #: Readers that have finished the current source.
        self._finished: set[int] = set()
        #: Readers whose splits came back, and which have not registered again.
        self._lost: set[int] = set()
        #: Readers of a plan, which send no events.
        self._silent: set[int] = set()
        self._requests: dict[int, str | None] = {}
        self._totals: list[int | None] = [None] * self._index
        self._inner_context = _InnerContext(self, context, self._index)
        source = links[self._index].source
        if checkpoint is None:
            self._inner = source.create_enumerator(self._inner_context)
        else:
            state = source.enumerator_checkpoint_serializer.deserialize(
                checkpoint.version, checkpoint.state
            )
            self._inner = source.restore_enumerator(self._inner_context, state)

    def start(self) -> None:
        """Start the enumerator of the current source."""
        self._context.set_is_processing_backlog(not self.is_last)
        self._inner.start()

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """Pass a request to the current enumerator."""
        if subtask_id not in self._admitted:
            self._silent.add(subtask_id)
            self._admit(subtask_id)
        if subtask_id in self._silent:
            self._requests[subtask_id] = requester_hostname
        self._inner.handle_split_request(subtask_id, requester_hostname)

    def add_splits_back(self, splits: Sequence[HybridSplit], subtask_id: int) -> None:
        """Return the current source's splits to its enumerator; keep those of earlier sources."""
        is_known = subtask_id in self._admitted
        self._forget(subtask_id)
        if splits:
            self._lost.add(subtask_id)
        self._earlier += [split for split in splits if split.index != self._index]
        current = [split.split for split in splits if split.index == self._index]
        # Also without a split: the enumerator may have kept a request of the lost reader.
        if current or is_known:
            self._inner.add_splits_back(current, subtask_id)

    def add_reader(self, subtask_id: int) -> None:
        """Wait for the reader's first event or request."""
        self._forget(subtask_id)
        self._lost.discard(subtask_id)

    def handle_source_event(self, subtask_id: int, event: SourceEvent) -> None:
        """Handle a reader's ``FINISHED``, or pass the event to the current enumerator."""
        if event.name == FINISHED:
            if index_of(event) >= self._index:
                self._finished.add(subtask_id)
                self._switch_when_all_are_done()
            else:
                self._admit(subtask_id)
            return
        inner = parse_inner_event(event)
        if inner is None:
            super().handle_source_event(subtask_id, event)
        elif inner[0] == self._index:
            self._inner.handle_source_event(subtask_id, inner[1])

    def snapshot_state(self, checkpoint_id: int) -> HybridCheckpoint:
        """Return the index of the current source, and the state of its enumerator."""
        serializer = self._links[self._index].source.enumerator_checkpoint_serializer
        return HybridCheckpoint(
            self._index,
            serializer.version,
            serializer.serialize(self._inner.snapshot_state(checkpoint_id)),
            tuple(self._serializer.serialize(split) for split in self._earlier),
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the current enumerator."""
        self._inner.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify the current enumerator."""
        self._inner.notify_checkpoint_aborted(checkpoint_id)

    @property
    def total_splits(self) -> int | None:
        """The number of splits of all sources, once the last one has started; None if unknown."""
        if not self.is_last:
            return None
        totals = [total for total in [*self._totals, self._inner.total_splits] if total is not None]
        return sum(totals) if len(totals) == len(self._links) else None

    def close(self) -> None:
        """Close the current enumerator."""
        self._inner_context.is_over = True
        self._inner.close()

    # Called by the context of the current source.

    @property
    def readers(self) -> Mapping[int, ReaderInfo]:
        """The registered readers that are at the current source."""
        registered = self._context.registered_readers
        return {subtask: info for subtask, info in registered.items() if subtask in self._admitted}

    def assigned(self, subtasks: Sequence[int]) -> None:
        """Record that requests were answered with splits."""
        for subtask in subtasks:
            self._requests.pop(subtask, None)

    def no_more_splits(self, subtask_id: int) -> None:
        """Tell a reader that the current source has no further split."""
        if self.is_last:
            self._context.signal_no_more_splits(subtask_id)
        elif subtask_id in self._silent:
            self._finished.add(subtask_id)
            # Switch later: this is a call of the current enumerator, which the switch closes.
            self._context.run_in_coordinator_thread(self._switch_when_all_are_done)
        else:
            event = index_event(NO_MORE_SPLITS, self._index)
            self._context.send_event_to_source_reader(subtask_id, event)

    @property
    def is_last(self) -> bool:
        """True while the current source is the last one."""
        return self._index == len(self._links) - 1

    def _forget(self, subtask_id: int) -> None:
        for readers in (self._admitted, self._finished, self._silent):
            readers.discard(subtask_id)
        self._requests.pop(subtask_id, None)

    def _admit(self, subtask_id: int) -> None:
        """Start a reader with the current source, and assign it the left splits of earlier ones.

        The reader reads splits of earlier sources first.
        """
        earlier, self._earlier = self._earlier, []
        if earlier:
            self._context.assign_splits({subtask_id: earlier})
        if subtask_id not in self._silent:
            event = index_event(SWITCH, self._index)
            self._context.send_event_to_source_reader(subtask_id, event)
        self._admitted.add(subtask_id)
        self._inner.add_reader(subtask_id)

    def _switch_when_all_are_done(self) -> None:
        # A lost reader registers again; until then its splits may be unread.
        waits_for = set(self._context.registered_readers) | self._lost
        if self.is_last or not waits_for or not waits_for <= self._finished:
            return
        previous = self._inner
        self._inner_context.is_over = True
        self._totals.append(previous.total_splits)
        self._index += 1
        self._inner_context = _InnerContext(self, self._context, self._index)
        self._inner = self._links[self._index].create_enumerator(self._inner_context, previous)
        previous.close()
        self._finished.clear()
        self._admitted.clear()
        self._context.set_is_processing_backlog(not self.is_last)
        self._inner.start()
        for subtask_id in sorted(self._context.registered_readers):
            self._admit(subtask_id)
        for subtask_id, host in list(self._requests.items()):
            self._inner.handle_split_request(subtask_id, host)


class _InnerContext(SplitEnumeratorContext[Any]):
    """The context of one source's enumerator.

    Attributes:
        is_over: True once another source is current; all calls are ignored then.
    """

    def __init__(
        self,
        chain: HybridSplitEnumerator,
        context: SplitEnumeratorContext[HybridSplit],
        index: int,
    ) -> None:
        self._chain, self._context, self._index = chain, context, index
        self.is_over = False

    @property
    def current_parallelism(self) -> int:
        return self._context.current_parallelism

    @property
    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        return self._chain.readers

    @property
    def has_watermarks(self) -> bool:
        return self._context.has_watermarks

    def assign_splits(self, assignment: Mapping[int, Sequence[Any]]) -> None:
        if self.is_over:
            return
        self._context.assign_splits(
            {
                subtask: [HybridSplit(self._index, split) for split in splits]
                for subtask, splits in assignment.items()
            }
        )
        self._chain.assigned(list(assignment))

    def signal_no_more_splits(self, subtask_id: int) -> None:
        if not self.is_over:
            self._chain.no_more_splits(subtask_id)

    def send_event_to_source_reader(self, subtask_id: int, event: SourceEvent) -> None:
        if not self.is_over:
            self._context.send_event_to_source_reader(subtask_id, inner_event(self._index, event))

    def call_async(
        self,
        work: Callable[[], WorkT],
        handler: Callable[[WorkT | None, BaseException | None], None],
        initial_delay: float = 0.0,
        period: float | None = None,
    ) -> None:
        def handle(result: WorkT | None, error: BaseException | None) -> None:
            if not self.is_over:
                handler(result, error)

        self._context.call_async(work, handle, initial_delay, period)

    def run_in_coordinator_thread(self, action: Callable[[], None]) -> None:
        def act() -> None:
            if not self.is_over:
                action()

        self._context.run_in_coordinator_thread(act)

    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        if not self.is_over and self._chain.is_last:
            self._context.set_is_processing_backlog(is_processing_backlog)
