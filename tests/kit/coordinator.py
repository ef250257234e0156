"""A source of lists, with a scripted enumerator and a recording gateway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from headgate.errors import HeadgateError
from headgate.source import (
    Boundedness,
    InputStatus,
    JsonSerializer,
    Source,
    SourceReader,
    SourceSplit,
    SplitEnumerator,
)
from headgate.source.coordination import CoordinatorThread, SourceCoordinator

DEADLINE = 20


@dataclass(frozen=True)
class ListSplit(SourceSplit):
    """Numbers from ``first`` up to and excluding ``last``, with ``width`` records each."""

    name: str
    first: int = 0
    last: int = 10
    width: int = 1

    @property
    def split_id(self) -> str:
        return self.name


@dataclass(frozen=True)
class Remaining:
    """The unassigned splits: ids with bounds."""

    splits: tuple[Any, ...] = ()

    @classmethod
    def of(cls, splits):
        return cls(tuple((s.name, s.first, s.last, s.width) for s in splits))

    def all(self):
        return [ListSplit(*parts) for parts in self.splits]


class OnRequest(SplitEnumerator[ListSplit, Remaining]):
    """Assigns one split per request; without splits, a bounded one signals no more splits."""

    def __init__(self, context, splits, *, is_bounded=True):
        self.context = context
        self.splits = list(splits)
        self.is_bounded = is_bounded
        self.calls: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()
        self.is_closed = False
        self.waiting: list[int] = []

    def _called(self, *call):
        self.calls.append(call)
        self.threads.add(threading.current_thread().name)

    def start(self):
        self._called("start")

    def handle_split_request(self, subtask_id, requester_hostname):
        self._called("request", subtask_id, requester_hostname)
        if self.splits:
            self.context.assign_split(self.splits.pop(0), subtask_id)
        elif self.is_bounded:
            self.context.signal_no_more_splits(subtask_id)
        else:
            self.waiting.append(subtask_id)

    def add_splits_back(self, splits, subtask_id):
        self._called("back", tuple(s.name for s in splits), subtask_id)
        self.splits += splits
        self.waiting = [w for w in self.waiting if w != subtask_id]
        while self.splits and self.waiting:
            self.context.assign_split(self.splits.pop(0), self.waiting.pop(0))

    def add_reader(self, subtask_id):
        self._called("reader", subtask_id)

    def handle_source_event(self, subtask_id, event):
        self._called("event", subtask_id, event.name)
        self.context.send_event_to_source_reader(subtask_id, event)

    def snapshot_state(self, checkpoint_id):
        self._called("snapshot", checkpoint_id)
        return Remaining.of(self.splits)

    def notify_checkpoint_complete(self, checkpoint_id):
        self._called("complete", checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id):
        self._called("aborted", checkpoint_id)

    @property
    def total_splits(self):
        return len(self.splits)

    def close(self):
        self._called("close")
        self.is_closed = True


class ListReader(SourceReader[Any, ListSplit]):
    """Reads splits one by one in the caller's thread; requests one when it has none."""

    def __init__(self, context):
        self.context = context
        self.splits: list[ListSplit] = []
        self.no_more = False
        self.is_closed = False
        self.completed: list[int] = []
        self.available: Future[None] = Future()

    def start(self):
        self.context.send_split_request()

    def poll_next(self, output):
        while self.splits:
            split = self.splits[0]
            if split.first < split.last:
                for part in range(split.width):
                    record = (split.name, split.first)
                    output.collect(record if split.width == 1 else [*record, part])
                self.splits[0] = ListSplit(split.name, split.first + 1, split.last, split.width)
                return InputStatus.MORE_AVAILABLE
            del self.splits[0]
            if not self.splits and not self.no_more:
                self.context.send_split_request()
        if self.no_more:
            return InputStatus.END_OF_INPUT
        self.available = Future()
        return InputStatus.NOTHING_AVAILABLE

    def is_available(self):
        return self.available

    def _wake(self):
        if not self.available.done():
            self.available.set_result(None)

    def add_splits(self, splits):
        self.splits += splits
        self._wake()

    def notify_no_more_splits(self):
        self.no_more = True
        self._wake()

    def snapshot_state(self, checkpoint_id):
        return [s for s in self.splits if s.first < s.last]

    def notify_checkpoint_complete(self, checkpoint_id):
        self.completed.append(checkpoint_id)

    def close(self):
        self.is_closed = True


