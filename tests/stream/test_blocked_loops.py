"""Functions that block the event loop of their calls are named, and no others are."""

import asyncio
import functools
import logging
import queue
import re
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import stream
from headgate.stream.operators.calls.watch import (
    ThreadTimes,
    place_in,
    sure_seconds,
    thread_times,
)

NUMBER = pa.schema([("id", pa.int64())])
HERE = Path(__file__)
#: Seconds for which a step blocks: long enough for two looks more than are needed.
LONG = 0.25
pytestmark = pytest.mark.skipif(
    thread_times(threading.get_native_id()) is None, reason="the kernel tells no times of threads"
)


def compute(seconds):
    """Use the processor, whatever else runs."""
    started = time.thread_time()
    while time.thread_time() - started < seconds:
        sum(range(100))


def sleep(seconds):
    time.sleep(seconds)


def wait_for_a_peer(seconds):
    """Wait in a function of Python's own, which this file calls."""
    with pytest.raises(queue.Empty):
        queue.Queue().get(timeout=seconds)


def run(function, count=10, **options):
    """Return the status of a job that calls a function for each number."""
    called = stream(NumberSequenceSource(0, count, splits=1)).map_async(
        function, schema=NUMBER, name="calls", **options
    )
    with called.sink(FunctionSink(len)).start(parallelism=1) as query:
        query.await_termination(60)
    return query.status


def blocked(status):
    """Return the number and the longest time of each place."""
    return status.metrics["calls"].get("calls_blocked", {"values": {}})["values"]


def line_of(text):
    """Return the number of the line of this file that has a text."""
    lines = HERE.read_text("utf-8").splitlines()
    return 1 + next(at for at, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(
    ("block", "line"),
    [(sleep, "time.sleep(seconds)"), (wait_for_a_peer, "queue.Queue().get"), (compute, None)],
)
def test_a_function_that_blocks_is_named_with_its_line(block, line, caplog):
    async def call(row):
        if row["id"] in (3, 6):
            block(LONG)
        await asyncio.sleep(0.01)
        return row

    with caplog.at_level(logging.WARNING, "headgate.stream"):
        status = run(call)
    ((place, (number, seconds)),) = blocked(status).items()
    assert place.startswith(f"{HERE}:")
    assert place.endswith(f" in {block.__qualname__}")
    if line is not None:
        assert f":{line_of(line)} in " in place
    assert (number, seconds) == (2, pytest.approx(LONG, abs=0.1))
    (notice,) = [notice for notice in status.notices if "blocked" in notice]
    assert re.search(
        rf"^\[HG-6001\] calls: {re.escape(place)} .* 2 times, for up to 0\.\d+ s", notice
    )
    (record,) = [record for record in caplog.records if "blocks the event loop" in record.message]
    lines = record.message.splitlines()
    assert lines[0].startswith("[HG-6001]")
    assert place in lines[0]
    assert [text.split()[0] for text in lines[1:]] == ["asked", "do", "more"], "four lines"


def test_what_takes_long_and_blocks_nothing_is_not_named():
    def plain(row):
        time.sleep(LONG)
        return row

    async def waits(row):
        await asyncio.sleep(LONG)
        return row

    async def many_short_steps(row):
        for _ in range(8):
            compute(0.002)
            await asyncio.sleep(0)
        return row

    assert blocked(run(plain, 2)) == {}
    assert blocked(run(waits, 2)) == {}
    assert blocked(run(many_short_steps, 12)) == {}


def test_a_loop_that_waits_for_other_threads_is_not_named():
    async def short_steps(row):
        for _ in range(3):
            compute(0.008)
            await asyncio.sleep(0.001)
        return row

    is_over = threading.Event()

    def hog():
        while not is_over.is_set():
            sum(range(1000))

    hogs = [threading.Thread(target=hog) for _ in range(3)]
    for thread in hogs:
        thread.start()
    try:
        status = run(short_steps, 1)
    finally:
        is_over.set()
        for thread in hogs:
            thread.join()
    assert blocked(status) == {}


def test_a_step_is_named_also_while_other_threads_compute():
    async def call(row):
        if row["id"] == 3:
            sleep(2 * LONG)
        return row

    is_over = threading.Event()
    hog = threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(is_over.is_set, True)])
    hog.start()
    try:
        places = blocked(run(call))
    finally:
        is_over.set()
        hog.join()
    assert [place.rpartition(" ")[2] for place in places] == ["sleep"]


@pytest.mark.parametrize(
    ("ran", "waited", "turns", "sleeps", "sure"),
    [
        (1.0, 0.0, 1, (False, False), 1.0),  # it computes
        (0.0, 0.0, 0, (True, True), 0.2),  # it sleeps; at most so much counts
        (0.1, 0.3, 180, (True, True), 0.1),  # it waits for the lock
        (0.1, 0.9, 1, (True, True), 0.1),  # it waits for a processor
        (0.0, 0.0, 0, (True, False), 0.0),  # it waits for one now
        (0.5, 0.0, 60, (True, True), 0.7),  # it computes and sleeps
        (0.25, 0.25, 80, (True, True), 0.35),
    ],
)
def test_only_time_that_is_sure_counts(ran, waited, turns, sleeps, sure):
    before = ThreadTimes(5.0, 7.0, 100, sleeps[0])
    now = ThreadTimes(5.0 + ran, 7.0 + waited, 100 + turns, sleeps[1])
    assert sure_seconds(before, now, 1.0, 0.005) == pytest.approx(sure)
    assert sure_seconds(None, now, 1.0, 0.005) == sure_seconds(before, None, 1.0, 0.005) == 0


def test_the_innermost_function_of_the_user_is_the_place(tmp_path):
    def frames_in(folder, inner):
        """Return the frames of a function in a file of a folder, and of those that it calls."""
        path = tmp_path / folder / "module.py"
        code = compile("def outer(f):\n    return f()", str(path), "exec")
        names = {}
        exec(code, names)
        return functools.partial(names["outer"], inner)

    def look():
        frames, frame = [], sys._getframe(1)  # those behind this one
        while frame.f_code.co_name != "test_the_innermost_function_of_the_user_is_the_place":
            frames.append(frame)
            frame = frame.f_back
        return place_in(frames).f_code.co_filename

    package = frames_in("site-packages/client", look)
    inner_package = frames_in("site-packages/wire", look)
    user = str(tmp_path / "jobs" / "module.py")
    assert frames_in("jobs", package)() == user
    assert frames_in("site-packages/client", inner_package)().endswith("client/module.py")
    assert frames_in("jobs", frames_in("site-packages/client", inner_package))() == user
    assert place_in([]) is None
