"""Contexts of enumerators and readers for the sources that ship, without threads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headgate.source import (
    InputStatus,
    ReaderInfo,
    ReaderOutput,
    SourceReaderContext,
    SplitEnumeratorContext,
)

DEADLINE = 20


class FakeEnumeratorContext(SplitEnumeratorContext):
    """Records all calls. Asynchronous work waits for ``run()``, periodic work for ``tick()``."""

    current_parallelism = 0
    registered_readers: dict[int, ReaderInfo] = {}  # noqa: RUF012 - replaced by each instance

    def __init__(self, readers=1):
        self.current_parallelism = readers
        self.registered_readers = {n: ReaderInfo(n, f"host-{n}") for n in range(readers)}
        self.assigned: dict[int, list[Any]] = {n: [] for n in range(readers)}
        self.told_no_more: list[int] = []
        self.events: list[tuple[int, Any]] = []
        self.work: list[tuple[Any, Any]] = []
        self.periodic: list[tuple[Any, Any, float]] = []
        self.backlog: list[bool] = []

    def assign_splits(self, assignment):
        for subtask, splits in assignment.items():
            if subtask not in self.registered_readers:
                raise ValueError(subtask)
            self.assigned[subtask] += splits

    def signal_no_more_splits(self, subtask_id):
        self.told_no_more.append(subtask_id)

    def send_event_to_source_reader(self, subtask_id, event):
        self.events.append((subtask_id, event))

    def call_async(self, work, handler, initial_delay=0.0, period=None):
        if period is None:
            self.work.append((work, handler))
        else:
            self.periodic.append((work, handler, period))

    def run_in_coordinator_thread(self, action):
        self.work.append((lambda: None, lambda _result, _error: action()))

    def set_is_processing_backlog(self, is_processing_backlog):
        self.backlog.append(is_processing_backlog)

    def run(self):
        """Run the waiting work until none is left."""
        while self.work:
            self.do(*self.work.pop(0))

    def tick(self):
        """Run the periodic work once."""
        for work, handler, _ in self.periodic:
            self.do(work, handler)
        self.run()

    def do(self, work, handler):
        try:
            result, error = work(), None
        except Exception as raised:  # noqa: BLE001 - passed to the handler
            result, error = None, raised
        handler(result, error)

    @property
    def all(self):
        return [split for splits in self.assigned.values() for split in splits]


class FakeReaderContext(SourceReaderContext):
    index_of_subtask = 0
    current_parallelism = 1
    local_host_name = "host-0"
    configuration: dict[str, str] = {}  # noqa: RUF012 - always empty

    def __init__(self, parallelism=1):
        self.current_parallelism = parallelism
        self.requests = 0
        self.events: list[Any] = []

    def send_split_request(self):
        self.requests += 1

    def send_source_event_to_coordinator(self, event):
        self.events.append(event)


class Collected(ReaderOutput):
    """An output that keeps all records."""

    def __init__(self):
        self.records: list[Any] = []
        self.outputs: list[str] = []

    def collect(self, record, timestamp=None):
        self.records.append(record)

    def emit_watermark(self, timestamp):
        raise AssertionError

    def mark_idle(self):
        raise AssertionError

    def mark_active(self):
        raise AssertionError

    def create_output_for_split(self, split_id):
        self.outputs.append(split_id)
        return self

    def release_output_for_split(self, split_id):
        self.outputs.remove(split_id)


def enumerated(source, readers=1, checkpoint=None, host="host-0") -> list[Any]:
    """Return all splits of a bounded source, in the order of their assignment."""
    context = FakeEnumeratorContext(readers)
    enumerator = (
        source.create_enumerator(context)
        if checkpoint is None
        else source.restore_enumerator(context, checkpoint)
    )
    enumerator.start()
    context.run()
    while 0 not in context.told_no_more:
        before = len(context.all)
        enumerator.handle_split_request(0, host)
        assert len(context.all) > before or 0 in context.told_no_more, "a request without answer"
    enumerator.close()
    return context.all


def polled(reader, output, until) -> InputStatus:
    """Poll until ``until(status)``, waiting for the reader's future while it has no data."""
    deadline = time.monotonic() + DEADLINE
    while True:
        status = reader.poll_next(output)
        if until(status):
            return status
        assert time.monotonic() < deadline, "the reader hangs"
        if status is InputStatus.NOTHING_AVAILABLE:
            reader.is_available().result(DEADLINE)


def is_end(status):
    return status is InputStatus.END_OF_INPUT


def read_all(source, splits: Sequence[Any]) -> list[Any]:
    """Return the records of splits, read by one reader."""
    reader, output = source.create_reader(FakeReaderContext()), Collected()
    try:
        reader.start()
        reader.add_splits(list(splits))
        reader.notify_no_more_splits()
        polled(reader, output, is_end)
        assert output.outputs == []
    finally:
        reader.close()
    return output.records


def table_of(source, batches) -> pa.Table:
    return pa.Table.from_batches(batches, schema=source.schema)
