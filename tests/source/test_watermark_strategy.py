"""Strategies as values, and watermarks from generators."""

import math
import pickle

import pytest
from tests.kit.operator import Rig, emit

from headgate.errors import OptionError, UnsupportedTypeError
from headgate.source import MAX_WATERMARK, MIN_WATERMARK, WatermarkGenerator, WatermarkStrategy
from headgate.source.watermark.generator import BoundedOutOfOrderness, WatermarkOutput


class Emitted(WatermarkOutput):
    def __init__(self):
        self.timestamps = []

    def emit_watermark(self, timestamp):
        self.timestamps.append(timestamp)

    def mark_idle(self):
        raise AssertionError

    def mark_active(self):
        raise AssertionError


class EveryEvent(WatermarkGenerator):
    """A user's generator: each record's timestamp is a watermark."""

    def on_event(self, record, timestamp, output):
        output.emit_watermark(timestamp)

    def on_periodic_emit(self, output):
        pass


def first_of(record, timestamp):
    return record[0] if isinstance(record, tuple) else None


def test_a_strategy_is_built_in_steps_that_change_nothing():
    plain = WatermarkStrategy.for_bounded_out_of_orderness(5000)
    full = (
        plain.with_timestamp_assigner("t", unit="s")
        .with_idleness("30s")
        .with_watermark_alignment("orders", 1000, update_interval="500ms")
    )
    assert (plain.assigner, plain.idle_timeout, plain.alignment) == (None, None, None)
    assert (full.assigner.column, full.assigner.unit, full.idle_timeout) == ("t", "s", 30.0)
    assert (full.alignment.group, full.alignment.max_drift_ms) == ("orders", 1000)
    assert full.alignment.update_interval == 0.5
    with pytest.raises(AttributeError):
        full.idle_timeout = 1


@pytest.mark.parametrize(
    "strategy",
    [
        WatermarkStrategy.for_bounded_out_of_orderness(7).with_timestamp_assigner("t"),
        WatermarkStrategy.for_monotonous_timestamps().with_idleness(2),
        WatermarkStrategy.for_punctuated(first_of).with_watermark_alignment("g", 1),
        WatermarkStrategy.for_generator(EveryEvent),
        WatermarkStrategy.no_watermarks(),
    ],
)
def test_a_strategy_travels_by_pickle(strategy):
    again = pickle.loads(pickle.dumps(strategy))
    assert type(again.create_generator()) is type(strategy.create_generator())
    assert (again.assigner, again.idle_timeout) == (strategy.assigner, strategy.idle_timeout)
    assert again.alignment == strategy.alignment


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WatermarkStrategy.for_bounded_out_of_orderness(-1), "bound_ms=-1"),
        (lambda: WatermarkStrategy.for_bounded_out_of_orderness("5"), "bound_ms='5'"),
        (lambda: WatermarkStrategy.for_bounded_out_of_orderness(True), "bound_ms=True"),
        (lambda: WatermarkStrategy().with_idleness(0), "below the limit"),
        (lambda: WatermarkStrategy().with_idleness(math.nan), "not a duration"),
        (lambda: WatermarkStrategy().with_idleness("soon"), "not a duration"),
        (lambda: WatermarkStrategy().with_watermark_alignment("", 1), "group=''"),
        (lambda: WatermarkStrategy().with_watermark_alignment("g", -1), "max_drift_ms=-1"),
        (lambda: WatermarkStrategy().with_watermark_alignment("g", 1, 0), "update_interval=0"),
        (lambda: WatermarkStrategy().with_timestamp_assigner(5), "with_timestamp_assigner(5)"),
        (lambda: WatermarkStrategy().with_timestamp_assigner("t", "min"), "unit='min'"),
    ],
)
def test_a_wrong_value_is_named(make, words):
    with pytest.raises(OptionError) as caught:
        make()
    assert words in caught.value.summary


def test_bounded_out_of_orderness_is_behind_the_latest_time_by_the_bound_and_one():
    generator, output = BoundedOutOfOrderness(10), Emitted()
    generator.on_periodic_emit(output)
    assert output.timestamps == [], "nothing is known before the first time"
    for time in (100, 95, None, 120, 119):
        generator.on_event("r", time, output)
    assert output.timestamps == [], "only periodically"
    generator.on_periodic_emit(output)
    assert output.timestamps == [109]


