"""The thread of all enumerators: order, timers on a simulated clock, pool, and close."""

from __future__ import annotations

import logging
import threading

import pytest
from tests.kit.clock import Clock
from tests.kit.coordinator import DEADLINE
from tests.kit.leftovers import our_threads

from headgate.source.coordination import CoordinatorThread


@pytest.fixture
def clock():
    return Clock(100.0)


@pytest.fixture
def thread(clock):
    thread = CoordinatorThread(clock=clock)
    yield thread
    thread.close(DEADLINE)
    assert our_threads() == []


def rest(thread):
    done = threading.Event()
    thread.call_when_idle(done.set)
    assert done.wait(DEADLINE)


def move(thread, clock, seconds):
    clock.now += seconds
    thread.execute(lambda: None)
    rest(thread)


def later(thread, delay, action):
    thread.execute(lambda: thread.call_later(delay, action))


def submit(thread, work, callback):
    thread.execute(lambda: thread.submit(work, callback))


def test_it_starts_with_the_first_action_and_runs_all_in_order(thread):
    assert our_threads() == []
    seen = []
    for number in range(1000):
        assert thread.execute(lambda n=number: seen.append((n, threading.current_thread().name)))
    rest(thread)
    assert seen == [(n, "headgate-enumerators") for n in range(1000)]
    assert our_threads() == ["headgate-enumerators"]


def test_actions_of_one_caller_keep_their_order_among_those_of_many(thread):
    seen = []

    def call(who):
        for number in range(500):
            thread.execute(lambda n=number: seen.append((who, n)))

    callers = [threading.Thread(target=call, args=(who,)) for who in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    rest(thread)
    for who in range(4):
        assert [n for w, n in seen if w == who] == list(range(500))


def test_an_action_that_fails_is_logged_and_ends_nothing(thread, caplog):
    seen = []
    with caplog.at_level(logging.ERROR, "headgate.source"):
        thread.execute(lambda: 1 / 0)
        thread.execute(lambda: seen.append(1))
        rest(thread)
    assert seen == [1]
    assert "ZeroDivisionError" in caplog.text


def test_a_timer_runs_when_its_time_has_come(thread, clock):
    seen = []
    later(thread, 5, lambda: seen.append("five"))
    later(thread, 2, lambda: seen.append("two"))
    later(thread, 0, lambda: seen.append("now"))
    rest(thread)
    assert seen == ["now"]
    move(thread, clock, 1.99)
    assert seen == ["now"]
    move(thread, clock, 0.01)
    assert seen == ["now", "two"]
    move(thread, clock, 100)
    assert seen == ["now", "two", "five"]


def test_timers_of_one_time_run_in_the_order_of_the_calls(thread, clock):
    seen = []
    for number in range(20):
        later(thread, 1, lambda n=number: seen.append(n))
    rest(thread)
    move(thread, clock, 1)
    assert seen == list(range(20))


def test_a_cancelled_timer_never_runs(thread, clock):
    seen, timers = [], []
    thread.execute(lambda: timers.append(thread.call_later(1, lambda: seen.append("never"))))
    rest(thread)
    timers[0].cancel()
    timers[0].cancel()
    move(thread, clock, 5)
    assert seen == []


def test_work_runs_on_the_pool_and_its_callback_here(thread):
    seen = []
    submit(
        thread,
        lambda: threading.current_thread().name,
        lambda result, error: seen.append((result, error, threading.current_thread().name)),
    )
    rest(thread)
    assert seen == [("headgate-call-async-0", None, "headgate-enumerators")]


def test_an_error_of_work_goes_to_its_callback(thread):
    seen = []
    trouble = OSError("gone")

    def work():
        raise trouble

    submit(thread, work, lambda result, error: seen.append((result, error)))
    rest(thread)
    assert seen == [(None, trouble)]


def test_the_pool_has_four_daemons_and_is_used_again(thread):
    gate = threading.Barrier(5)
    seen = []
    for _ in range(4):
        submit(thread, lambda: gate.wait(DEADLINE), lambda *answer: seen.append(answer))
    gate.wait(DEADLINE)  # All four run at the same time.
    rest(thread)
    assert len(seen) == 4
    pool = [t for t in threading.enumerate() if t.name.startswith("headgate-call-async")]
    assert sorted(t.name for t in pool) == [f"headgate-call-async-{n}" for n in range(4)]
    assert all(t.daemon for t in pool)
    for number in range(50):
        submit(thread, lambda n=number: n, lambda *answer: seen.append(answer))
    rest(thread)
    assert sorted(a[0] for a in seen[4:]) == list(range(50))
    assert len(our_threads()) == 5


def test_idle_waits_for_the_pool_and_for_what_it_leads_to(thread):
    seen = []
    gate = threading.Event()
    idle = threading.Event()
    submit(
        thread,
        lambda: gate.wait(DEADLINE),
        lambda *_: submit(thread, lambda: None, lambda *_: seen.append("second")),
    )
    thread.call_when_idle(idle.set)
    done = threading.Event()
    thread.execute(done.set)
    assert done.wait(DEADLINE)
    assert not idle.is_set()
    gate.set()
    assert idle.wait(DEADLINE)
    assert seen == ["second"]


def test_close_drops_all_that_waits():
    thread = CoordinatorThread()
    seen = []
    at, go = threading.Event(), threading.Event()
    thread.execute(lambda: (at.set(), go.wait(DEADLINE)))
    assert at.wait(DEADLINE)
    thread.execute(lambda: seen.append("dropped"))
    later(thread, 0, lambda: seen.append("dropped"))
    submit(thread, lambda: seen.append("dropped"), lambda *_: seen.append("dropped"))
    closer = threading.Thread(target=thread.close, args=(DEADLINE,))
    closer.start()
    while not thread._is_closed:
        pass
    go.set()
    closer.join(DEADLINE)
    assert seen == []
    assert not thread.execute(lambda: seen.append("late"))
    thread.close()
    assert seen == []
    assert our_threads() == []


def test_close_names_what_is_still_at_work(caplog):
    thread = CoordinatorThread()
    at, go = threading.Event(), threading.Event()
    submit(thread, lambda: (at.set(), go.wait(DEADLINE)), lambda *_: None)
    assert at.wait(DEADLINE)
    with caplog.at_level(logging.WARNING, "headgate.source"):
        thread.close(timeout=0.01)
    assert "headgate-call-async-0" in caplog.text
    go.set()
    thread.close(DEADLINE)
    assert our_threads() == []


def test_it_can_be_closed_by_itself_and_without_ever_starting():
    thread = CoordinatorThread()
    thread.close()
    assert not thread.execute(lambda: None)
    other = CoordinatorThread()
    closed = threading.Event()
    other.execute(lambda: (other.close(), closed.set()))
    assert closed.wait(DEADLINE)
    other.close(DEADLINE)
    assert our_threads() == []


def test_it_keeps_nothing_of_what_it_ran(thread):
    import gc
    import weakref

    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    thread.execute(lambda kept=thing: None)
    submit(thread, lambda kept=thing: kept, lambda result, error: None)
    del thing
    rest(thread)
    thread.execute(lambda: None)
    submit(thread, lambda: None, lambda *_: None)
    rest(thread)
    gc.collect()
    assert gone() is None
