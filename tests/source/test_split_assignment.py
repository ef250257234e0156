"""The tracker of assigned splits: after Flink's SplitAssignmentTrackerTest, and a naive model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.source.coordination import SplitAssignmentTracker


def tracked() -> SplitAssignmentTracker[str]:
    """Return a tracker after: assign a, checkpoint 1, assign b."""
    tracker: SplitAssignmentTracker[str] = SplitAssignmentTracker()
    tracker.record({0: ["a"]})
    tracker.snapshot(1)
    tracker.record({0: ["b"]})
    return tracker


def test_spec_13_10_reset_to_a_checkpoint_returns_what_came_after_it():
    assert tracked().reset(0, 1) == ["b"]


def test_spec_13_10_reset_to_before_the_checkpoint_returns_all():
    assert tracked().reset(0, 0) == ["a", "b"]


def test_spec_13_10_a_complete_checkpoint_keeps_what_it_covers():
    tracker = tracked()
    tracker.complete(1)
    assert tracker.complete_checkpoint == 1
    assert tracker.reset(0, 1) == ["b"]


def test_spec_13_10_what_was_returned_is_forgotten():
    tracker = tracked()
    assert tracker.reset(0, 0) == ["a", "b"]
    assert tracker.reset(0, 0) == []


def test_readers_are_apart():
    tracker = tracked()
    tracker.record({1: ["c"], 2: []})
    assert tracker.reset(1, 0) == ["c"]
    assert tracker.reset(2, 0) == []
    assert tracker.reset(0, 0) == ["a", "b"]


def test_a_complete_checkpoint_covers_those_before_it():
    tracker = tracked()
    tracker.snapshot(2)
    tracker.record({0: ["c"]})
    tracker.snapshot(3)
    tracker.complete(2)
    assert tracker.reset(0, 2) == ["c"]


def test_an_aborted_checkpoint_is_covered_by_a_later_one():
    tracker = tracked()
    tracker.snapshot(2)  # Checkpoint 1 was aborted.
    assert tracker.reset(0, tracker.complete_checkpoint) == ["a", "b"]


def test_checkpoints_grow():
    tracker = tracked()
    with pytest.raises(ValueError, match="checkpoint 1 does not follow"):
        tracker.snapshot(1)
    tracker.complete(5)
    tracker.snapshot(6)
    with pytest.raises(ValueError, match="checkpoint 5 does not follow"):
        tracker.snapshot(5)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.integers(0, 2)),
        st.tuples(st.just("snapshot"), st.just(0)),
        st.tuples(st.just("complete"), st.integers(1, 12)),
        st.tuples(st.just("reset"), st.integers(0, 2)),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_equals_a_list_of_assignments_with_their_checkpoints(steps):
    tracker: SplitAssignmentTracker[int] = SplitAssignmentTracker()
    naive: list[tuple[int, int, int]] = []  # Split, reader, and the checkpoint that covers it.
    checkpoint = complete = split = 0
    for step, value in steps:
        if step == "assign":
            split += 1
            tracker.record({value: [split]})
            naive.append((split, value, checkpoint + 1))
        elif step == "snapshot":
            checkpoint += 1
            tracker.snapshot(checkpoint)
        elif step == "complete" and value <= checkpoint:
            complete = max(complete, value)
            tracker.complete(value)
            naive = [n for n in naive if n[2] > complete]
        elif step == "reset":
            assert tracker.reset(value, complete) == [s for s, r, _ in naive if r == value]
            naive = [n for n in naive if n[1] != value]
    for reader in range(3):
        assert tracker.reset(reader, complete) == [s for s, r, _ in naive if r == reader]
