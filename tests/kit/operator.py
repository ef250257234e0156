"""A source with a scripted reader, and an operator that runs it."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from tests.kit.clock import Clock
from tests.kit.contexts import FakeReaderContext

from headgate.source import (
    Boundedness,
    InputStatus,
    JsonSerializer,
    Source,
    SourceReader,
    SourceSplit,
)
from headgate.source.runtime import SourceOperator

MORE, NOTHING, END = (
    InputStatus.MORE_AVAILABLE,
    InputStatus.NOTHING_AVAILABLE,
    InputStatus.END_OF_INPUT,
)

DONE = Future()
DONE.set_result(None)


@dataclass(frozen=True)
class Part(SourceSplit):
    name: str
    position: int = 0

    @property
    def split_id(self):
        return self.name


class ScriptedReader(SourceReader):
    """Each poll runs one step of a script: a function of (reader, output), or a status."""

    def __init__(self):
        self.steps = deque()
        self.calls = []
        self.polls = 0
        self.splits = []
        self.future = Future()
        self.has_no_more = False
        self.can_pause = True
        self.output = None

    def script(self, *steps):
        """Add steps and complete the future."""
        self.steps.extend(steps)
        self.tell()

    def tell(self):
        future, self.future = self.future, Future()
        future.set_result(None)

    def start(self):
        self.calls.append("start")

    def poll_next(self, output):
        self.polls += 1
        self.output = output
        if not self.steps:
            return END if self.has_no_more else NOTHING
        step = self.steps.popleft()
        if isinstance(step, InputStatus):
            return step
        return step(self, output) or MORE

    def is_available(self):
        future = self.future  # Read first: a step that is added afterwards completes this one.
        return DONE if self.steps else future

    def add_splits(self, splits):
        self.calls.append(("add", [split.split_id for split in splits]))
        self.splits.extend(splits)

    def notify_no_more_splits(self):
        self.calls.append("no more")
        self.has_no_more = True

    def snapshot_state(self, checkpoint_id):
        self.calls.append(("snapshot", checkpoint_id))
        return list(self.splits)

    def pause_or_resume_splits(self, splits_to_pause, splits_to_resume):
        if not self.can_pause:
            return super().pause_or_resume_splits(splits_to_pause, splits_to_resume)
        self.calls.append(("pause", list(splits_to_pause), "resume", list(splits_to_resume)))
        return None

    def handle_source_event(self, event):
        self.calls.append(("event", event.name))

    def notify_checkpoint_complete(self, checkpoint_id):
        self.calls.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.calls.append(("aborted", checkpoint_id))

    def close(self):
        self.calls.append("close")


class ScriptedSource(Source):
    boundedness = Boundedness.BOUNDED
    split_serializer = JsonSerializer(Part, version=3)
    enumerator_checkpoint_serializer = JsonSerializer(Part)
    name = "scripted"

    def __init__(self, reader=None):
        self.reader = reader or ScriptedReader()

    def create_enumerator(self, context):
        raise AssertionError

    def restore_enumerator(self, context, checkpoint):
        raise AssertionError

    def create_reader(self, context):
        return self.reader


def parts(*names):
    serializer = ScriptedSource.split_serializer
    return [(name, serializer.serialize(Part(name))) for name in names]


def emit(*records, split=None, at=None, status=None):
    """Return a step that emits records, for a split if one is named."""

    def step(reader, output):
        target = output if split is None else output.create_output_for_split(split)
        for record in records:
            target.collect(record, record if at is None else at)
        return status

    return step


def watermark(timestamp, split=None):
    def step(reader, output):
        target = output if split is None else output.create_output_for_split(split)
        target.emit_watermark(timestamp)

    return step


def idle(split=None):
    def step(reader, output):
        target = output if split is None else output.create_output_for_split(split)
        target.mark_idle()

    return step


def release(*splits, status=None):
    def step(reader, output):
        for split in splits:
            output.release_output_for_split(split)
        return status

    return step


class Rig:
    """An operator, its reader and its clock, started."""

    def __init__(self, watermarks=None, splits=(), *, start=True, **options):
        self.clock = Clock(1000.0)
        self.reported = []
        self.finished = []
        self.reader = ScriptedReader()
        self.woken = woken = []
        self.operator = SourceOperator(
            ScriptedSource(self.reader),
            FakeReaderContext(),
            lambda: woken.append(True),
            watermarks=watermarks,
            report_watermark=self.reported.append,
            report_finished=self.finished.extend,
            clock=self.clock,
            **options,
        )
        if start:
            self.operator.start()
            if splits:
                self.operator.add_splits(3, parts(*splits))

    def run(self, *steps):
        """Add steps, poll until there is no record, and return the records."""
        self.reader.script(*steps)
        return self.drain()

    def drain(self):
        records = []
        while (record := self.operator.poll()) is not None:
            records.append(record)
        return records

    def pass_by(self, seconds):
        """Advance the clock in steps of 100 ms, and poll after each step."""
        records = []
        for _ in range(round(seconds * 10)):
            self.clock.pass_by(0.1)
            records += self.drain()
        return records

    @property
    def split_ids(self):
        return tuple(self.operator._output.splits)

    @property
    def watermark(self):
        return self.operator.current_watermark
