"""Mistakes with calls that wait: each is refused, or ends the job, with a code and four lines that say what to do."""

import threading
from functools import partial

import pyarrow as pa
import pytest

from headgate.errors import HeadgateError
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import CoProcessFunction, ProcessFunction, stream

NUMBER = pa.schema([("id", pa.int64())])
NEVER = threading.Event()


def numbers():
    return stream(NumberSequenceSource(0, 3, splits=1))


def run(job):
    """Run a job, or a stream."""
    if hasattr(job, "sink"):
        job = job.sink(FunctionSink(len))
    job.run(restarts=0, workers=0)


async def same(rows):
    return rows


class AsyncObject:
    async def __call__(self, rows):
        return rows


class AsyncProcess(ProcessFunction):
    async def process(self, batch, context):
        return batch


class AsyncTimers(ProcessFunction):
    def process(self, batch, context):
        return batch

    async def open(self, context):
        raise AssertionError


class AsyncCoProcess(CoProcessFunction):
    def process_first(self, batch, context):
        return batch

    async def process_second(self, batch, context):
        return batch


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("no")


def refuse(row):
    raise Unpicklable("planned")


async def twice(batch):
    return pa.concat_tables([pa.table(batch), pa.table(batch)])


def joined():
    keyed = numbers().key_by("id")
    return keyed.connect(numbers().key_by("id")).process(AsyncCoProcess, schema=NUMBER)


#: The deed, the code of its error, and words of its first line.
MISTAKES = {
    "map": (lambda: numbers().map(same), "HG-1001", "coroutine function"),
    "map of a partial": (lambda: numbers().map(partial(same)), "HG-1001", "coroutine function"),
    "map of an object": (lambda: numbers().map(AsyncObject()), "HG-1001", "coroutine function"),
    "map with a schema": (
        lambda: numbers().map(same, schema=NUMBER),
        "HG-1001",
        "coroutine function",
    ),
    "map of a lambda": (
        lambda: numbers().map(lambda rows: same(rows), schema=NUMBER),  # noqa: PLW0108 - plain
        "HG-4003",
        "returned a coroutine",
    ),
    "filter": (lambda: numbers().filter(same), "HG-1001", "coroutine function"),
    "process": (
        lambda: numbers().process(AsyncProcess, schema=NUMBER),
        "HG-1001",
        "process(), which cannot be called",
    ),
    "open": (
        lambda: numbers().process(AsyncTimers(), schema=NUMBER),
        "HG-1001",
        "open(), which cannot be called",
    ),
    "process of two": (joined, "HG-1001", "process_second(), which cannot be called"),
    "sink": (lambda: numbers().sink(FunctionSink(same)), "HG-1001", "coroutine function"),
    "sink of a lambda": (
        lambda: numbers().sink(FunctionSink(lambda rows: same(rows))),  # noqa: PLW0108 - plain
        "HG-6001",
        "returned a coroutine",
    ),
    "memo": (
        lambda: numbers().map_async(same, schema=NUMBER, memo=same),
        "HG-1001",
        "coroutine function",
    ),
    "rate": (lambda: numbers().map_async(same, schema=NUMBER, rate="fast"), "HG-1001", "fast"),
    "rate_by": (
        lambda: numbers().map_async(same, schema=NUMBER, rate="5/s", rate_by="host"),
        "HG-4001",
        "host",
    ),
    "length": (
        lambda: numbers().map_async(twice, schema=NUMBER, batch_rows=3, memo=True),
        "HG-4003",
        "6 rows for 3",
    ),
    "pickle": (
        lambda: numbers().map_async(refuse, schema=NUMBER),
        "HG-6001",
        "Unpicklable: planned",
    ),
    "timeout": (
        lambda: numbers().map_async(lambda _: NEVER.wait(1), schema=NUMBER, timeout=0.02),
        "HG-6001",
        "TimeoutError: no answer within timeout=0.02 s",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.filterwarnings("error")
def test_a_mistake_has_a_code_and_four_lines(mistake):
    act, code, text = MISTAKES[mistake]
    with pytest.raises(HeadgateError) as caught:
        run(act())
    first, *others = str(caught.value).splitlines()
    assert first.startswith(f"[{code}] ")
    assert text in first
    assert [line.split()[0] for line in others if line.startswith("  ")][-2:] == ["do", "more"]
    assert len(others) >= 3, "it has all four lines"


def test_an_error_of_a_worker_process_that_cannot_be_pickled_is_told():
    called = numbers().map_async(refuse, schema=NUMBER).sink(FunctionSink(len))
    with pytest.raises(HeadgateError, match="Unpicklable: planned") as caught:
        called.run(restarts=0, workers=1)
    assert str(caught.value).startswith("[HG-6001]")
