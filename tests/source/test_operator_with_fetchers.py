"""Operators with readers that have fetcher threads: end, blocked fetches, failures, alignment."""

import threading
from dataclasses import dataclass
from functools import partial

import pytest
from tests.kit.contexts import FakeReaderContext
from tests.kit.operator import Part, ScriptedSource, parts

from headgate.errors import SourceError
from headgate.source import (
    MAX_WATERMARK,
    RecordEmitter,
    RecordsBySplits,
    SingleThreadMultiplexSourceReaderBase,
    SourceOperator,
    SplitReader,
    SplitsAddition,
    WatermarkStrategy,
)
from headgate.source.runtime.mailbox import Mailbox

DEADLINE = 20


class Lists(SplitReader):
    """Reads lists by the ids of splits, two elements at a time; blocks at marked elements."""

    def __init__(self, contents):
        self.contents = contents
        self.positions = {}
        self.paused = set()
        self.woken = threading.Event()
        self.blocked = threading.Event()
        self.closed = False

    def fetch(self):
        for split, position in self.positions.items():
            if split in self.paused:
                continue
            elements = self.contents[split][position : position + 2]
            if elements == ["block"]:
                continue
            if elements == ["fail"]:
                raise OSError(f"cannot read {split}")
            if not elements:
                del self.positions[split]
                return RecordsBySplits({}, [split])
            self.positions[split] += len(elements)
            # The next fetch starts with another split.
            self.positions[split] = self.positions.pop(split)
            return RecordsBySplits({split: elements})
        self.blocked.set()
        assert self.woken.wait(DEADLINE)
        self.woken.clear()
        return RecordsBySplits({})

    def handle_splits_changes(self, change):
        assert isinstance(change, SplitsAddition)
        self.positions.update({split.split_id: split.position for split in change.splits})

    def wake_up(self):
        self.woken.set()

    def pause_or_resume_splits(self, splits_to_pause, splits_to_resume):
        self.paused |= {split.split_id for split in splits_to_pause}
        self.paused -= {split.split_id for split in splits_to_resume}

    def close(self):
        self.closed = True


class ToOutput(RecordEmitter):
    def emit_record(self, element, output, split_state):
        output.collect(element, element)
        split_state[0] += 1


class ListsReader(SingleThreadMultiplexSourceReaderBase):
    def initialized_state(self, split):
        return [split.position]

    def to_split_type(self, split_id, state):
        return Part(split_id, state[0])

    def on_split_finished(self, finished):
        pass


class ListsSource(ScriptedSource):
    def __init__(self, contents):
        self.lists = Lists(contents)

    def create_reader(self, context):
        return ListsReader(lambda: self.lists, ToOutput(), context, queue_capacity=1)


@dataclass
class Started:
    source: ListsSource
    operator: SourceOperator
    finished: list
    mailbox: Mailbox

    def records(self):
        """Yield the records of the operator, and run the actions in its mailbox."""
        while not self.operator.is_finished:
            self.mailbox.clear()
            while (action := self.mailbox.take()) is not None:
                action()
            record = self.operator.poll()
            if record is not None:
                yield record
            elif not self.operator.is_finished:
                self.mailbox.wait(self.operator.timeout())


@pytest.fixture
def start():
    """Return a function that starts an operator for lists; closes all operators at the end."""
    operators = []

    def begin(contents, watermarks=None, report_watermark=None):
        source, finished, mailbox = ListsSource(contents), [], Mailbox()
        operator = SourceOperator(
            source,
            FakeReaderContext(),
            mailbox.signal,
            watermarks=watermarks,
            report_finished=finished.extend,
            report_watermark=report_watermark,
        )
        operators.append(operator)
        operator.start()
        operator.add_splits(3, parts(*contents))
        return Started(source, operator, finished, mailbox)

    yield begin
    for operator in operators:
        operator.close()


def test_spec_13_01_all_records_of_ten_splits_each_in_its_order(start):
    contents = {f"s{n}": [n * 10 + i for i in range(10)] for n in range(10)}
    it = start(contents)
    it.operator.no_more_splits()
    records = list(it.records())
    assert sorted(records) == list(range(100))
    for own in contents.values():
        assert [record for record in records if record in own] == own
    assert sorted(it.finished) == sorted(contents)
    assert it.operator.current_watermark == MAX_WATERMARK


def test_spec_13_04_a_snapshot_after_37_records_says_37(start):
    it = start({f"s{n}": list(range(10)) for n in range(10)})
    records = it.records()
    for _ in range(37):
        next(records)
    split_of = it.source.split_serializer.deserialize
    splits = [split_of(3, data) for _, data in it.operator.snapshot(1)]
    ended = 10 * len(it.finished)
    assert sum(split.position for split in splits) + ended == 37


def test_a_stop_ends_records_although_fetch_blocks(start):
    it = start({"a": [1, 2, "block"]})
    records = it.records()
    assert [next(records), next(records)] == [1, 2]
    stopper = threading.Thread(
        target=lambda: it.source.lists.blocked.wait(DEADLINE) and it.mailbox.post(it.operator.stop)
    )
    stopper.start()
    assert list(records) == []
    stopper.join(DEADLINE)
    assert it.finished == []
    it.operator.close()
    assert it.source.lists.closed


def test_a_fetch_that_fails_is_named_with_its_cause(start):
    it = start({"a": [1, 2, "fail"]})
    it.operator.no_more_splits()
    records = []
    with pytest.raises(SourceError) as caught:
        records.extend(it.records())
    assert isinstance(caught.value.__cause__, OSError)
    assert "cannot read a" in str(caught.value)


def test_spec_section_13_6_no_split_runs_ahead_of_the_limit_by_more_than_what_was_fetched(start):
    fast, slow, drift = list(range(0, 4000, 100)), list(range(0, 400, 10)), 100
    limits = [drift]

    def coordinate(watermark):
        limits.append(min(watermark + drift, MAX_WATERMARK))
        it.mailbox.post(partial(it.operator.align, limits[-1]))

    it = start(
        {"fast": fast, "slow": slow},
        WatermarkStrategy.for_punctuated(lambda record, time: time).with_watermark_alignment(
            "group", drift, update_interval=0.02
        ),
        coordinate,
    )
    it.operator.align(drift)
    it.operator.no_more_splits()
    seen = []
    for record in it.records():
        # One record is over the limit, and reader, queue and fetcher hold the others: 5 records.
        assert record <= limits[-1] + 6 * 100
        seen.append(record)
    assert sorted(seen) == sorted(fast + slow)
    assert len(limits) > 10, "it had to wait for each of them"
