"""The combined watermark of splits: the minimum of those that are neither idle nor finished."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.clock import Clock
from tests.kit.operator import Rig, emit, idle, parts, release, watermark

from headgate.source import MIN_WATERMARK, WatermarkStrategy
from headgate.source.watermark.output import OperatorOutput

PLAIN = WatermarkStrategy.no_watermarks()
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()


def is_idle(rig):
    return rig.operator._output.is_idle


def test_spec_13_11_minimum_of_two_splits_idle_splits_and_finished_splits():
    rig = Rig(PLAIN, ["one", "two"])
    rig.run(watermark(100, "one"), watermark(50, "two"))
    assert rig.watermark == 50
    rig.run(idle("two"))
    assert (rig.watermark, is_idle(rig)) == (100, False)
    rig.run(idle("one"))
    assert (rig.watermark, is_idle(rig)) == (100, True)


def test_spec_13_11_a_finished_split_holds_nothing_back():
    rig = Rig(PLAIN, ["one", "two"])
    rig.run(watermark(100, "one"), watermark(50, "two"))
    rig.run(release("two"))
    assert rig.watermark == 100
    assert rig.finished == ["two"]


def test_spec_section_13_6_a_split_that_ends_before_its_first_periodic_watermark_leaves_none():
    """As in Flink. The next split may have earlier records, as files come in the order of their sizes."""
    rig = Rig(MONOTONOUS, ["short"])
    rig.run(emit(100, split="short"), release("short"))
    rig.pass_by(1)
    assert rig.watermark == MIN_WATERMARK


def test_spec_section_13_6_a_split_without_records_holds_back_from_when_it_was_added():
    """FLINK-26018: outputs are created with the splits, not with their first records."""
    rig = Rig(MONOTONOUS, ["a", "b"])
    rig.run(emit(1000, split="a"))
    rig.pass_by(0.3)
    assert rig.watermark == MIN_WATERMARK
    rig.run(emit(10, split="b"))
    rig.pass_by(0.2)
    assert rig.watermark == 9


def test_spec_section_13_6_a_split_added_later_never_takes_the_watermark_back():
    rig = Rig(PLAIN, ["a"])
    rig.run(watermark(100, "a"))
    rig.operator.add_splits(3, [])
    rig.run(watermark(5, "late"), watermark(200, "a"))
    assert rig.watermark == 100
    rig.run(watermark(150, "late"))
    assert rig.watermark == 150


def test_spec_section_13_6_each_split_has_a_generator_of_its_own():
    rig = Rig(WatermarkStrategy.for_bounded_out_of_orderness(10), ["a", "b"])
    rig.run(emit(500, split="a"), emit(100, split="b"), emit(480, split="a"), emit(90, split="b"))
    rig.pass_by(0.2)
    assert rig.watermark == 89


def test_spec_section_13_6_records_before_the_first_split_go_to_the_main_output():
    rig = Rig(MONOTONOUS)
    assert rig.run(emit(40)) == [40]
    rig.pass_by(0.2)
    assert rig.watermark == 39
    rig.operator.add_splits(3, [])
    rig.run(emit(20, split="a"), emit(60, split="b"))
    rig.pass_by(0.2)
    assert rig.watermark == 39, "splits go on from there, never back"
    rig.run(emit(50, split="a"))
    rig.pass_by(0.2)
    assert rig.watermark == 49


def test_a_reader_that_uses_no_outputs_of_splits_has_watermarks_all_the_same():
    rig = Rig(MONOTONOUS, ["a", "b"])
    rig.run(emit(40))
    rig.pass_by(0.2)
    assert rig.watermark == 39


def test_the_output_of_a_split_is_the_same_until_it_is_released():
    output = OperatorOutput(PLAIN, Clock(1000.0))
    first = output.create_output_for_split("a")
    assert output.create_output_for_split("a") is first
    output.release_output_for_split("a")
    output.release_output_for_split("a")
    assert output.released == ["a"]
    assert output.create_output_for_split("a") is not first


def test_a_watermark_holds_from_its_place_between_the_records_on():
    rig = Rig(PLAIN, ["a"])

    def step(reader, output):
        split = output.create_output_for_split("a")
        split.collect("before")
        split.emit_watermark(10)
        split.collect("after")

    rig.reader.script(step)
    seen = [(rig.operator.poll(), rig.watermark) for _ in range(2)]
    assert seen == [("before", MIN_WATERMARK), ("after", 10)]


class TestIdleness:
    STRATEGY = MONOTONOUS.with_idleness(1.0)

    def rig(self):
        rig = Rig(self.STRATEGY, ["busy", "quiet"])
        rig.run(emit(100, split="busy"), emit(50, split="quiet"))
        rig.pass_by(0.2)
        assert rig.watermark == 49
        return rig

    def busy(self, rig, seconds):
        for _ in range(round(seconds * 10)):
            rig.run(emit(round(rig.clock.now), split="busy"))
            rig.pass_by(0.1)

    def test_spec_section_13_6_a_split_without_records_for_the_timeout_is_left_out(self):
        rig = self.rig()
        self.busy(rig, 1.0)
        assert rig.watermark == 49
        self.busy(rig, 0.6)
        assert rig.watermark >= 999
        assert not is_idle(rig)

    def test_spec_section_13_6_its_next_record_counts_it_in_again_and_takes_nothing_back(self):
        rig = self.rig()
        self.busy(rig, 1.6)
        before = rig.watermark
        rig.run(emit(60, split="quiet"))
        self.busy(rig, 0.6)
        assert rig.watermark == before
        rig.run(emit(5000, split="quiet"))
        rig.run(emit(4000, split="busy"))
        rig.pass_by(0.3)
        assert rig.watermark == 3999

    def test_spec_section_13_6_all_idle_is_idle(self):
        rig = self.rig()
        rig.pass_by(1.0)
        assert not is_idle(rig)
        rig.pass_by(0.6)
        assert (rig.watermark, is_idle(rig)) == (49, True)
        rig.run(emit(101, split="busy"))
        assert not is_idle(rig)

    def test_spec_section_13_6_a_reader_without_a_split_is_idle_until_it_gets_one(self):
        rig = Rig(self.STRATEGY)
        rig.pass_by(1.0)
        assert not is_idle(rig)
        rig.pass_by(0.6)
        assert (rig.watermark, is_idle(rig)) == (MIN_WATERMARK, True)
        rig.operator.add_splits(3, parts("a"))
        rig.drain()
        assert not is_idle(rig), "a split holds the watermark back from when it was added"
        rig.run(emit(10, split="a"), release("a"))
        rig.pass_by(1.0)
        assert not is_idle(rig), "the time begins anew"
        rig.pass_by(0.6)
        assert is_idle(rig)
        rig.run(emit(20))
        assert not is_idle(rig), "a record that belongs to no split"

    def test_spec_section_13_6_without_a_timeout_a_reader_without_a_split_is_never_idle(self):
        rig = Rig(MONOTONOUS)
        rig.pass_by(100)
        assert not is_idle(rig)

    @pytest.mark.parametrize("order", [["busy", "quiet"], ["quiet", "busy"]])
    def test_spec_section_13_6_splits_that_become_idle_together_move_nothing(self, order):
        rig = Rig(self.STRATEGY, order)
        rig.run(emit(100, split="busy"), emit(50, split="quiet"))
        rig.pass_by(2.0)
        assert (rig.watermark, is_idle(rig)) == (49, True)

    def test_spec_section_13_6_the_clock_stands_still_under_back_pressure(self):
        """FLINK-35886."""
        rig = self.rig()
        rig.clock.pass_by(30)
        rig.operator.back_pressured_for(30)
        rig.drain()
        assert (rig.watermark, is_idle(rig)) == (49, False)
        rig.pass_by(0.8)
        assert not is_idle(rig)
        rig.pass_by(1.0)
        assert is_idle(rig)

    def test_spec_section_13_6_a_caller_that_keeps_a_record_makes_nothing_idle(self):
        rig = self.rig()
        rig.reader.script(emit(200, 201, split="busy"), emit(202, 203, split="busy"))
        for _ in range(4):
            rig.operator.poll()
            rig.clock.pass_by(3600)
        rig.run(emit(150, split="quiet"))
        assert rig.watermark < 150, "the records of the quiet split were there all the time"

    def test_a_caller_that_is_busy_does_not_hide_an_idle_split(self):
        rig = self.rig()
        for number in range(20):
            rig.reader.script(emit(200 + number, split="busy"))
            assert rig.operator.poll() == 200 + number
            rig.clock.pass_by(0.15)
        rig.drain()
        assert rig.watermark > 200

    def test_spec_section_13_6_time_paused_by_the_caller_is_not_counted_twice(self):
        rig = self.rig()
        rig.reader.script(emit(200, split="busy"))
        rig.operator.poll()
        rig.clock.pass_by(50)
        rig.operator.back_pressured_for(50)
        rig.drain()
        rig.pass_by(1.8)
        assert is_idle(rig)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["watermark", "idle", "active", "release", "create"]),
        st.sampled_from("abcd"),
        st.integers(0, 1000),
    ),
    max_size=60,
)


class Model:
    """A naive model of the combined watermark."""

    def __init__(self):
        self.splits = {}
        self.combined = MIN_WATERMARK

    def apply(self, what, split, time):
        if what == "release":
            self.splits.pop(split, None)
        else:
            known, is_idle = self.splits.get(split, (MIN_WATERMARK, False))
            if what == "watermark" and time > known:
                known, is_idle = time, False
            elif what in {"idle", "active"}:
                is_idle = what == "idle"
            self.splits[split] = (known, is_idle)
        active = [known for known, is_idle in self.splits.values() if not is_idle]
        if active:
            self.combined = max(self.combined, min(active))

    @property
    def is_idle(self):
        return bool(self.splits) and all(idle for _, idle in self.splits.values())


@settings(max_examples=500, deadline=None)
@given(EVENTS)
def test_the_combined_watermark_is_that_of_a_naive_model(events):
    output, model, emitted = OperatorOutput(PLAIN, Clock(1000.0)), Model(), []
    for what, split, time in events:
        model.apply(what, split, time)
        if what == "release":
            output.release_output_for_split(split)
        else:
            target = output.create_output_for_split(split)
            {
                "watermark": lambda target=target, time=time: target.emit_watermark(time),
                "idle": target.mark_idle,
                "active": target.mark_active,
                "create": lambda: None,
            }[what]()
        emitted.append(output.current)
        assert output.current == output.latest == model.combined
        assert output.is_idle == model.is_idle
    assert emitted == sorted(emitted), "it never goes back"


@settings(max_examples=200, deadline=None)
@given(
    bound=st.integers(0, 30),
    events=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.booleans()), max_size=60
    ),
)
def test_no_record_is_late_when_all_keep_to_the_bound(bound, events):
    rig = Rig(WatermarkStrategy.for_bounded_out_of_orderness(bound), ["a", "b", "c"])
    newest = {}
    for split, step, is_late in events:
        known = newest.get(split, 100)
        time = known - min(step, bound) if is_late and split in newest else known + step
        newest[split] = max(known, time)
        assert time > rig.watermark, "a record behind the watermark"
        rig.run(emit(time, split=split))
        rig.pass_by(0.1)
    rig.pass_by(0.3)
    if len(newest) == 3:
        assert rig.watermark == min(newest.values()) - bound - 1
    else:
        assert rig.watermark == MIN_WATERMARK


@pytest.mark.parametrize("count", [1, 2, 5])
def test_idle_timers_of_splits_are_their_own(count):
    names = [f"s{n}" for n in range(count)]
    rig = Rig(MONOTONOUS.with_idleness(0.5), names)
    rig.run(*(emit(10 * (n + 1), split=name) for n, name in enumerate(names)))
    for _ in range(12):
        rig.run(emit(10_000, split=names[0]))
        rig.pass_by(0.1)
    assert rig.watermark == 9999