def test_a_bound_below_all_times_stays_at_the_least_watermark():
    generator, output = BoundedOutOfOrderness(1000), Emitted()
    generator.on_event("r", MIN_WATERMARK + 5, output)
    generator.on_periodic_emit(output)
    assert output.timestamps == [MIN_WATERMARK]


def test_watermarks_are_emitted_every_200_ms():
    rig = Rig(WatermarkStrategy.for_monotonous_timestamps(), ["a"])
    assert rig.run(emit(100, split="a")) == [100]
    assert rig.watermark == MIN_WATERMARK
    assert rig.operator.timeout() == pytest.approx(0.2)
    rig.pass_by(0.1)
    assert rig.watermark == MIN_WATERMARK
    rig.pass_by(0.2)
    assert rig.watermark == 99
    rig.run(emit(300, split="a"))
    rig.pass_by(0.2)
    assert rig.watermark == 299


def test_a_shorter_interval_counts_while_there_are_records_only():
    rig = Rig(WatermarkStrategy.for_monotonous_timestamps(), ["a"], watermark_interval=0.02)
    assert rig.operator.timeout() == pytest.approx(0.2), "an idle reader wakes up as before"
    rig.clock.pass_by(0.5)
    rig.drain()
    for time in (100, 200):
        rig.run(emit(time, split="a"))
        assert rig.operator.timeout() == pytest.approx(0.02)
        rig.clock.pass_by(0.02)
        rig.drain()
        assert rig.watermark == time - 1
        assert rig.operator.timeout() == pytest.approx(0.2), "and again once there is nothing"


def test_a_record_after_a_pause_has_its_watermark_at_once():
    rig = Rig(WatermarkStrategy.for_monotonous_timestamps(), ["a"], watermark_interval=0.02)
    rig.clock.pass_by(0.1)
    rig.run(emit(300, split="a"))
    assert rig.watermark == 299


def test_an_interval_above_the_default_is_kept():
    rig = Rig(WatermarkStrategy.for_monotonous_timestamps(), ["a"], watermark_interval=1.0)
    rig.run(emit(100, split="a"))
    rig.pass_by(0.9)
    assert rig.watermark == MIN_WATERMARK
    rig.pass_by(0.2)
    assert rig.watermark == 99


def test_punctuated_watermarks_come_with_their_record():
    rig = Rig(WatermarkStrategy.for_punctuated(first_of), ["a"])
    assert rig.run(emit((5,), split="a", at=7)) == [(5,)]
    assert rig.watermark == 5
    rig.run(emit("no mark", split="a", at=9))
    assert rig.watermark == 5


def test_a_punctuated_function_that_returns_something_else_is_named():
    rig = Rig(WatermarkStrategy.for_punctuated(lambda record, time: "now"), ["a"])
    with pytest.raises(UnsupportedTypeError, match="returned str"):
        rig.run(emit(1, split="a"))


def test_a_generator_of_the_users_own_is_made_per_split():
    rig = Rig(WatermarkStrategy.for_generator(EveryEvent), ["a", "b"])
    rig.run(emit(10, split="a"))
    assert rig.watermark == MIN_WATERMARK
    rig.run(emit(4, split="b"))
    assert rig.watermark == 4


def test_a_source_without_times_needs_an_assigner():
    rig = Rig(WatermarkStrategy.for_monotonous_timestamps(), ["a"])
    with pytest.raises(OptionError, match="no timestamps") as caught:
        rig.run(lambda reader, output: output.collect("r"))
    assert "with_timestamp_assigner" in caught.value.remedy


def test_watermarks_of_the_source_count_only_where_the_strategy_makes_none():
    def step(reader, output):
        output.emit_watermark(50)

    own = Rig(WatermarkStrategy.no_watermarks())
    own.run(step)
    assert own.watermark == 50
    made = Rig(WatermarkStrategy.for_monotonous_timestamps())
    made.run(step)
    assert made.watermark == MIN_WATERMARK


def test_without_watermarks_nothing_is_ever_due():
    rig = Rig()
    assert rig.run(emit(1)) == [1]
    assert rig.operator.timeout() is None
    assert rig.watermark == MIN_WATERMARK


def test_the_end_emits_the_last_watermark():
    rig = Rig(WatermarkStrategy.for_monotonous_timestamps(), ["a"])
    rig.operator.no_more_splits()
    assert rig.run(emit(1, split="a")) == [1]
    assert rig.operator.is_finished
    assert rig.watermark == MAX_WATERMARK
