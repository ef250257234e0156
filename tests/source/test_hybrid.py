"""Chains of sources: order, restores in each source, lost and late readers, end positions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.contexts import (
    Collected,
    FakeEnumeratorContext,
    FakeReaderContext,
    is_end,
    polled,
)
from tests.kit.coordinator import ListSource, ListSplit

from headgate.errors import (
    NotBuiltError,
    SourceError,
)
from headgate.source import (
    Boundedness,
    HybridSource,
    InputStatus,
    NumberSequenceSource,
    ReaderInfo,
    SourceEvent,
    read,
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
from headgate.source.planning import plan_splits, read_splits
from headgate.source.runtime import SourceOperator

A = NumberSequenceSource(0, 20, splits=4, batch_size=3)
B = NumberSequenceSource(100, 120, splits=5, batch_size=4)
C = NumberSequenceSource(200, 203, splits=1)
CHAIN = HybridSource.builder(A).add_source(B).build()
ALL = [*range(20), *range(100, 120)]


def numbers_of(batches):
    return [number for batch in batches for number in batch.column(0).to_pylist()]


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_spec_13_13_all_of_one_before_the_other(parallelism):
    with read(CHAIN, parallelism) as records:
        found = numbers_of(records)
        assert records.total_splits == 9
        assert records.finished_splits == 9
    assert sorted(found) == ALL
    assert max(found[:20]) < 100 <= min(found[20:])


def test_three_in_a_row():
    chain = HybridSource.builder(A).add_source(C).add_source(B).build()
    found = numbers_of(read(chain, 2))
    assert [sorted(found[:20]), found[20:23], sorted(found[23:])] == [
        list(range(20)),
        [200, 201, 202],
        list(range(100, 120)),
    ]


@given(st.lists(st.integers(0, 14), max_size=4), st.data())
@settings(deadline=None, max_examples=40)
def test_spec_13_13_restored_anywhere_it_gives_exactly_the_rest(stops, data):
    found, checkpoint = [], None
    for stop in stops:
        with read(CHAIN, data.draw(st.integers(1, 3)), checkpoint=checkpoint) as records:
            for _ in range(stop):
                batch = next(records, None)
                found += [] if batch is None else batch.column(0).to_pylist()
            checkpoint = records.checkpoint()
    with read(CHAIN, 2, checkpoint=checkpoint) as records:
        found += numbers_of(records)
    assert sorted(found) == ALL
    assert max(found[:20]) < 100


def test_an_empty_source_is_passed_by():
    chain = HybridSource.builder(NumberSequenceSource(0, 0)).add_source(C).build()
    assert numbers_of(read(chain, 2)) == [200, 201, 202]


def test_the_last_may_go_on_without_end():
    chain = HybridSource.builder(C).add_source(NumberSequenceSource(203, batch_size=2)).build()
    assert chain.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    with read(chain) as records:
        found = numbers_of(next(records) for _ in range(4))
        assert records.total_splits is None
    assert found == [200, 201, 202, 203, 204, 205, 206, 207, 208][: len(found)]


def started(chain=CHAIN, readers=2, checkpoint=None):
    context = FakeEnumeratorContext(readers)
    enumerator = (
        chain.create_enumerator(context)
        if checkpoint is None
        else chain.restore_enumerator(context, checkpoint)
    )
    enumerator.start()
    return context, enumerator


def said(context, subtask):
    """Return the events that a reader got: names and indexes."""
    return [(event.name, index_of(event)) for reader, event in context.events if reader == subtask]


def finish(enumerator, subtask, index):
    enumerator.handle_source_event(subtask, index_event(FINISHED, index))


class TestEnumerator:
    def test_spec_13_13_it_switches_when_all_registered_readers_are_done(self):
        context, enumerator = started()
        assert context.backlog == [True]
        for subtask in (0, 1):
            finish(enumerator, subtask, -1)
            assert said(context, subtask) == [(SWITCH, 0)]
        for subtask in (0, 1, 0, 1, 0, 1):
            enumerator.handle_split_request(subtask, None)
        assert said(context, 0)[-1] == said(context, 1)[-1] == (NO_MORE_SPLITS, 0)
        assert context.told_no_more == []
        finish(enumerator, 0, 0)
        assert (SWITCH, 1) not in said(context, 0)
        finish(enumerator, 1, 0)
        assert said(context, 0)[-1] == said(context, 1)[-1] == (SWITCH, 1)
        assert context.backlog == [True, False]
        for _ in range(6):
            enumerator.handle_split_request(0, None)
        assert {split.index for split in context.assigned[0][-5:]} == {1}
        assert context.told_no_more == [0]

    def at_the_second(self):
        context, enumerator = started()
        for subtask in (0, 1):
            finish(enumerator, subtask, -1)
            for _ in range(2):
                enumerator.handle_split_request(subtask, None)
        for subtask in (0, 1):
            finish(enumerator, subtask, 0)
        return context, enumerator

    def test_a_late_reader_begins_where_the_others_are(self):
        context, enumerator = self.at_the_second()
        context.registered_readers[2] = ReaderInfo(2, "late")
        context.assigned[2] = []
        enumerator.add_reader(2)
        finish(enumerator, 2, -1)
        assert said(context, 2) == [(SWITCH, 1)]
        enumerator.handle_split_request(2, None)
        assert [split.index for split in context.assigned[2]] == [1]

    def test_splits_of_the_source_at_work_go_back_to_it(self):
        context, enumerator = started()
        finish(enumerator, 0, -1)
        finish(enumerator, 1, -1)
        for _ in range(4):
            enumerator.handle_split_request(0, None)
        lost = context.assigned[0]
        del context.registered_readers[0]
        enumerator.add_splits_back(lost, 0)
        finish(enumerator, 1, 0)
        assert (SWITCH, 1) not in said(context, 1), "the lost reader's splits are unread"
        context.registered_readers[0] = ReaderInfo(0, "again")
        enumerator.add_reader(0)
        finish(enumerator, 0, -1)
        context.assigned[0] = []
        for _ in range(5):
            enumerator.handle_split_request(0, None)
        assert sorted(split.split_id for split in context.assigned[0]) == sorted(
            split.split_id for split in lost
        )
        finish(enumerator, 0, 0)
        assert said(context, 1)[-1] == (SWITCH, 1)

    @pytest.mark.parametrize("restored", [False, True])
    def test_spec_13_13_splits_of_an_earlier_source_go_to_the_next_reader(self, restored):
        context, enumerator = self.at_the_second()
        lost = context.assigned[0]
        assert {split.index for split in lost} == {0}
        enumerator.handle_split_request(0, None)
        del context.registered_readers[0]
        enumerator.add_splits_back(context.assigned[0], 0)
        if restored:
            serializer = CHAIN.enumerator_checkpoint_serializer
            state = serializer.deserialize(1, serializer.serialize(enumerator.snapshot_state(1)))
            context, enumerator = started(checkpoint=state)
        context.registered_readers[0] = ReaderInfo(0, "again")
        context.assigned[0] = []
        enumerator.add_reader(0)
        finish(enumerator, 0, -1)
        assert context.assigned[0] == lost[:2]
        assert said(context, 0)[-1] == (SWITCH, 1)
        for _ in range(6):
            enumerator.handle_split_request(0, None)
        assert len([split for split in context.assigned[0] if split.index == 1]) == 5

    def test_spec_section_13_7_the_source_at_work_hears_of_each_lost_reader_that_it_knows(self):
        context, enumerator = self.at_the_second()
        heard = []
        enumerator._inner.add_splits_back = lambda splits, subtask: heard.append((splits, subtask))
        enumerator.add_splits_back(context.assigned[0], 0)  # All of them are of the first source.
        enumerator.add_splits_back([], 1)
        assert heard == [([], 0), ([], 1)], "it may have kept their requests"
        enumerator.add_splits_back([], 1)
        assert len(heard) == 2, "it did not come to this source again"

    def test_a_factory_gets_the_enumerator_before(self):
        positions = []

        def after(previous):
            positions.append(5 * previous.snapshot_state(1).assigned)
            return NumberSequenceSource(positions[-1], positions[-1] + 5)

        chain = HybridSource.builder(A).add_source(after, readers=C).build()
        assert sorted(numbers_of(read(chain, 2))) == list(range(25))
        assert positions == [20]
        assert chain.with_columns(["id"]) is None

    def test_a_restore_in_a_source_of_a_factory(self):
        chain = (
            HybridSource.builder(A)
            .add_source(lambda _: NumberSequenceSource(20, 30, splits=5), readers=C)
            .build()
        )
        with read(chain, 1) as records:
            found = []
            while not found or found[-1] < 22:
                found += next(records).column(0).to_pylist()
            checkpoint = records.checkpoint()
        found += numbers_of(read(chain, 1, checkpoint=checkpoint))
        assert sorted(found) == list(range(30))

    def test_events_of_a_source_reach_it_while_it_is_its_turn(self):
        context, enumerator = started()
        taken = []
        enumerator._inner.handle_source_event = lambda *event: taken.append(event)
        enumerator.handle_source_event(0, inner_event(0, SourceEvent("x.y", b"1")))
        enumerator.handle_source_event(0, inner_event(1, SourceEvent("late", b"2")))
        assert taken == [(0, SourceEvent("x.y", b"1"))]
        enumerator._inner_context.send_event_to_source_reader(1, SourceEvent("z"))
        assert parse_inner_event(context.events[-1][1]) == (0, SourceEvent("z"))
        with pytest.raises(NotBuiltError, match="nonsense"):
            enumerator.handle_source_event(0, SourceEvent("nonsense"))
        with pytest.raises(SourceError, match="has no index"):
            enumerator.handle_source_event(0, SourceEvent(FINISHED, b"x"))

    def test_what_an_enumerator_called_for_is_dropped_when_its_turn_is_over(self):
        context, enumerator = self.at_the_second()
        old = enumerator._inner_context
        done = []
        old.call_async(lambda: 1, lambda *_: done.append(1))
        old.run_in_coordinator_thread(lambda: done.append(2))
        context.run()
        assert done == [1, 2]
        old.call_async(lambda: 1, lambda *_: done.append(3))
        old.is_over = True
        context.run()
        old.assign_splits({0: [object()]})
        old.signal_no_more_splits(0)
        assert done == [1, 2]
        assert context.told_no_more == []


class TestReader:
    def reader(self):
        context = FakeReaderContext()
        reader = CHAIN.create_reader(context)
        reader.start()
        return context, reader, Collected()

    def nothing(self, reader, output):
        assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE
        return reader.is_available()

    def test_it_says_what_it_has_finished_and_waits(self):
        context, reader, output = self.reader()
        available = self.nothing(reader, output)
        assert [(e.name, index_of(e)) for e in context.events] == [(FINISHED, -1)]
        self.nothing(reader, output)
        assert len(context.events) == 1
        assert not available.done()
        reader.handle_source_event(index_event(SWITCH, 0))
        assert available.done()
        split = HybridSplit(0, A.split_serializer.deserialize(1, b'{"start":0,"end":4}'))
        reader.add_splits([split])
        reader.handle_source_event(index_event(NO_MORE_SPLITS, 0))
        polled(reader, output, lambda _: len(context.events) == 2)
        assert (context.events[1].name, index_of(context.events[1])) == (FINISHED, 0)
        assert numbers_of(output.records) == [0, 1, 2, 3]
        assert reader.snapshot_state(1) == []
        reader.handle_source_event(index_event(SWITCH, 1))
        reader.notify_no_more_splits()
        polled(reader, output, is_end)
        assert reader.poll_next(output) is InputStatus.END_OF_INPUT
        reader.close()

    def test_it_reads_splits_of_an_earlier_source_first_and_asks_for_none_of_them(self):
        context, reader, output = self.reader()
        first = HybridSplit(0, A.split_serializer.deserialize(1, b'{"start":0,"end":4}'))
        second = HybridSplit(1, B.split_serializer.deserialize(1, b'{"start":100,"end":103}'))
        reader.add_splits([second, first])
        assert set(reader.snapshot_state(1)) == {first, second}
        reader.handle_source_event(index_event(SWITCH, 1))
        polled(reader, output, lambda _: numbers_of(output.records)[4:] == [100, 101, 102])
        assert numbers_of(output.records)[:4] == [0, 1, 2, 3]
        assert output.outputs == [second.split_id]
        polled(reader, output, lambda _: context.requests == 2)
        reader.notify_no_more_splits()
        polled(reader, output, is_end)
        assert context.events == []
        assert context.requests == 2, "one at the start of B, one for its split"
        reader.close()

    def test_spec_section_13_7_splits_of_a_source_that_has_ended_hold_no_watermark_back(self):
        chain = HybridSource.builder(ListSource()).add_source(A).build()
        context = FakeReaderContext()
        finished = []
        operator = SourceOperator(chain, context, lambda: None, report_finished=finished.extend)
        operator.start()
        split = HybridSplit(0, ListSplit("a", 0, 3))
        operator.add_splits(1, [(split.split_id, chain.split_serializer.serialize(split))])
        operator.source_event(index_event(SWITCH, 0))
        operator.source_event(index_event(NO_MORE_SPLITS, 0))
        found = []
        while (record := operator.poll()) is not None:
            found.append(record)
        assert found == [("a", 0), ("a", 1), ("a", 2)]
        assert [index_of(event) for event in context.events] == [0]
        assert finished == [split.split_id]
        operator.close()

    def test_splits_are_paused_by_their_ids(self):
        _, reader, output = self.reader()
        split = HybridSplit(0, A.split_serializer.deserialize(1, b'{"start":0,"end":4}'))
        reader.pause_or_resume_splits([split.split_id], [])
        reader.handle_source_event(index_event(SWITCH, 0))
        reader.poll_next(output)
        reader.add_splits([split])
        reader.pause_or_resume_splits([split.split_id, "1:other"], [])
        reader.pause_or_resume_splits([], [split.split_id])
        polled(reader, output, lambda _: len(numbers_of(output.records)) == 4)
        reader.close()

    def test_unknown_events_are_refused(self):
        _, reader, _ = self.reader()
        with pytest.raises(NotBuiltError, match="nonsense"):
            reader.handle_source_event(SourceEvent("nonsense"))
        reader.close()


def test_a_plan_goes_through_all_sources():
    planned = plan_splits(CHAIN, None, parallelism=3)
    assert planned.is_finished
    assert len(planned.splits) == 9
    found = [
        numbers_of(read_splits(CHAIN, planned.version, planned.splits[n::2])) for n in range(2)
    ]
    assert sorted(found[0] + found[1]) == ALL
    assert found == [sorted(part) for part in found]


def test_plans_go_on_from_each_other():
    ids, checkpoint, finished = [], None, False
    while not finished:
        planned = plan_splits(CHAIN, checkpoint, max_splits=2, parallelism=2)
        ids += [split_id for split_id, _ in planned.splits]
        checkpoint, finished = planned.checkpoint, planned.is_finished
        assert len(planned.splits) <= 2
    assert len(set(ids)) == len(ids) == 9
    assert [split_id[0] for split_id in ids] == ["0"] * 4 + ["1"] * 5
