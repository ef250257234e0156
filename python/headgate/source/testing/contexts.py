"""The contexts of a source under test, without threads and without a clock."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headgate.source.api import (
    ReaderInfo,
    SourceEvent,
    SourceReaderContext,
    SourceSplit,
    SplitEnumeratorContext,
)


class TestEnumeratorContext(SplitEnumeratorContext[Any]):
    """Runs asynchronous calls in the caller's thread, in the order of their due times.

    Args:
        parallelism: number of readers.
        assign: called with a reader and its splits.
        tell_no_more: called with a reader that gets no further split.
    """

    __test__ = False  # Keeps pytest from collecting it as a test.

    def __init__(
        self,
        parallelism: int,
        assign: Callable[[int, list[SourceSplit]], None],
        tell_no_more: Callable[[int], None],
    ) -> None:
        self.readers: dict[int, ReaderInfo] = {}
        self.mail: deque[Callable[[], None]] = deque()
        self.on_event: Callable[[int, SourceEvent], None]
        self._parallelism = parallelism
        self._assign = assign
        self._tell_no_more = tell_no_more
        self._calls: list[tuple[float, int, Callable[[], None], float | None]] = []
        self._numbers = itertools.count()
        self._now = 0.0

    @property
    def current_parallelism(self) -> int:
        """The number of readers."""
        return self._parallelism

    @property
    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        """The registered readers."""
        return dict(self.readers)

    def assign_splits(self, assignment: Mapping[int, Sequence[SourceSplit]]) -> None:
        """Assign splits to readers."""
        for index in assignment:
            self._check(index)
        for index, splits in assignment.items():
            self._assign(index, list(splits))

    def signal_no_more_splits(self, subtask_id: int) -> None:
        """Tell a reader that no split follows."""
        self._check(subtask_id)
        self._tell_no_more(subtask_id)

    def send_event_to_source_reader(self, subtask_id: int, event: SourceEvent) -> None:
        """Send an event to a reader."""
        self._check(subtask_id)
        self.mail.append(lambda: self.on_event(subtask_id, event))

    def call_async(
        self,
        work: Callable[[], Any],
        handler: Callable[[Any, BaseException | None], None],
        initial_delay: float = 0.0,
        period: float | None = None,
    ) -> None:
        """Queue a call, which runs once there is no other work, without waiting for its delay."""

        def call() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - passed to the handler
                handler(None, error)
            else:
                handler(result, None)

        self._push(initial_delay, call, period)

    def run_in_coordinator_thread(self, action: Callable[[], None]) -> None:
        """Queue an action; from any thread."""
        self.mail.append(action)

    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        """Do nothing."""

    def run_mail(self) -> bool:
        """Run the queued actions; return True if there were any."""
        count = len(self.mail)
        for _ in range(count):
            self.mail.popleft()()
        return count > 0

    def run_async(self) -> bool:
        """Run the next asynchronous call; return True if it is not periodic."""
        if not self._calls:
            return False
        self._now, _, call, period = heapq.heappop(self._calls)
        if period is not None:
            self._push(period, call, period)
        call()
        return period is None

    def _push(self, delay: float, call: Callable[[], None], period: float | None) -> None:
        heapq.heappush(self._calls, (self._now + delay, next(self._numbers), call, period))

    def _check(self, index: int) -> None:
        if index not in self.readers:
            raise ValueError(
                f"reader {index} is not registered (registered: {sorted(self.readers)})"
            )


class TestReaderContext(SourceReaderContext):
    """Posts the reader's requests and events to the job; from any thread.

    Args:
        index: the reader's number.
        parallelism: the number of readers.
        post: takes an action to run later.
    """

    __test__ = False

    def __init__(
        self, index: int, parallelism: int, post: Callable[[Callable[[], None]], None]
    ) -> None:
        self.on_request: Callable[[], None]
        self.on_event: Callable[[SourceEvent], None]
        self._index = index
        self._parallelism = parallelism
        self._post = post

    @property
    def index_of_subtask(self) -> int:
        """The reader's number."""
        return self._index

    @property
    def current_parallelism(self) -> int:
        """The number of readers."""
        return self._parallelism

    @property
    def local_host_name(self) -> str:
        """A name for this machine."""
        return "localhost"

    @property
    def configuration(self) -> Mapping[str, str]:
        """No options."""
        return {}

    def send_split_request(self) -> None:
        """Request a split from the enumerator."""
        self._post(self.on_request)

    def send_source_event_to_coordinator(self, event: SourceEvent) -> None:
        """Send an event to the enumerator."""
        self._post(functools.partial(self.on_event, event))
