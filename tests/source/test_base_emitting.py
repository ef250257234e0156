"""Batches, outputs and emitters of the reader on top of fetchers."""

import pytest
from tests.kit.blocking_reader import (
    NumberEmitter,
    NumberOutput,
    NumberReader,
    NumberSplit,
    blocked,
    poll,
    read_to_end,
)

from headgate.errors import SourceError
from headgate.source import InputStatus
from headgate.source.base import (
    RecordEmitter,
    RecordsBySplits,
)

MORE, NOTHING, END = InputStatus


def test_outputs_are_made_when_splits_are_added_and_released_when_they_end(readers, output):
    reader = readers(blocked)
    reader.add_splits([NumberSplit("a", count=1), NumberSplit("b", count=1)])
    assert reader.poll_next(output) is NOTHING
    assert output.log == [("create", "a"), ("create", "b")], "before any record"
    reader.split_readers[0].open()
    reader.notify_no_more_splits()
    read_to_end(reader, output)
    assert sorted(map(str, output.log[2:4])) == ["('a', 0)", "('b', 0)"]
    assert sorted(output.log[4:]) == [("release", "a"), ("release", "b")]


def test_another_output_gets_outputs_of_its_own(readers, output):
    reader = readers(lambda: NumberReader(batch=10))
    reader.add_splits([NumberSplit("a")])
    poll(reader, output, lambda: len(output.numbers) == 4)
    other = NumberOutput()
    poll(reader, other, lambda: len(other.numbers) == 6)
    assert output.numbers + other.numbers == list(range(10))
    assert other.log[0] == ("create", "a")


@pytest.mark.parametrize("times", [0, 3])
def test_an_element_may_be_no_record_or_many(readers, output, times):
    class Many(RecordEmitter):
        def emit_record(self, element, output, split_state):
            for _ in range(times):
                output.collect(element)
            split_state["index"] += 1

    reader = readers(emitter=Many())
    reader.add_splits([NumberSplit("a")])
    reader.notify_no_more_splits()
    assert read_to_end(reader, output) is END
    assert output.numbers == [n for n in range(10) for _ in range(times)]


def test_an_emitter_may_speak_to_the_output_of_its_split(readers, output):
    class Marks(NumberEmitter):
        def emit_record(self, element, output, split_state):
            super().emit_record(element, output, split_state)
            output.emit_watermark(element)
            output.mark_idle()

    reader = readers(emitter=Marks())
    reader.add_splits([NumberSplit("a", count=1)])
    poll(reader, output, lambda: output.numbers)
    assert output.log == [("create", "a"), ("a", 0), ("watermark", 0), "idle"]


def test_an_emitter_that_fails_names_the_split(readers, output):
    class Fails(RecordEmitter):
        def emit_record(self, element, output, split_state):
            raise ValueError("not a number")

    reader = readers(emitter=Fails())
    reader.add_splits([NumberSplit("part-3")])
    with pytest.raises(SourceError, match="Fails failed at split part-3: ValueError") as caught:
        poll(reader, output, lambda: False)
    assert isinstance(caught.value.__cause__, ValueError)


def fetching(reader, *batches):
    """Make the reader's split reader return these batches."""
    waiting = list(batches)
    reader.split_readers[0].fetch = lambda: waiting.pop(0) if waiting else RecordsBySplits({})
    reader.split_readers[0].wake_up()


@pytest.mark.parametrize(
    "batch", [RecordsBySplits({"b": [1]}), RecordsBySplits({"a": [1]}, finished=["b"])]
)
def test_a_batch_of_an_unknown_split_is_an_error(readers, output, batch):
    reader = readers(blocked)
    reader.add_splits([NumberSplit("a")])
    fetching(reader, batch)
    with pytest.raises(SourceError, match=r"a batch names split 'b'.*does not have"):
        poll(reader, output, lambda: False)


def test_a_batch_may_finish_splits_without_records_of_them(readers, output):
    reader = readers(blocked)
    reader.add_splits([NumberSplit("a"), NumberSplit("b")])
    fetching(reader, RecordsBySplits({}, ["a"]), RecordsBySplits({"b": []}, ["b"]))
    reader.notify_no_more_splits()
    assert read_to_end(reader, output) is END
    assert output.numbers == []
    assert sorted(i for finished in reader.finished for i in finished) == ["a", "b"]


def test_batches_are_recycled_once_when_they_are_out(readers, output):
    recycled = []
    batch = RecordsBySplits({"a": [0, 1]}, ["a"])
    batch.recycle = lambda: recycled.append(len(output.numbers))
    reader = readers(blocked)
    reader.add_splits([NumberSplit("a")])
    fetching(reader, batch)
    reader.notify_no_more_splits()
    read_to_end(reader, output)
    assert recycled == [2]


def test_a_batch_in_hand_is_recycled_by_close(readers, output):
    recycled = []
    batch = RecordsBySplits({"a": [0, 1]}, ["a"])
    batch.recycle = lambda: recycled.append(len(output.numbers))
    reader = readers(blocked)
    reader.add_splits([NumberSplit("a")])
    fetching(reader, batch)
    poll(reader, output, lambda: output.numbers)
    reader.close()
    reader.close()
    assert recycled == [1]


def test_next_record_without_a_split_is_an_error():
    batch = RecordsBySplits({"a": [1]})
    with pytest.raises(SourceError, match="without a current split"):
        batch.next_record_from_split()
    assert [batch.next_split(), batch.next_record_from_split()] == ["a", 1]
    assert [batch.next_record_from_split(), batch.next_split()] == [None, None]
    with pytest.raises(SourceError, match="without a current split"):
        batch.next_record_from_split()
