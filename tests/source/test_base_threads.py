"""Blocking code in real threads; test_schedules.py runs it in the simulator."""

import threading

import pytest
from tests.source.base_kit import TIMEOUT

from headgate.source.base.threads import AT_FETCH, THREADS, ThreadParker, drive


def test_a_permit_may_come_before_the_wait_and_counts_once():
    parker = ThreadParker()
    parker.unpark()
    parker.unpark()
    parker.park()
    thread = threading.Thread(target=parker.park, daemon=True)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive(), "the second permit was none"
    parker.unpark()
    thread.join(TIMEOUT)
    assert not thread.is_alive()


def test_many_threads_may_unpark_at_once():
    parker, rounds = ThreadParker(), 300
    seen = []

    def wait():
        for n in range(rounds):
            while wanted[0] <= n:
                parker.park()
            seen.append(n)

    wanted = [0]
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    for n in range(rounds):
        wanted[0] = n + 1
        wakers = [threading.Thread(target=parker.unpark) for _ in range(3)]
        for waker in wakers:
            waker.start()
        for waker in wakers:
            waker.join(TIMEOUT)
    thread.join(TIMEOUT)
    assert seen == list(range(rounds))


def test_drive_returns_the_result_and_waits_where_it_is_told():
    parker, waited = ThreadParker(), []

    def inner():
        yield None
        yield AT_FETCH
        waited.append("before")
        yield parker
        waited.append("after")
        return 7

    def outer():
        return (yield from inner()) + 1

    parker.unpark()
    assert drive(outer()) == 8
    assert waited == ["before", "after"]


def test_drive_lets_errors_out():
    def steps():
        yield None
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        drive(steps())


def test_a_worker_is_a_daemon_with_a_name_and_can_be_joined():
    parker = THREADS.parker()
    names = []

    def steps():
        names.append((threading.current_thread().name, threading.current_thread().daemon))
        yield parker

    worker = THREADS.start(steps(), "headgate-fetcher-x")
    assert not worker.join(0)
    parker.unpark()
    assert worker.join(TIMEOUT)
    assert names == [("headgate-fetcher-x", True)]
