"""The context of an enumerator: after Flink's SourceCoordinatorContextTest."""

from __future__ import annotations

import threading

import pytest
from tests.kit.clock import Clock
from tests.kit.coordinator import DEADLINE, Bench, ListSource, ListSplit
from tests.kit.leftovers import our_threads

from headgate.errors import OptionError, SourceError
from headgate.source import SourceEvent
from headgate.source.coordination import CoordinatorThread

A, B, C = (ListSplit(name) for name in "abc")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def bench(clock):
    bench = Bench(ListSource(), 3, thread=CoordinatorThread(clock=clock)).started(0, 1)
    yield bench
    bench.close()
    assert our_threads() == []


@pytest.fixture
def context(bench):
    return bench.source.enumerator.context


def move(bench, clock, seconds):
    clock.now += seconds
    bench.thread.execute(lambda: None)
    bench.settle()


def test_it_knows_the_parallelism_and_the_readers(bench, context):
    assert context.current_parallelism == 3
    readers = context.registered_readers
    assert {n: (r.subtask_id, r.location) for n, r in readers.items()} == {
        0: (0, "host-0"),
        1: (1, "host-1"),
    }
    with pytest.raises(TypeError):
        readers[2] = None


def test_splits_to_a_reader_that_is_not_there_are_an_error_and_nothing_is_assigned(bench, context):
    error = bench.in_thread(lambda: context.assign_splits({0: [A], 2: [B]}))
    assert isinstance(error, ValueError)
    assert "reader 2 is not registered (registered: [0, 1])" in str(error)
    assert bench.notes.told == []
    assert bench.assigned == []
    bench.coordinator.register_reader(0, "again")
    bench.settle()
    assert bench.source.enumerator.calls[-2] == ("back", (), 0)


def test_several_splits_to_several_readers(bench, context):
    bench.in_thread(lambda: context.assign_splits({0: [A, B], 1: [C]}))
    assert bench.assigned == [(0, ("a", "b")), (1, ("c",))]
    assert bench.assigned == [(0, ("a", "b")), (1, ("c",))]


def test_no_splits_after_no_more_splits(bench, context):
    bench.in_thread(lambda: context.signal_no_more_splits(0))
    bench.in_thread(lambda: context.signal_no_more_splits(0))
    error = bench.in_thread(lambda: context.assign_splits({1: [A], 0: [B]}))
    assert "reader 0 was told that no more splits come" in str(error)
    assert bench.notes.told == [("no more", 0)]


@pytest.mark.parametrize("call", ["signal_no_more_splits", "send_event_to_source_reader"])
def test_other_messages_need_a_registered_reader_too(bench, context, call):
    arguments = (2, SourceEvent("x"))[: 1 if call == "signal_no_more_splits" else 2]
    error = bench.in_thread(lambda: getattr(context, call)(*arguments))
    assert "reader 2 is not registered" in str(error)
    assert bench.notes.told == []


def test_another_thread_must_not_assign(bench, context):
    with pytest.raises(SourceError, match=r"called assign_splits\(\) on a thread of its own"):
        context.assign_split(A, 0)
    with pytest.raises(SourceError, match="call_async"):
        context.call_async(lambda: None, lambda *_: None)
    assert bench.notes.told == []


def test_another_thread_can_run_something_on_the_coordinators(bench, context):
    caller = threading.Thread(
        target=context.run_in_coordinator_thread, args=(lambda: context.assign_split(A, 0),)
    )
    caller.start()
    caller.join()
    bench.settle()
    assert bench.assigned == [(0, ("a",))]


def test_what_is_run_so_fails_the_job_when_it_fails(bench, context):
    context.run_in_coordinator_thread(lambda: {}["nothing"])
    bench.settle()
    (error,) = bench.notes.errors
    assert "failed in run_in_coordinator_thread: KeyError" in str(error)


@pytest.mark.parametrize(
    ("event", "limit"),
    [
        (SourceEvent("n" * 201), "the limit is 200"),
        (SourceEvent("n", b"x" * 32769), "has 32769 bytes; the limit is 32768"),
    ],
)
def test_events_have_limits(bench, context, event, limit):
    error = bench.in_thread(lambda: context.send_event_to_source_reader(0, event))
    assert isinstance(error, OptionError)
    assert limit in str(error)
    largest = SourceEvent("n" * 200, b"x" * 32768)
    assert bench.in_thread(lambda: context.send_event_to_source_reader(0, largest)) is None
    assert len(bench.notes.told) == 1


