"""Clocks in workers."""

import pyarrow as pa
import pytest

from headgate.spark.tasks.timing import BLOCKED, EMIT, FUNCTION, INPUT, Clock, yielded
from headgate.spark.tasks.user_function import Source, apply


class Time:
    """A clock that only a test advances."""

    def __init__(self):
        self.ns = 5

    def __call__(self):
        return self.ns

    def wait(self, ms):
        self.ns += ms * 1_000_000


@pytest.fixture
def timed():
    now = Time()
    return now, Clock(now)


def spent(clock):
    return tuple(clock.fields().values())


def test_a_clock_counts_for_the_state_it_is_in(timed):
    now, clock = timed
    now.wait(3)
    assert spent(clock) == (3, 0, 0, 0)
    for state, ms in ((FUNCTION, 5), (EMIT, 7), (BLOCKED, 11), (INPUT, 13)):
        clock.enter(state)
        now.wait(ms)
    assert spent(clock) == (16, 5, 7, 11)
    assert sum(spent(clock)) == 39


def test_what_emit_waited_for_segments_is_back_pressure(timed):
    now, clock = timed
    clock.enter(EMIT)
    clock.blocked_ns = lambda: 30_000_000
    now.wait(40)
    assert spent(clock) == (0, 0, 10, 30)
    clock.blocked_ns = lambda: 50_000_000  # more than the clock: it was read a little later
    assert spent(clock) == (0, 0, 0, 40)


def test_the_times_of_a_producers_loop(timed):
    now, clock = timed

    def origin():
        for _ in range(3):
            now.wait(100)
            yield pa.record_batch({"n": [1]})

    def function(batches):
        for batch in batches:
            now.wait(10)
            yield batch
        now.wait(1)

    for _ in apply("map", function, Source(origin(), pa.schema([]), lambda _: None, clock)):
        clock.enter(EMIT)
        now.wait(2)
        clock.enter(FUNCTION)
    assert spent(clock) == (300, 31, 6, 0)


def test_the_times_of_a_consumer(timed):
    now, clock = timed

    def origin():
        now.wait(100)
        yield pa.record_batch({"n": [1]})

    def function(batches):
        for batch in batches:
            now.wait(10)
            yield batch
            yield batch

    for _ in yielded(
        apply("reduce", function, Source(origin(), pa.schema([]), lambda _: None, clock)), clock
    ):
        now.wait(1000)
    now.wait(7)
    assert spent(clock) == (107, 10, 0, 2000), "after its end the consumer is idle"


def test_an_origin_that_raises_is_not_waited_for_any_more(timed):
    now, clock = timed

    def origin():
        now.wait(5)
        raise ValueError("no more")
        yield

    with pytest.raises(ValueError, match="no more"):
        next(Source(origin(), pa.schema([]), lambda _: None, clock))
    now.wait(9)
    assert spent(clock) == (5, 9, 0, 0)
