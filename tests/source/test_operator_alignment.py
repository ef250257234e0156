"""Watermark alignment in the reader: after the alignment tests of Flink's SourceOperator."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.operator import NOTHING, Rig, emit, idle, release, watermark

from headgate.errors import NotBuiltError, SourceError
from headgate.source import MAX_WATERMARK, OperatingMode, WatermarkStrategy
from headgate.source.watermark.alignment import SplitAlignment

WAITING = OperatingMode.WAITING_FOR_ALIGNMENT
READING = OperatingMode.READING
UNALIGNED = WatermarkStrategy.for_punctuated(lambda record, time: time).with_watermark_alignment(
    "group", 100, allow_unaligned_splits=True
)
ALIGNED = WatermarkStrategy.for_punctuated(lambda record, time: time).with_watermark_alignment(
    "group", 100
)


def pauses(rig):
    return [call for call in rig.reader.calls if call[0] == "pause"]


def paused(rig):
    """Return the splits that the reader has paused."""
    names = set()
    for _, pause, _, resume in pauses(rig):
        assert not names & set(pause), "paused twice"
        assert set(resume) <= names, "resumed without a pause"
        names = (names | set(pause)) - set(resume)
    return names


class TestWholeReader:
    def test_spec_section_13_6_beyond_the_limit_the_reader_is_not_polled(self):
        rig = Rig(ALIGNED, ["a"])
        assert rig.run(emit(1, split="a")) == [1]
        rig.operator.align(0)
        assert rig.run(emit(2, split="a")) == []
        assert rig.operator.mode is WAITING
        polls = rig.reader.polls
        rig.pass_by(1)
        assert rig.reader.polls == polls
        rig.operator.align(2)
        assert rig.drain() == [2]
        assert rig.operator.mode is READING

    def test_spec_section_13_6_at_the_limit_itself_it_goes_on(self):
        rig = Rig(ALIGNED, ["a"])
        rig.operator.align(1)
        assert rig.run(emit(1, split="a"), emit(2, split="a"), emit(3, split="a")) == [1, 2]
        assert rig.operator.mode is WAITING

    def test_a_limit_that_falls_makes_it_wait(self):
        rig = Rig(ALIGNED, ["a"])
        rig.operator.align(10)
        rig.run(emit(5, split="a"))
        assert rig.operator.mode is READING
        rig.operator.align(4)
        rig.drain()
        assert rig.operator.mode is WAITING

    def test_a_single_split_waits_with_its_reader_and_is_not_paused(self):
        rig = Rig(ALIGNED, ["a"])
        rig.operator.align(0)
        rig.run(emit(1, split="a"))
        assert (rig.operator.mode, pauses(rig)) == (WAITING, [])

    def test_spec_section_13_6_stop_while_waiting(self):
        rig = Rig(ALIGNED, ["a"])
        rig.operator.align(0)
        rig.run(emit(1, split="a"))
        rig.operator.stop()
        assert rig.drain() == []
        assert rig.operator.is_finished

    def test_spec_section_13_6_splits_that_come_while_waiting_reach_the_reader(self):
        rig = Rig(ALIGNED, ["a"])
        rig.operator.align(0)
        rig.run(emit(1, split="a"))
        rig.operator.add_splits(3, [("b", b'{"name":"b","position":0}')])
        rig.drain()
        assert ("add", ["b"]) in rig.reader.calls
        assert rig.operator.mode is WAITING


class TestReports:
    def test_spec_section_13_6_the_watermark_is_told_each_update_interval(self):
        rig = Rig(ALIGNED, ["a"])
        rig.run(emit(7, split="a"))
        assert rig.operator.timeout() == pytest.approx(0.2)
        rig.pass_by(0.9)
        assert rig.reported == []
        rig.pass_by(0.2)
        assert rig.reported == [7]
        rig.run(emit(9, split="a"))
        rig.pass_by(2.0)
        assert rig.reported == [7, 9, 9]

    def test_the_interval_is_the_strategys(self):
        rig = Rig(ALIGNED.with_watermark_alignment("group", 1, update_interval=0.3), ["a"])
        rig.run(emit(7, split="a"))
        rig.pass_by(1.0)
        assert rig.reported == [7, 7, 7]

    def test_spec_section_13_6_without_splits_nothing_is_told(self):
        """FLINK-32414."""
        rig = Rig(ALIGNED)
        rig.run(NOTHING)
        rig.pass_by(5)
        assert rig.reported == []
        rig.run(emit(10, split="a"))
        rig.pass_by(1.1)
        assert rig.reported == [10]

    def test_spec_section_13_6_a_split_without_a_watermark_yet_tells_nothing(self):
        rig = Rig(ALIGNED, ["a"])
        rig.pass_by(3)
        assert rig.reported == []

    def test_spec_section_13_6_idle_tells_that_nobody_need_wait(self):
        rig = Rig(ALIGNED, ["a"])
        rig.run(emit(1, split="a"), idle("a"))
        rig.pass_by(1.1)
        assert rig.reported == [MAX_WATERMARK]
        rig.operator.align(MAX_WATERMARK)
        assert rig.run(emit(0, split="a")) == [0]
        rig.pass_by(1.0)
        assert rig.reported == [MAX_WATERMARK, 1], "active again: as far as it had come"

    def test_between_two_splits_nobody_need_wait(self):
        rig = Rig(ALIGNED, ["a"])
        rig.run(emit(1, split="a"), release("a"))
        rig.pass_by(1.1)
        assert rig.reported == [MAX_WATERMARK]
        rig.run(emit(2, split="b"))
        rig.pass_by(1.0)
        assert rig.reported[-1] == 2

    def test_spec_section_13_6_what_is_told_never_falls(self):
        rig = Rig(ALIGNED, ["a"])
        rig.run(emit(2000, split="a"))
        rig.pass_by(1.1)
        rig.run(emit(1000, split="b"))
        rig.pass_by(1.1)
        assert rig.reported == [2000, 2000]

    def test_spec_section_13_6_the_end_tells_the_last_watermark(self):
        rig = Rig(ALIGNED, ["a"])
        rig.operator.no_more_splits()
        rig.run(emit(1, split="a"))
        assert rig.operator.is_finished
        assert rig.reported == [MAX_WATERMARK]

    @pytest.mark.parametrize("drain", [False, True])
    def test_spec_section_13_6_a_reader_that_was_stopped_tells_that_nobody_need_wait(self, drain):
        """FLINK-35157."""
        rig = Rig(ALIGNED, ["a"])
        rig.run(emit(1, split="a"))
        rig.operator.stop(drain=drain)
        rig.drain()
        assert rig.reported == [MAX_WATERMARK]

    def test_it_is_told_while_waiting_too(self):
        rig = Rig(ALIGNED, ["a"])
        rig.operator.align(0)
        rig.run(emit(1, split="a"))
        rig.pass_by(2.1)
        assert rig.reported == [1, 1]

    def test_no_group_no_reports(self):
        rig = Rig(WatermarkStrategy.for_punctuated(lambda record, time: time), ["a"])
        rig.operator.no_more_splits()
        rig.run(emit(1, split="a"))
        assert rig.reported == []


class TestSplits:
    def test_spec_section_13_6_splits_ahead_are_paused_and_resumed_when_the_limit_rises(self):
        rig = Rig(ALIGNED, ["0", "1"])
        rig.run(emit(5, split="0"))
        rig.operator.align(4)
        rig.drain()
        assert paused(rig) == {"0"}
        rig.operator.align(5)
        rig.drain()
        assert paused(rig) == set()
        rig.run(emit(11, split="0"), emit(3, split="1"))
        assert paused(rig) == {"0"}
        rig.run(emit(6, split="1"))
        assert paused(rig) == {"0", "1"}
        assert rig.operator.mode is WAITING
        rig.operator.align(10)
        rig.drain()
        assert paused(rig) == {"0"}
        assert rig.operator.mode is READING

    def test_spec_section_13_6_the_reader_is_asked_only_when_something_changes(self):
        rig = Rig(ALIGNED, ["0", "1"])
        rig.operator.align(4)
        rig.run(emit(5, split="0"), emit(1, split="1"), emit(6, split="0"), emit(2, split="1"))
        for limit in (4, 3, 4):
            rig.operator.align(limit)
            rig.drain()
        assert pauses(rig) == [("pause", ["0"], "resume", [])]

    def test_spec_section_13_6_a_finished_split_is_not_paused(self):
        rig = Rig(ALIGNED, ["0", "1"])
        rig.run(emit(5, split="0"), release("0"), emit(3, split="1"))
        rig.operator.align(4)
        rig.drain()
        assert pauses(rig) == []

    def test_the_last_split_left_goes_on_with_its_reader(self):
        rig = Rig(ALIGNED, ["0", "1"])
        rig.operator.align(4)
        rig.run(emit(5, split="0"), emit(2, split="1"))
        assert paused(rig) == {"0"}
        rig.run(release("1"))
        assert paused(rig) == set()
        assert rig.operator.mode is WAITING
        rig.operator.align(5)
        assert rig.run(emit(6, split="0")) == [6]

    def test_a_split_that_finishes_while_paused_is_forgotten(self):
        rig = Rig(ALIGNED, ["0", "1", "2"])
        rig.operator.align(4)
        rig.run(emit(5, split="0"), release("0"), emit(1, split="1"), emit(1, split="2"))
        rig.operator.align(100)
        rig.drain()
        assert pauses(rig) == [("pause", ["0"], "resume", [])]

    def test_spec_section_13_6_a_reader_that_cannot_pause_fails(self):
        rig = Rig(ALIGNED, ["0", "1"])
        rig.reader.can_pause = False
        rig.operator.align(4)
        with pytest.raises(NotBuiltError, match="cannot pause single splits") as caught:
            rig.run(emit(5, split="0"))
        assert "allow_unaligned_splits=True" in caught.value.remedy

    def test_spec_section_13_6_a_reader_that_cannot_pause_may_go_on_unaligned(self):
        rig = Rig(UNALIGNED, ["0", "1"])
        asked = []

        def refuse(pause, resume):
            asked.append(pause)
            raise NotBuiltError("cannot")

        rig.reader.pause_or_resume_splits = refuse
        rig.operator.align(4)
        assert rig.run(emit(5, split="0"), emit(50, split="0")) == [5, 50]
        assert asked == [["0"]], "once is enough"
        rig.run(emit(5, split="1"))
        assert rig.operator.mode is WAITING, "the reader as a whole still waits"

    def test_another_failure_to_pause_is_the_sources(self):
        rig = Rig(UNALIGNED, ["0", "1"])

        def broken(pause, resume):
            raise OSError("no such consumer")

        rig.reader.pause_or_resume_splits = broken
        rig.operator.align(4)
        with pytest.raises(SourceError, match=r"pause_or_resume_splits\(\): OSError: no such"):
            rig.run(emit(5, split="0"))


class TestIdleness:
    STRATEGY = ALIGNED.with_idleness(1.0)

    def test_spec_section_13_6_a_paused_split_does_not_become_idle(self):
        """FLINK-35886."""
        rig = Rig(self.STRATEGY, ["0", "1"])
        rig.operator.align(4)
        rig.run(emit(5, split="0"), emit(3, split="1"))
        for _ in range(30):
            assert rig.run(emit(3, split="1")) == [3]
            rig.pass_by(0.1)
        assert rig.operator._output.splits["0"].partial.is_idle is False
        rig.run(emit(105, split="1"))
        assert rig.watermark == 5

    def test_spec_section_13_6_a_reader_that_waits_does_not_become_idle(self):
        """FLINK-36751."""
        rig = Rig(self.STRATEGY, ["0"])
        rig.operator.align(4)
        rig.run(emit(5, split="0"))
        rig.pass_by(30)
        assert rig.operator.mode is WAITING
        assert set(rig.reported) == {5}
        rig.operator.align(5)
        rig.pass_by(1.8)
        assert rig.reported[-1] == MAX_WATERMARK

    def test_spec_section_13_6_the_clock_goes_on_when_neither_reason_is_left(self):
        rig = Rig(self.STRATEGY, ["0"])
        rig.operator.align(4)
        rig.run(emit(5, split="0"))
        rig.operator.back_pressured_for(2)
        rig.pass_by(5)
        assert set(rig.reported) == {5}

    def test_a_resumed_split_becomes_idle_after_the_whole_timeout(self):
        rig = Rig(self.STRATEGY, ["0", "1"])
        rig.operator.align(4)
        rig.run(emit(5, split="0"), emit(3, split="1"))
        rig.pass_by(10)
        rig.operator.align(100)
        rig.run(emit(10, split="1"))
        rig.pass_by(0.7)
        assert rig.watermark == 5
        for _ in range(10):
            rig.run(emit(11, split="1"))
            rig.pass_by(0.1)
        assert rig.watermark == 11


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("limit"), st.just(""), st.integers(0, 50)),
            st.tuples(st.just("record"), st.sampled_from("abcd"), st.integers(0, 50)),
            st.tuples(st.just("finish"), st.sampled_from("abcd"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_paused_splits_are_those_of_a_naive_model(steps):
    known, limit, alignment = {}, MAX_WATERMARK, SplitAlignment()
    for what, split, number in steps:
        if what == "limit":
            limit = alignment.max_allowed = number
        elif what == "record":
            known[split] = max(number, known.get(split, 0))
        else:
            known.pop(split, None)
        pause, resume = alignment.differences(known)
        assert not set(pause) & alignment.paused
        assert set(resume) <= alignment.paused
        alignment.paused |= set(pause)
        alignment.paused -= set(resume)
        ahead = {name for name, mark in known.items() if mark > limit}
        assert alignment.paused == (ahead if len(known) > 1 else set())


def test_source_watermarks_are_aligned_as_those_of_a_strategy():
    rig = Rig(WatermarkStrategy.no_watermarks().with_watermark_alignment("g", 1), ["a", "b"])
    rig.operator.align(10)
    rig.run(watermark(11, "a"), watermark(10, "b"))
    assert paused(rig) == {"a"}
