"""Plans of a source: list the splits that exist now, and read exactly these splits elsewhere.

For engines that plan in one place and read in others, one plan after another: each plan continues
from the checkpoint of the one before.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate._arguments import instance, integer, octets, refuse, takes, whole
from headgate._arguments import timeout as seconds
from headgate.errors import HeadgateError, NotBuiltError, SourceError
from headgate.source.api.source import Boundedness, Source
from headgate.source.coordination.coordinator import SourceCoordinator
from headgate.source.coordination.thread import CoordinatorThread
from headgate.source.local import MOST_READERS
from headgate.source.runtime.context import LocalReaderContext
from headgate.source.runtime.mailbox import Mailbox
from headgate.source.runtime.operator import SourceOperator

if TYPE_CHECKING:
    from headgate.source.api.event import SourceEvent

T = TypeVar("T")

#: Longest wait of a close for a running callback of the enumerator, in seconds.
_CLOSE: Final = 2.0
#: Calls that run an enumerator beside its readers.
_WITH_EVENTS: Final = "headgate.source.read(source) · headgate.stream.stream(source) ... .start()"


@dataclass(frozen=True, slots=True)
class Planned:
    """The splits of one plan.

    Attributes:
        version: the version of the split serializer that wrote the splits.
        splits: ids and bytes.
        checkpoint: the enumerator's checkpoint without these splits, for the next plan.
        is_finished: True if no later plan will have a split.
        takes_events: True if the enumerator has a use for events of readers, which it gets in no plan.
    """

    version: int
    splits: tuple[tuple[str, bytes], ...]
    checkpoint: bytes
    is_finished: bool
    takes_events: bool


@takes(
    source=instance("a Source", Source, remedy="plan_splits(NumberSequenceSource(0, 10))"),
    checkpoint=octets(),
    max_splits=whole(1),
    parallelism=whole(1, MOST_READERS),
    timeout=seconds,
)
def plan_splits(
    source: Source[Any, Any, Any],
    checkpoint: bytes | None = None,
    *,
    max_splits: int | None = None,
    parallelism: int = 1,
    timeout: float = 60.0,
) -> Planned:
    """Return the splits that an enumerator has now.

    Simulated readers request them. Periodic work of the enumerator's ``start()``, such as a look
    for new files every minute, runs at once, and once. An unbounded source has no split left when
    requests are open and the enumerator runs nothing; for a bounded source the plan waits on.

    Args:
        source: the source to plan.
        checkpoint: the checkpoint of the plan before; None to start at the beginning.
        max_splits: number of splits after which requests stop, at least 1. An enumerator that
            assigns several splits at a time may exceed it.
        parallelism: the number of simulated readers.
        timeout: seconds for the whole plan.

    Raises:
        SourceError: the enumerator failed, or did not answer in time.
        NotBuiltError: the enumerator sends events to its readers, which a plan does not have.
        OptionError: the limit is less than 1.
    """
    thread = CoordinatorThread()
    plan = _Plan(source, parallelism, max_splits, thread)
    try:
        return plan.make(checkpoint, timeout)
    finally:
        plan.coordinator.close(_CLOSE)
        thread.close(_CLOSE)


@takes(
    source=instance("a Source", Source, remedy="read_splits(source, plan.version, plan.splits)"),
    version=integer,
    splits=instance("the splits of a plan", list, tuple),
    index=whole(0, MOST_READERS),
    parallelism=whole(1, MOST_READERS),
)
def read_splits(
    source: Source[T, Any, Any],
    version: int,
    splits: Sequence[tuple[str, bytes]],
    *,
    index: int = 0,
    parallelism: int = 1,
) -> Generator[T, None, None]:
    """Read exactly these splits in this process and thread.

    Args:
        source: the source of the splits.
        version: the version of the split serializer that wrote the splits.
        splits: ids and bytes, as in :class:`Planned`.
        index: number of this reader among those that read at the same time.
        parallelism: their number; a source divides its limit of rows per second by it.

    Yields:
        The records.

    Raises:
        SourceError: the source failed; the error names the splits that were being read.
        NotBuiltError: the reader sends events to the enumerator, which does not run here.
    """
    for split in cast("Sequence[Any]", splits):
        if not isinstance(split, tuple | list) or [*map(type, split)] != [str, bytes]:
            raise refuse("splits", split, "is no split", "pairs of an id and bytes")

    def refuse_event(event: SourceEvent) -> None:
        raise NotBuiltError(
            f"the readers of {source.name} send events to its enumerator, which does not run here",
            asked=f"event {event.name!r}",
            remedy=_WITH_EVENTS,
        )

    # Requests need no answer: the reader is told that no split follows.
    context = LocalReaderContext(index, parallelism, lambda _host: None, refuse_event)
    mailbox = Mailbox()
    operator = SourceOperator(source, context, mailbox.signal)
    with closing(operator):
        operator.start()
        if splits:
            operator.add_splits(version, splits)
        operator.no_more_splits()
        while not operator.is_finished:
            mailbox.clear()
            record = operator.poll()
            if record is not None:
                yield record
            elif not operator.is_finished:
                mailbox.wait(operator.timeout())


class _Plan:
    """Simulated readers, and the gateway to them. All but make() runs on the coordinator's thread.

    Attributes:
        coordinator: runs the enumerator.
    """

    def __init__(
        self,
        source: Source[Any, Any, Any],
        parallelism: int,
        max_splits: int | None,
        thread: CoordinatorThread,
    ) -> None:
        self._source = source
        self._parallelism = parallelism
        self._max = max_splits
        self._thread = thread
        self._host = socket.gethostname()
        self._ready = deque(range(parallelism))
        self._requests: set[int] = set()
        self._told_no_more: set[int] = set()
        self._splits: list[tuple[str, bytes]] = []
        self._version = 0
        self._is_armed = False
        self._is_taken = False
        self._is_done = threading.Event()
        self._planned: Planned | None = None
        self._error: HeadgateError | None = None
        self.coordinator: SourceCoordinator[Any, Any] = SourceCoordinator(
            source, parallelism, self, thread, skip_delays=True
        )

    def make(self, checkpoint: bytes | None, timeout: float) -> Planned:
        """Wait for the plan and return it."""
        self._version = self._source.split_serializer.version
        self.coordinator.start(checkpoint)
        for subtask in range(self._parallelism):
            self.coordinator.register_reader(subtask, self._host)
        self._thread.execute(self._ask)
        self._is_done.wait(min(timeout, threading.TIMEOUT_MAX))
        if self._error is not None:
            raise self._error
        if self._planned is None:
            at = self.coordinator.callback_at_work
            raise SourceError(
                f"the enumerator of {self._source.name} did not answer in {timeout:g} s",
                have=f"it runs {at}" if at else f"{len(self._requests)} split requests are open",
                remedy="answer each request with a split or signal_no_more_splits() · "
                "block only in context.call_async() · use a longer timeout",
            )
        return self._planned

    def assign(self, subtask: int, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        """Take splits and request the next one."""
        self._version = version
        self._splits += splits
        self._answered(subtask, is_ready=True)

    def no_more_splits(self, subtask: int) -> None:
        """Stop the requests of a reader."""
        self._told_no_more.add(subtask)
        self._answered(subtask, is_ready=False)

    def event(self, subtask: int, event: SourceEvent) -> None:
        """Fail, because a plan has no readers."""
        self.failed(
            NotBuiltError(
                f"the enumerator of {self._source.name} sends events to its readers, "
                "and a plan has none",
                asked=f"event {event.name!r} to reader {subtask}",
                remedy=_WITH_EVENTS,
            )
        )

    def align(self, subtask: int, max_allowed_ms: int) -> None:
        """Do nothing: a plan reads no records."""

    def failed(self, error: HeadgateError) -> None:
        """End the plan with an error."""
        self._error = error
        self._is_done.set()

    def _answered(self, subtask: int, *, is_ready: bool) -> None:
        if subtask in self._requests:
            self._requests.discard(subtask)
            if is_ready:
                self._ready.append(subtask)
        if not is_ready and subtask in self._ready:
            self._ready.remove(subtask)
        self._ask()

    def _ask(self) -> None:
        """Request splits as long as all answers together stay within the limit."""
        while self._ready and self._is_wanted(len(self._requests)):
            self._request()
        self._arm()

    def _is_wanted(self, expected: int) -> bool:
        return self._max is None or len(self._splits) + expected < self._max

    def _request(self) -> None:
        subtask = self._ready.popleft()
        self._requests.add(subtask)
        self.coordinator.request_split(subtask, self._host)

    def _arm(self) -> None:
        if not self._is_armed and not self._is_taken:
            self._is_armed = True
            self._thread.call_when_idle(self._settled)

    def _settled(self) -> None:
        """Handle an idle coordinator: open requests will not be answered soon."""
        self._is_armed = False
        is_finished = len(self._told_no_more) == self._parallelism
        if is_finished or not self._is_wanted(0):
            self._take(is_finished)
        elif self._ready:
            self._request()  # Requests without an answer do not count towards the limit.
            self._arm()
        elif self._source.boundedness is not Boundedness.BOUNDED:
            self._take(False)

    def _take(self, is_finished: bool) -> None:
        self._is_taken = True

        def on_checkpoint(data: bytes | None, error: HeadgateError | None) -> None:
            if data is not None:
                takes_events = self.coordinator.takes_events
                splits = tuple(self._splits)
                self._planned = Planned(self._version, splits, data, is_finished, takes_events)
            self._error = self._error or error
            self._is_done.set()

        self.coordinator.checkpoint(1, on_checkpoint)