def test_backlog_is_what_was_said_last(bench, context):
    assert not bench.coordinator.is_processing_backlog
    bench.in_thread(lambda: context.set_is_processing_backlog(True))
    assert bench.coordinator.is_processing_backlog


def test_spec_13_14_the_handler_of_call_async_runs_on_the_coordinators_thread(bench, context):
    seen = []

    def work():
        seen.append(threading.current_thread().name)
        return 42

    def handle(result, error):
        seen.append((threading.current_thread().name, result, error))
        context.assign_split(A, 0)

    bench.in_thread(lambda: context.call_async(work, handle))
    bench.settle()
    assert seen == ["headgate-call-async-0", ("headgate-enumerators", 42, None)]
    assert bench.assigned == [(0, ("a",))]


def test_spec_13_14_the_exception_of_work_goes_to_the_handler(bench, context):
    seen = []
    bench.in_thread(lambda: context.call_async(lambda: {}["x"], lambda *a: seen.append(a)))
    bench.settle()
    ((result, error),) = seen
    assert result is None
    assert isinstance(error, KeyError)
    assert bench.notes.errors == []


def test_a_handler_that_fails_fails_the_job(bench, context):
    bench.in_thread(lambda: context.call_async(lambda: 1, lambda result, error: result / 0))
    bench.settle()
    (error,) = bench.notes.errors
    assert "failed in the handler of call_async: ZeroDivisionError" in str(error)


def test_delay_and_period(bench, context, clock):
    seen = []
    bench.in_thread(
        lambda: context.call_async(lambda: clock.now, lambda now, _: seen.append(now), 5, 10)
    )
    bench.in_thread(
        lambda: context.call_async(lambda: "once", lambda it, _: seen.append(it), initial_delay=7)
    )
    bench.in_thread(lambda: context.call_async(lambda: "at once", lambda it, _: seen.append(it)))
    bench.settle()
    for _ in range(30):
        move(bench, clock, 1)
    assert seen == ["at once", 5, "once", 15, 25]


def test_a_time_is_left_out_while_the_one_before_still_runs(bench, context, clock):
    started = threading.Semaphore(0)
    go = threading.Semaphore(0)
    seen = []

    def work():
        started.release()
        assert go.acquire(timeout=DEADLINE)
        return clock.now

    bench.in_thread(lambda: context.call_async(work, lambda now, _: seen.append(now), 0, 10))
    assert started.acquire(timeout=DEADLINE)
    clock.now = 35
    assert bench.in_thread(lambda: "three times have passed") == "three times have passed"
    go.release()
    bench.settle()
    assert seen == [35]
    assert not started.acquire(blocking=False)
    clock.now = 45
    bench.thread.execute(lambda: None)
    assert started.acquire(timeout=DEADLINE)
    go.release()
    bench.settle()
    assert seen == [35, 45]


@pytest.mark.parametrize("period", [0, -1, float("nan")])
def test_a_period_is_positive(bench, context, period):
    error = bench.in_thread(
        lambda: context.call_async(lambda: None, lambda *_: None, period=period)
    )
    assert "greater than 0" in str(error)


def test_close_drops_what_waits_and_silences_what_runs(bench, context, clock):
    at, go = threading.Event(), threading.Event()
    seen = []
    bench.in_thread(
        lambda: context.call_async(
            lambda: (at.set(), go.wait(DEADLINE)), lambda *_: seen.append("handled")
        )
    )
    bench.in_thread(lambda: context.call_async(lambda: seen.append("late"), lambda *_: None, 5, 5))
    assert at.wait(DEADLINE)
    bench.coordinator.close(DEADLINE)
    go.set()
    move(bench, clock, 100)
    assert seen == []
    assert bench.notes.errors == []


def test_after_close_the_context_is_silent(bench, context):
    bench.coordinator.close(DEADLINE)
    context.assign_split(A, 0)
    context.signal_no_more_splits(0)
    context.send_event_to_source_reader(0, SourceEvent("x"))
    context.call_async(lambda: 1 / 0, lambda *_: 1 / 0)
    bench.settle()
    assert bench.notes.told == []
    assert bench.notes.errors == []