class ListSource(Source[Any, ListSplit, Remaining]):
    """A source of numbers that keeps its enumerators and readers."""

    def __init__(self, splits=(), *, is_bounded=True, enumerator=OnRequest, reader=ListReader):
        self.splits = list(splits)
        self.is_bounded = is_bounded
        self.make_enumerator: Callable[..., Any] = enumerator
        self.make_reader: Callable[..., Any] = reader
        self.enumerators: list[Any] = []
        self.readers: list[Any] = []

    @property
    def boundedness(self):
        return Boundedness.BOUNDED if self.is_bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, context):
        made = self.make_enumerator(context, self.splits, is_bounded=self.is_bounded)
        self.enumerators.append(made)
        return made

    def restore_enumerator(self, context, checkpoint):
        made = self.make_enumerator(context, checkpoint.all(), is_bounded=self.is_bounded)
        self.enumerators.append(made)
        return made

    def create_reader(self, context):
        self.readers.append(self.make_reader(context))
        return self.readers[-1]

    @property
    def split_serializer(self):
        return JsonSerializer(ListSplit, 3, {2: lambda fields: {**fields, "width": 1}})

    @property
    def enumerator_checkpoint_serializer(self):
        return JsonSerializer(Remaining, 7)

    @property
    def enumerator(self):
        return self.enumerators[-1]


@dataclass
class Notes:
    """A gateway that records all messages."""

    told: list[tuple[Any, ...]] = field(default_factory=list)
    errors: list[HeadgateError] = field(default_factory=list)

    def assign(self, subtask: int, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        self.told.append(("assign", subtask, tuple(i for i, _ in splits)))

    def no_more_splits(self, subtask: int) -> None:
        self.told.append(("no more", subtask))

    def event(self, subtask, event) -> None:
        self.told.append(("event", subtask, event.name, event.payload))

    def align(self, subtask: int, max_allowed_ms: int) -> None:
        self.told.append(("align", subtask, max_allowed_ms))

    def failed(self, error: HeadgateError) -> None:
        self.errors.append(error)


class Bench:
    """A coordinator with its thread, gateway and source; :meth:`settle` waits until it is idle."""

    def __init__(self, source, parallelism=2, *, thread=None, **options):
        self.source = source
        self.notes = Notes()
        self.thread = thread or CoordinatorThread()
        self.coordinator = SourceCoordinator(
            source, parallelism, self.notes, self.thread, **options
        )

    def settle(self):
        done = threading.Event()
        self.thread.call_when_idle(done.set)
        assert done.wait(DEADLINE), "the coordinator did not come to rest"

    def started(self, *readers, checkpoint=None):
        self.coordinator.start(checkpoint)
        for reader in readers:
            self.coordinator.register_reader(reader, f"host-{reader}")
        self.settle()
        return self

    def checkpoint(self, checkpoint_id):
        answers: list[Any] = []
        came = threading.Event()

        def answer(data, error):
            answers.append((data, error))
            came.set()

        self.coordinator.checkpoint(checkpoint_id, answer)
        assert came.wait(DEADLINE)
        self.settle_if_open()
        assert len(answers) == 1
        return answers[0]

    def settle_if_open(self):
        if not self.thread._is_closed:
            self.settle()

    def in_thread(self, action):
        """Run a function on the coordinator's thread and return its result or exception."""
        found: list[Any] = []
        came = threading.Event()

        def run():
            try:
                found.append(action())
            except Exception as error:  # noqa: BLE001 - returned to the test
                found.append(error)
            came.set()

        assert self.thread.execute(run)
        assert came.wait(DEADLINE)
        return found[0]

    @property
    def assigned(self):
        return [note[1:] for note in self.notes.told if note[0] == "assign"]

    def close(self):
        self.coordinator.close(DEADLINE)
        self.thread.close(DEADLINE)
