"""The reader of a chain of sources, which runs one source's reader at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from headgate.source.api import (
    InputStatus,
    ReaderOutput,
    Source,
    SourceEvent,
    SourceOutput,
    SourceReader,
    SourceReaderContext,
)
from headgate.source.hybrid.state import (
    FINISHED,
    NO_MORE_SPLITS,
    SWITCH,
    HybridSplit,
    index_event,
    index_of,
    inner_event,
    parse_inner_event,
)

T = TypeVar("T")


class HybridSourceReader(SourceReader[T, HybridSplit]):
    """Reads the source that the enumerator selects, after splits of earlier sources.

    Splits of a later source are kept until it becomes current, as a part of the state.

    Args:
        sources: the sources of the chain.
        context: the reader's context.
    """

    def __init__(
        self, sources: Sequence[Source[T, Any, Any]], context: SourceReaderContext
    ) -> None:
        self._sources, self._context = sources, context
        self._index = -1
        self._target = -1
        self._inner: SourceReader[T, Any] | None = None
        self._inner_context: _InnerContext | None = None
        self._output: _IndexedOutput[T] | None = None
        #: Splits of the current reader whose outputs are not released.
        self._unreleased: dict[str, None] = {}
        self._later: dict[int, list[Any]] = {}
        self._without_more: set[int] = set()
        self._no_more_splits = False
        self._announced: int | None = None
        self._has_ended = False
        self._available: Future[None] = Future()

    @property
    def reads_in_order(self) -> bool:
        """True if the current reader reads one split after another."""
        return self._inner is not None and self._inner.reads_in_order

    def start(self) -> None:
        """Do nothing; the first poll sends ``FINISHED``, unless all splits have come by then."""

    def poll_next(self, output: ReaderOutput[T]) -> InputStatus:
        """Emit the next element of the current source."""
        if self._has_ended:
            return InputStatus.END_OF_INPUT
        if self._inner is None and not self._begin_next():
            return self._end_or_wait()
        assert self._inner is not None  # noqa: S101 - for the type checker; set by _begin_next
        if self._output is None or self._output.wrapped is not output:
            self._output = _IndexedOutput(output, self._index, self._unreleased)
        status = self._inner.poll_next(self._output)
        if status is not InputStatus.END_OF_INPUT:
            return status
        # A reader need not use the outputs of its splits. They must not hold the next source back.
        for split_id in list(self._unreleased):
            self._output.release_output_for_split(split_id)
        self._close_inner()
        return InputStatus.MORE_AVAILABLE

    def is_available(self) -> Future[None]:
        """Return the future of the current reader, or one that completes with the next source."""
        return self._available if self._inner is None else self._inner.is_available()

    def add_splits(self, splits: Sequence[HybridSplit]) -> None:
        """Pass splits to the current reader, or keep them until their source is current."""
        current = [split.split for split in splits if split.index == self._index]
        if self._inner is not None and current:
            self._give(self._inner, current)
        for split in splits:
            if self._inner is None or split.index != self._index:
                self._later.setdefault(split.index, []).append(split.split)
        self._notify()

    def notify_no_more_splits(self) -> None:
        """Handle the signal that no split follows, of any source."""
        self._no_more_splits = True
        if self._inner is not None:
            self._inner.notify_no_more_splits()
        self._notify()

    def snapshot_state(self, checkpoint_id: int) -> list[HybridSplit]:
        """Return the splits of the current reader, and the kept ones."""
        state = [
            HybridSplit(index, split) for index, splits in self._later.items() for split in splits
        ]
        if self._inner is not None:
            current = self._inner.snapshot_state(checkpoint_id)
            state += [HybridSplit(self._index, split) for split in current]
        return state

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]
    ) -> None:
        """Pause and resume splits of the current reader; ignore all others."""
        if self._inner is not None:
            self._inner.pause_or_resume_splits(
                self._inner_ids(splits_to_pause), self._inner_ids(splits_to_resume)
            )

    def handle_source_event(self, event: SourceEvent) -> None:
        """Handle an event of the chain, or pass it to the current reader."""
        if event.name == SWITCH:
            self._target = index_of(event)
        elif event.name == NO_MORE_SPLITS:
            index = index_of(event)
            self._without_more.add(index)
            if self._inner is not None and index == self._index:
                self._inner.notify_no_more_splits()
        else:
            inner = parse_inner_event(event)
            if inner is None:
                super().handle_source_event(event)
            elif self._inner is not None and inner[0] == self._index:
                self._inner.handle_source_event(inner[1])
        self._notify()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the current reader."""
        if self._inner is not None:
            self._inner.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify the current reader."""
        if self._inner is not None:
            self._inner.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Close the current reader."""
        self._has_ended = True
        self._close_inner()

    def _begin_next(self) -> bool:
        """Create the reader of the next source that has work; return False if there is none."""
        due = [index for index in self._later if index <= self._target or self._no_more_splits]
        if self._target > self._index:
            due.append(self._target)
        if not due:
            return False
        self._index = min(due)
        is_earlier = self._index < self._target
        self._inner_context = _InnerContext(self._context, self._index, is_mute=is_earlier)
        self._inner = self._sources[self._index].create_reader(self._inner_context)
        self._inner.start()
        splits = self._later.pop(self._index, [])
        if splits:
            self._give(self._inner, splits)
        if is_earlier or self._no_more_splits or self._index in self._without_more:
            self._inner.notify_no_more_splits()
        return True

    def _give(self, inner: SourceReader[T, Any], splits: Sequence[Any]) -> None:
        self._unreleased.update(dict.fromkeys(split.split_id for split in splits))
        inner.add_splits(splits)

    def _end_or_wait(self) -> InputStatus:
        if self._no_more_splits:
            self._has_ended = True
            return InputStatus.END_OF_INPUT
        if self._announced is None or self._announced < self._target:
            self._announced = self._target
            event = index_event(FINISHED, self._announced)
            self._context.send_source_event_to_coordinator(event)
        if self._available.done():
            self._available = Future()
        return InputStatus.NOTHING_AVAILABLE

    def _close_inner(self) -> None:
        inner, self._inner, self._output = self._inner, None, None
        if self._inner_context is not None:
            self._inner_context.is_mute = True
        if inner is not None:
            inner.close()

    def _notify(self) -> None:
        if not self._available.done():
            self._available.set_result(None)

    def _inner_ids(self, split_ids: Sequence[str]) -> list[str]:
        prefix = f"{self._index}:"
        return [
            split_id.removeprefix(prefix) for split_id in split_ids if split_id.startswith(prefix)
        ]


