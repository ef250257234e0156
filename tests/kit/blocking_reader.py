"""A reader of numbers on the high-level API, with a split reader that really blocks."""

import threading
from dataclasses import dataclass, replace
from types import SimpleNamespace

from headgate.source import InputStatus, ReaderOutput, SourceSplit
from headgate.source.base import (
    RecordEmitter,
    RecordsBySplits,
    SingleThreadMultiplexSourceReaderBase,
    SplitReader,
    SplitsAddition,
    SplitsRemoval,
)

TIMEOUT = 30.0


@dataclass(frozen=True)
class NumberSplit(SourceSplit):
    """``count`` numbers from ``first`` on, of which ``index`` were emitted."""

    id: str
    first: int = 0
    count: int = 10
    index: int = 0

    @property
    def split_id(self):
        return self.id


class NumberReader(SplitReader):
    """Fetches up to ``batch`` numbers of each split; blocks while the test allows none."""

    def __init__(self, batch=3, is_open=True):
        self.batch = batch
        self.splits, self.paused = {}, set()
        self.changes, self.fetches = [], 0
        self.closed = 0
        self.woken = False
        self.is_open = is_open
        self.condition = threading.Condition()
        self.blocked = threading.Event()
        self.error = None

    def open(self, is_open=True):
        with self.condition:
            self.is_open = is_open
            self.condition.notify_all()

    def fetch_returns(self):
        return self.woken or bool(self.is_open and self.splits.keys() - self.paused)

    def fetch(self):
        self.fetches += 1
        with self.condition:
            while not self.fetch_returns():
                self.blocked.set()
                self.condition.wait()
            self.blocked.clear()
            if self.woken:
                self.woken = False
                return RecordsBySplits({})
        if self.error is not None:
            raise self.error
        records, finished = {}, []
        for split_id, split in list(self.splits.items()):
            if split_id in self.paused:
                continue
            until = min(split.index + self.batch, split.count)
            records[split_id] = [split.first + n for n in range(split.index, until)]
            self.splits[split_id] = replace(split, index=until)
            if until == split.count:
                finished.append(split_id)
                del self.splits[split_id]
        return RecordsBySplits(records, finished)

    def handle_splits_changes(self, change):
        self.changes.append(change)
        for split in change.splits:
            if isinstance(change, SplitsAddition):
                self.splits[split.split_id] = split
            elif isinstance(change, SplitsRemoval):
                self.splits.pop(split.split_id, None)

    def pause_or_resume_splits(self, splits_to_pause, splits_to_resume):
        self.paused |= {s.split_id for s in splits_to_pause}
        self.paused -= {s.split_id for s in splits_to_resume}

    def wake_up(self):
        with self.condition:
            self.woken = True
            self.condition.notify_all()

    def close(self):
        self.closed += 1


class NumberEmitter(RecordEmitter):
    def emit_record(self, element, output, split_state):
        output.collect(element)
        split_state["index"] += 1


class NumberOutput(ReaderOutput):
    """Keeps the numbers; ``log`` has all calls in order."""

    def __init__(self):
        self.numbers, self.log = [], []

    def collect(self, record, timestamp=None):
        self.numbers.append(record)
        self.log.append(("main", record))

    def emit_watermark(self, timestamp):
        self.log.append(("watermark", timestamp))

    def mark_idle(self):
        self.log.append("idle")

    def mark_active(self):
        self.log.append("active")

    def create_output_for_split(self, split_id):
        self.log.append(("create", split_id))
        return SplitOutput(self, split_id)

    def release_output_for_split(self, split_id):
        self.log.append(("release", split_id))


class SplitOutput(NumberOutput):
    def __init__(self, main, split_id):
        self.main, self.split_id, self.log = main, split_id, main.log

    def collect(self, record, timestamp=None):
        self.main.numbers.append(record)
        self.log.append((self.split_id, record))


class NumbersReader(SingleThreadMultiplexSourceReaderBase):
    """The reader; ``split_readers`` has that of its fetcher."""

    def __init__(self, new=NumberReader, emitter=None, **options):
        self.split_readers = []
        self.finished = []

        def supply():
            self.split_readers.append(new())
            return self.split_readers[-1]

        context = SimpleNamespace(index_of_subtask=0)
        super().__init__(supply, emitter or NumberEmitter(), context, **options)

    def initialized_state(self, split):
        return {"split": split, "index": split.index}

    def to_split_type(self, split_id, state):
        return replace(state["split"], index=state["index"])

    def on_split_finished(self, finished):
        self.finished.append({split_id: state["index"] for split_id, state in finished.items()})


def blocked():
    """Return a split reader whose fetch blocks until it is opened."""
    return NumberReader(is_open=False)


def ten_splits(start=0):
    return [NumberSplit(f"s{n}", first=10 * n) for n in range(start, start + 10)]


def poll(reader, output, until):
    """Poll until a condition is true, waiting for the reader's future; return the last status."""
    status = None
    while not until():
        status = reader.poll_next(output)
        if status is InputStatus.NOTHING_AVAILABLE and not until():
            reader.is_available().result(TIMEOUT)
        if status is InputStatus.END_OF_INPUT:
            break
    return status


def read_to_end(reader, output):
    return poll(reader, output, lambda: False)
