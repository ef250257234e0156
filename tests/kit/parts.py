"""Sources for tests: parts with some rows each, a function that reads them, an enumerator."""

import sys
import threading
from collections import deque
from dataclasses import dataclass

import pyarrow as pa
from pyspark import cloudpickle

from headgate.source import (
    Boundedness,
    JsonSerializer,
    RecordEmitter,
    RecordsBySplits,
    SingleThreadMultiplexSourceReaderBase,
    Source,
    SourceEvent,
    SourceSplit,
    SplitEnumerator,
    SplitReader,
)

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = pa.schema([("part", pa.int64()), ("id", pa.int64()), ("reader", pa.int64())])
ROWS = 10


@dataclass(frozen=True)
class Part(SourceSplit):
    """A split with the rows of one number, which is also its id."""

    number: int

    @property
    def split_id(self):
        return f"part {self.number}"


@dataclass(frozen=True)
class Left:
    """The checkpoint of an enumerator: the parts that are not assigned."""

    numbers: tuple


def rows_of(part, reader):
    """Return the batch of a part."""
    ids = [part.number * ROWS + row for row in range(ROWS)]
    columns = {"part": [part.number] * ROWS, "id": ids, "reader": [reader] * ROWS}
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def read_at_once(part, context):
    """Yield a part in one batch."""
    yield rows_of(part, context.index_of_subtask)


class GiveOnRequest(SplitEnumerator):
    """Assigns one part per request."""

    def __init__(self, context, source, numbers):
        self.context = context
        self.source = source
        self.left = deque(Part(number) for number in numbers)
        self.threads = set()

    def start(self):
        self.threads.add(threading.get_ident())

    def handle_split_request(self, subtask_id, requester_hostname):
        self.threads.add(threading.get_ident())
        if self.left:
            self.context.assign_split(self.left.popleft(), subtask_id)
        else:
            self.context.signal_no_more_splits(subtask_id)

    def add_splits_back(self, splits, subtask_id):
        self.left.extendleft(splits)

    def add_reader(self, subtask_id):
        self.threads.add(threading.get_ident())

    def snapshot_state(self, checkpoint_id):
        return Left(tuple(part.number for part in self.left))

    @property
    def total_splits(self):
        return self.source.count

    def close(self):
        CLOSED.append(frozenset(self.threads))


#: For each enumerator closed in this process, the threads that called it.
CLOSED = []


class Parts(Source):
    """``count`` parts of :data:`ROWS` rows.

    Args:
        count: number of parts.
        read: yields the batches of a part, given the reader's context.
        enumerator: class of the enumerator.
        schema: schema of the batches.
        reader: class of the reader, by default one that calls ``read``.
    """

    def __init__(
        self,
        count,
        read=read_at_once,
        enumerator=GiveOnRequest,
        schema=SCHEMA,
        reader=None,
        boundedness=Boundedness.BOUNDED,
    ):
        self.count = count
        self.read = read
        self.enumerator = enumerator
        self.reader = reader or PartReader
        self._schema = schema
        self._boundedness = boundedness

    @property
    def boundedness(self):
        return self._boundedness

    @property
    def schema(self):
        return self._schema

    @property
    def name(self):
        return "parts"

    def create_enumerator(self, context):
        return self.enumerator(context, self, range(self.count))

    def restore_enumerator(self, context, checkpoint):
        return self.enumerator(context, self, checkpoint.numbers)

    def create_reader(self, context):
        return self.reader(self, context)

    @property
    def split_serializer(self):
        return JsonSerializer(Part)

    @property
    def enumerator_checkpoint_serializer(self):
        return JsonSerializer(Left)


class PartSplitReader(SplitReader):
    """Reads parts in turn."""

    def __init__(self, read):
        self.read = read
        self.parts = deque()
        self.batches = None

    def fetch(self):
        if not self.parts:
            return RecordsBySplits({})
        if self.batches is None:
            self.batches = self.read(self.parts[0])
        batch = next(self.batches, None)
        if batch is not None:
            return RecordsBySplits({self.parts[0].split_id: [batch]})
        self.batches = None
        return RecordsBySplits({}, [self.parts.popleft().split_id])

    def handle_splits_changes(self, change):
        self.parts.extend(change.splits)

    def wake_up(self):
        """Do nothing: the read of a part never blocks."""

    def close(self):
        self.batches = None


class EmitBatch(RecordEmitter):
    """Emits the fetched batches unchanged."""

    def emit_record(self, element, output, split_state):
        output.collect(element)


class PartReader(SingleThreadMultiplexSourceReaderBase):
    """Requests the next part when one is finished."""

    def __init__(self, source, context):
        super().__init__(lambda: self.split_reader(source, context), EmitBatch(), context)

    def split_reader(self, source, context):
        return PartSplitReader(lambda part: source.read(part, context))

    def start(self):
        self.context.send_split_request()

    def initialized_state(self, split):
        return split

    def to_split_type(self, split_id, state):
        return state

    def on_split_finished(self, finished):
        for _ in finished:
            self.context.send_split_request()


class GreetingReader(PartReader):
    """Requests splits only after the enumerator has answered its greeting."""

    def start(self):
        payload = bytes(range(256)) + str(self.context.index_of_subtask).encode()
        self.context.send_source_event_to_coordinator(SourceEvent("hello", payload))

    def handle_source_event(self, event):
        mine = str(self.context.index_of_subtask).encode()
        assert event == SourceEvent("welcome", b"\x00" + mine)
        super().start()


class GreetingEnumerator(GiveOnRequest):
    """Answers greetings."""

    def handle_source_event(self, subtask_id, event):
        assert event == SourceEvent("hello", bytes(range(256)) + str(subtask_id).encode())
        answer = SourceEvent("welcome", b"\x00" + str(subtask_id).encode())
        self.context.send_event_to_source_reader(subtask_id, answer)


def all_ids(count):
    """Return the ids of the rows of ``count`` parts."""
    return list(range(count * ROWS))
