"""The element queue: after Flink's FutureCompletingBlockingQueueTest."""

import threading
from concurrent.futures import wait

import pytest
from tests.source.base_kit import TIMEOUT
from tests.source.simulator import SimThreads, Simulator

from headgate.errors import OptionError
from headgate.source.base import AVAILABLE, FutureCompletingBlockingQueue
from headgate.source.base.threads import drive


def queue_of(*elements, capacity=2):
    queue = FutureCompletingBlockingQueue(capacity)
    for element in elements:
        assert queue.put(0, element)
    return queue


def parked(steps):
    """Advance steps until they wait, and return the parker."""
    return next(wait for wait in steps if wait is not None)


def finish(steps):
    """Advance steps to their end, without a wait, and return the result."""
    try:
        while True:
            assert next(steps) is None, "it waits"
    except StopIteration as end:
        return end.value


def test_elements_come_in_order():
    queue = queue_of("a", "b", capacity=3)
    assert (queue.size(), queue.remaining_capacity(), queue.peek()) == (2, 1, "a")
    assert [queue.poll(), queue.poll(), queue.poll(), queue.peek()] == ["a", "b", None, None]
    assert queue.is_empty()
    assert queue.remaining_capacity() == 3


def test_two_batches_are_the_default():
    assert FutureCompletingBlockingQueue().remaining_capacity() == 2


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_queue_without_room_is_refused(capacity):
    with pytest.raises(OptionError, match=f"queue_capacity={capacity}"):
        FutureCompletingBlockingQueue(capacity)


def test_spec_13_07_a_woken_put_inserts_nothing():
    queue = queue_of("a", capacity=1)
    put = queue.put_steps(0, "b")
    assert parked(put) is not None
    queue.wake_up_putting_thread(0)
    assert finish(put) is False
    assert (queue.size(), queue.peek()) == (1, "a")
    assert queue.poll() == "a"
    assert queue.put(0, "c") is True
    assert queue.poll() == "c"


def test_spec_13_07_a_wake_up_does_not_touch_a_put_that_fits():
    queue = queue_of(capacity=1)
    queue.wake_up_putting_thread(0)
    assert queue.put(0, "a") is True


def test_spec_13_07_a_wake_up_waits_for_the_put_that_does_not_fit():
    queue = queue_of("a", capacity=1)
    queue.wake_up_putting_thread(0)
    assert queue.put(0, "b") is False, "the flag stays until a put finds the queue full"
    put = queue.put_steps(0, "b")
    assert parked(put), "and counts once"


def test_a_wake_up_is_for_one_thread():
    queue = queue_of("a", capacity=1)
    first, second = queue.put_steps(1, "b"), queue.put_steps(2, "c")
    assert parked(first)
    assert parked(second)
    queue.wake_up_putting_thread(2)
    assert finish(second) is False
    assert parked(first), "looks again and waits on"


def test_a_poll_lets_one_waiting_put_in_and_they_take_turns():
    threads = SimThreads(Simulator(0, 0.0))
    queue = FutureCompletingBlockingQueue(1, threads=threads)
    drive(queue.put_steps(0, "a"))
    first, second = queue.put_steps(1, "b"), queue.put_steps(2, "c")
    waiting = [parked(first), parked(second)]
    assert queue.poll() == "a"
    assert [w.permit for w in waiting] == [True, False]
    assert finish(first) is True
    assert queue.poll() == "b"
    assert waiting[1].permit
    assert finish(second) is True
    assert queue.poll() == "c"


def test_a_put_that_was_overtaken_waits_on_and_is_not_forgotten():
    threads = SimThreads(Simulator(0, 0.0))
    queue = FutureCompletingBlockingQueue(1, threads=threads)
    drive(queue.put_steps(0, "a"))
    slow = queue.put_steps(1, "slow")
    parker = parked(slow)
    queue.poll()
    assert drive(queue.put_steps(2, "quick")) is True
    parker.permit = False
    assert parked(slow) is parker
    assert queue.poll() == "quick"
    assert parker.permit
    assert finish(slow) is True


def test_spec_13_08_the_future_says_whether_there_is_an_element():
    queue = FutureCompletingBlockingQueue()
    assert queue.poll() is None
    first = queue.get_availability_future()
    assert not first.done()
    assert queue.get_availability_future() is first
    queue.put(0, "a")
    assert first.done()
    queue.put(0, "b")
    queue.poll()
    assert queue.get_availability_future() is AVAILABLE, "one is left"
    queue.poll()
    second = queue.get_availability_future()
    assert second is not first
    assert not second.done()


def test_spec_13_08_a_notification_completes_it_without_an_element():
    queue = FutureCompletingBlockingQueue()
    future = queue.get_availability_future()
    queue.notify_available()
    assert future.done()
    assert queue.get_availability_future() is AVAILABLE
    queue.notify_available()
    assert queue.poll() is None
    assert not queue.get_availability_future().done(), "a poll that finds nothing takes it back"


def test_a_new_queue_has_an_open_future():
    assert not FutureCompletingBlockingQueue().get_availability_future().done()


def test_who_waits_cannot_cancel_the_future_for_others():
    queue = FutureCompletingBlockingQueue()
    future = queue.get_availability_future()
    assert not future.cancel()
    queue.put(0, "a")
    assert future.result(0) is None


def test_callbacks_of_the_future_may_use_the_queue():
    queue = FutureCompletingBlockingQueue()
    polled = []
    queue.get_availability_future().add_done_callback(lambda _: polled.append(queue.poll()))
    queue.put(0, "a")
    assert polled == ["a"]


def test_threads_put_and_one_polls():
    queue = FutureCompletingBlockingQueue(2)
    count, putters = 300, 4

    def put(index):
        for n in range(count):
            while not queue.put(index, (index, n)):
                pass

    threads = [threading.Thread(target=put, args=(i,), daemon=True) for i in range(putters)]
    for thread in threads:
        thread.start()
    got = {index: [] for index in range(putters)}
    for turn in range(count * putters):
        while (element := queue.poll()) is None:
            assert wait([queue.get_availability_future()], TIMEOUT).done
        got[element[0]].append(element[1])
        queue.wake_up_putting_thread(turn % putters)
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert got == {index: list(range(count)) for index in range(putters)}
    assert queue.is_empty()


def test_a_thread_that_waits_to_put_is_woken():
    queue = queue_of("a", capacity=1)
    results = []
    thread = threading.Thread(target=lambda: results.append(queue.put(5, "b")), daemon=True)
    thread.start()
    queue.wake_up_putting_thread(5)  # Before or during the wait: the result is the same.
    thread.join(TIMEOUT)
    assert results == [False]


def test_what_is_kept_about_a_thread_can_be_dropped():
    queue = queue_of("a", capacity=1)
    queue.wake_up_putting_thread(3)
    queue.forget_putting_thread(3)
    assert parked(queue.put_steps(3, "b"))