class _InnerContext(SourceReaderContext):
    """The context of one source's reader.

    Attributes:
        is_mute: True while the enumerator runs another source; requests and events are dropped.
    """

    def __init__(self, context: SourceReaderContext, index: int, *, is_mute: bool) -> None:
        self._context, self._index = context, index
        self.is_mute = is_mute

    @property
    def index_of_subtask(self) -> int:
        return self._context.index_of_subtask

    @property
    def current_parallelism(self) -> int:
        return self._context.current_parallelism

    @property
    def local_host_name(self) -> str:
        return self._context.local_host_name

    @property
    def configuration(self) -> Mapping[str, str]:
        return self._context.configuration

    def send_split_request(self) -> None:
        if not self.is_mute:
            self._context.send_split_request()

    def send_source_event_to_coordinator(self, event: SourceEvent) -> None:
        if not self.is_mute:
            self._context.send_source_event_to_coordinator(inner_event(self._index, event))


class _IndexedOutput(ReaderOutput[T]):
    """The output of one source's reader, which adds the source's index to the ids of splits.

    Args:
        wrapped: takes the records.
        index: of the source.
        unreleased: the ids of splits; one is removed when its output is released.
    """

    def __init__(self, wrapped: ReaderOutput[T], index: int, unreleased: dict[str, None]) -> None:
        self.wrapped = wrapped
        self._index = index
        self._unreleased = unreleased

    def collect(self, record: T, timestamp: int | None = None) -> None:
        self.wrapped.collect(record, timestamp)

    def emit_watermark(self, timestamp: int) -> None:
        self.wrapped.emit_watermark(timestamp)

    def mark_idle(self) -> None:
        self.wrapped.mark_idle()

    def mark_active(self) -> None:
        self.wrapped.mark_active()

    def create_output_for_split(self, split_id: str) -> SourceOutput[T]:
        return self.wrapped.create_output_for_split(f"{self._index}:{split_id}")

    def release_output_for_split(self, split_id: str) -> None:
        self._unreleased.pop(split_id, None)
        self.wrapped.release_output_for_split(f"{self._index}:{split_id}")
