"""A job whose tasks wait for Python's lock says that processes would help, once."""

import threading
from types import SimpleNamespace

import pytest

from headgate.control.messages import Message
from headgate.stream.job.lock_waits import LockWaits, lock_wait_us
from headgate.stream.job.notices import Notices


def test_threads_that_hold_the_lock_are_measured():
    ended = threading.Event()

    def spin():
        while not ended.is_set():
            sum(range(1000))

    quiet = min(lock_wait_us() for _ in range(5))
    threads = [threading.Thread(target=spin) for _ in range(2)]
    for thread in threads:
        thread.start()
    busy = max(lock_wait_us() for _ in range(3))
    ended.set()
    for thread in threads:
        thread.join()
    assert quiet < 1000 < busy


def report(notes, attempt, second, *, wait, busy, blocked=0):
    """Let two tasks of a worker report what they did in a second."""
    for task in attempt.worker_of:
        attempt.earlier[task] = attempt.figures[task]
        before = attempt.figures[task]
        attempt.figures[task] = {
            "elapsed_ms": 1000 * second,
            "busy_ms": before["busy_ms"] + busy,
            "blocked_ms": before["blocked_ms"] + blocked,
        }
    tasks = [{"task": list(task)} for task in attempt.worker_of]
    notes.note(attempt, 0, Message("METRICS", {"tasks": tasks, "lock_wait_us": wait}))


@pytest.mark.parametrize(
    ("figures", "notices"),
    [
        ({"wait": 4000, "busy": 900}, 1),
        ({"wait": 300, "busy": 900}, 0),
        ({"wait": 4000, "busy": 500}, 0),
        ({"wait": 4000, "busy": 900, "blocked": 500}, 0),
    ],
    ids=["waits", "gives the lock away", "one works", "waits for others"],
)
def test_five_seconds_of_waits_are_a_notice(figures, notices):
    nothing = {"elapsed_ms": 0, "busy_ms": 0, "blocked_ms": 0}
    tasks = {(0, 0): 0, (1, 0): 0}
    attempt = SimpleNamespace(worker_of=tasks, figures=dict.fromkeys(tasks, nothing), earlier={})
    noted = Notices("job")
    waits = LockWaits(noted)
    for second in range(1, 5):
        report(waits, attempt, second, **figures)
    report(waits, attempt, 5, wait=0, busy=900)
    for second in range(6, 12):
        assert noted.all({}, {}) == [] or second == 11
        report(waits, attempt, second, **figures)
    assert len(noted.all({}, {})) == notices
    if notices:
        assert "2 tasks share a process, and wait 4.0 ms" in noted.all({}, {})[0]
        assert "workers=2" in noted.all({}, {})[0]
