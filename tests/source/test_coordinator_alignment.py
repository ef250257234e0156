"""Watermark alignment in the coordinator: after Flink's SourceCoordinatorAlignmentTest."""

from __future__ import annotations

import pytest
from tests.kit.clock import Clock
from tests.kit.coordinator import DEADLINE, Bench, ListSource, ListSplit
from tests.kit.leftovers import our_threads

from headgate.source import MAX_WATERMARK, MIN_WATERMARK, WatermarkStrategy
from headgate.source.coordination import AlignmentGroups, CoordinatorThread, WatermarkAggregator

DRIFT = 1000


def strategy(group="g", drift=DRIFT, interval=1.0):
    return WatermarkStrategy.no_watermarks().with_watermark_alignment(
        group, drift, update_interval=interval
    )


class Aligned(Bench):
    """A bench with a simulated clock; :meth:`announced` advances it by one interval."""

    def __init__(self, *, watermarks=None, parallelism=3, clock=None, **options):
        self.clock = clock or Clock()
        options.setdefault("thread", CoordinatorThread(clock=self.clock))
        super().__init__(
            ListSource([ListSplit("a")]),
            parallelism,
            watermarks=watermarks or strategy(),
            **options,
        )

    def reported(self, **watermarks):
        for reader, watermark in watermarks.items():
            self.coordinator.report_watermark(int(reader[1:]), watermark)
        self.settle()

    def announced(self, seconds=1.0):
        self.notes.told.clear()
        self.clock.now += seconds
        self.thread.execute(lambda: None)
        self.settle()
        return {note[1]: note[2] for note in self.notes.told if note[0] == "align"}


@pytest.fixture
def bench():
    bench = Aligned().started(0, 1, 2)
    yield bench
    bench.close()
    assert our_threads() == []


def test_the_least_watermark_plus_the_drift_is_allowed(bench):
    bench.reported(r0=42)
    assert bench.announced() == {0: 42 + DRIFT}
    bench.reported(r1=44)
    assert bench.announced() == {0: 42 + DRIFT, 1: 42 + DRIFT}
    bench.reported(r0=5000)
    assert bench.announced() == {0: 44 + DRIFT, 1: 44 + DRIFT}


def test_nothing_is_said_between_the_intervals_and_something_in_each(bench):
    bench.reported(r0=42)
    assert bench.announced(0.5) == {}
    assert bench.announced(0.5) == {0: 42 + DRIFT}
    assert bench.announced(0.9) == {}
    assert bench.announced(0.1) == {0: 42 + DRIFT}


def test_flink_32414_readers_without_a_split_say_nothing_and_hold_nobody(bench):
    bench.reported(r0=MIN_WATERMARK)
    assert bench.announced() == {}
    bench.reported(r1=7)
    assert bench.announced() == {1: 7 + DRIFT}


def test_flink_32496_idle_readers_hold_nobody(bench):
    bench.reported(r0=10, r1=99)
    bench.reported(r0=MAX_WATERMARK)
    assert bench.announced() == {0: 99 + DRIFT, 1: 99 + DRIFT}
    bench.reported(r0=50)  # And is active again.
    assert bench.announced() == {0: 50 + DRIFT, 1: 50 + DRIFT}


def test_all_idle_may_go_as_far_as_they_like(bench):
    bench.reported(r0=MAX_WATERMARK, r1=MAX_WATERMARK)
    assert bench.announced() == {0: MAX_WATERMARK, 1: MAX_WATERMARK}


def test_a_sum_beyond_the_greatest_is_the_greatest(bench):
    bench.reported(r0=MAX_WATERMARK - DRIFT + 1)
    assert bench.announced() == {0: MAX_WATERMARK}
    bench.reported(r0=MAX_WATERMARK - DRIFT - 1)
    assert bench.announced() == {0: MAX_WATERMARK - 1}


def test_spec_section_13_6_readers_without_more_splits_are_told_too(bench):
    """FLINK-37670: one that waits for the others, and still has splits, would wait for ever."""
    bench.coordinator.request_split(0, None)
    bench.coordinator.request_split(0, None)
    bench.reported(r0=10, r1=20)
    assert ("no more", 0) in bench.notes.told
    assert bench.announced() == {0: 10 + DRIFT, 1: 10 + DRIFT}


def test_a_reader_that_registers_again_holds_nobody(bench):
    bench.reported(r0=10, r1=20)
    bench.coordinator.register_reader(0, "again")
    bench.settle()
    assert bench.announced() == {1: 20 + DRIFT}
    bench.coordinator.register_reader(1, "again")
    bench.settle()
    assert bench.announced() == {}


def test_sources_of_a_group_wait_for_one_another():
    clock, groups = Clock(), AlignmentGroups()
    thread = CoordinatorThread(clock=clock)
    benches = [
        Aligned(
            watermarks=strategy(group, drift), clock=clock, thread=thread, groups=groups
        ).started(0)
        for group, drift in (("g", 100), ("g", 200), ("h", 300))
    ]
    for bench, watermark in zip(benches, (10, 20, 30), strict=True):
        bench.reported(r0=watermark)
        bench.notes.told.clear()
    clock.now += 1
    thread.execute(lambda: None)
    benches[0].settle()
    assert [b.notes.told for b in benches] == [
        [("align", 0, 110)],
        [("align", 0, 210)],
        [("align", 0, 330)],
    ]
    benches[0].coordinator.close(DEADLINE)
    assert benches[1].announced() == {0: 220}
    thread.close(DEADLINE)
    assert our_threads() == []


def test_groups_of_different_jobs_are_apart():
    clock = Clock()
    thread = CoordinatorThread(clock=clock)
    slow, fast = (Aligned(clock=clock, thread=thread).started(0) for _ in range(2))
    slow.reported(r0=1)
    fast.reported(r0=9000)
    assert fast.announced() == {0: 9000 + DRIFT}
    thread.close(DEADLINE)


def test_without_alignment_nothing_is_said():
    bench = Aligned(watermarks=WatermarkStrategy.no_watermarks()).started(0)
    bench.reported(r0=1)
    assert bench.announced(100) == {}
    bench.close()


def test_nothing_is_said_after_the_close(bench):
    bench.reported(r0=1)
    bench.coordinator.close(DEADLINE)
    assert bench.announced(100) == {}


def test_the_aggregator_knows_the_least():
    aggregator: WatermarkAggregator[str] = WatermarkAggregator()
    assert aggregator.minimum is None
    aggregator.report("a", 5)
    aggregator.report("b", 3)
    aggregator.report("c", MIN_WATERMARK)
    assert aggregator.minimum == 3
    assert set(aggregator.keys) == {"a", "b"}
    aggregator.forget("b")
    aggregator.forget("b")
    assert aggregator.minimum == 5
