"""Calls of a job that users get wrong: jobs run their own sinks, scripts wait, errors name the place."""

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pytest
from tests.kit import stream_jobs

from headgate import errors
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource, RateSource
from headgate.stream import (
    Aggregate,
    ProcessFunction,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    ValueStateDescriptor,
    stream,
)

IDS = pa.schema([("id", pa.int64())])


def numbers(count=10):
    return stream(NumberSequenceSource(0, count, splits=1))


def rows(found):
    return sum(batch.num_rows for batch in found)


def test_a_job_runs_only_the_sinks_that_were_given_to_it():
    source, first, second = numbers(), [], []
    job = source.sink(FunctionSink(first.append))
    job.run()
    source.sink(FunctionSink(second.append)).run()
    assert (rows(first), rows(second)) == (10, 10)
    job.run()
    assert (rows(first), rows(second)) == (20, 10)


def test_sinks_up_to_the_start_are_one_job_also_of_joined_streams():
    one, other, found = numbers(), numbers(5), [[], [], []]
    one.sink(FunctionSink(found[0].append))
    earlier = other.sink(FunctionSink(found[1].append))
    one.union(other).sink(FunctionSink(found[2].append)).run()
    assert [rows(batches) for batches in found] == [10, 5, 15]
    later = []
    other.sink(FunctionSink(later.append)).run()
    assert [rows(batches) for batches in [*found, later]] == [10, 5, 15, 5]
    earlier.run()
    assert [rows(batches) for batches in [*found, later]] == [20, 10, 30, 5]


def test_operators_without_a_sink_do_not_run():
    source, called = numbers(), []

    def note(batch):
        called.append(batch)
        return batch

    source.map(note, schema=pa.schema([("id", pa.int64())]), name="nowhere")
    source.sink(FunctionSink(len)).run()
    assert not called


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda s: s.connect(s), ".key_by"),
        (lambda s: s.key_by("id").connect(s), ".key_by"),
        (lambda s: s.start(), ".sink("),
        (lambda s: s.key_by("id").run(), ".sink("),
        (lambda s: s.group_by("id"), ".key_by"),
        (lambda s: s.fliter(None), ".filter("),
        (lambda s: s.key_by(lambda batch: batch["id"]), "map()"),
        (lambda s: s.key_by(["id"]), 'key_by("id")'),
        (lambda s: s.key_by("id", "id"), 'key_by("id")'),
        (lambda s: stream({"id": [1]}), "FileSource"),
        (lambda s: stream(NumberSequenceSource), "FileSource"),
        (lambda s: s.sink(print), "FunctionSink"),
        (lambda s: s.filter("id > 3"), "pc.field"),
        (lambda s: s.process(lambda batch, context: batch, schema=s.schema), "ProcessFunction"),
    ],
)
def test_a_call_of_the_wrong_kind_says_what_to_write(call, remedy):
    with pytest.raises(errors.HeadgateError) as caught:
        call(numbers())
    assert caught.value.code in {"HG-1001", "HG-4008"}
    assert remedy in caught.value.remedy


def test_streams_have_the_attributes_of_python_only():
    assert not hasattr(numbers(), "no_such_call")
    assert not hasattr(numbers(), "__len__")


@pytest.mark.parametrize("size", ["1 minute", "60 seconds", "60s", "1m", timedelta(minutes=1)])
def test_lengths_of_windows_are_text_or_timedelta(size):
    assert TumblingWindow(size) == TumblingWindow(timedelta(seconds=60))


@pytest.mark.parametrize("size", [60, 60.0, "60", "soon", "1 parsec", None, -1])
def test_a_length_without_a_unit_is_refused(size):
    with pytest.raises(errors.OptionError, match="size="):
        TumblingWindow(size)


def test_the_delay_of_restarts_is_text_too(tmp_path):
    fails = stream_jobs.FailOnce(tmp_path / "failed", 5)
    rows = numbers(100).map(fails, schema=pa.schema([("id", pa.int64())]))
    query = rows.sink(FunctionSink(len)).start(
        checkpoint=str(tmp_path / "checkpoints"), restart_delay="10ms"
    )
    assert query.await_termination(30)
    assert query.status.restarts == 1


LOCAL = threading.local()


class Client:
    def __init__(self):
        self.session = threading.local()


def test_what_cannot_be_pickled_is_named_with_its_operator():
    client = Client()

    def by_closure(batch):
        assert client
        return batch

    def by_global(batch):
        assert LOCAL
        return batch

    schema = pa.schema([("id", pa.int64())])
    for function, words in (
        (by_closure, "attribute 'session' of a Client, variable 'client' of by_closure() of ask"),
        (by_global, "variable 'LOCAL' of by_global() of ask"),
    ):
        job = numbers().map(function, schema=schema, name="ask").sink(FunctionSink(len))
        with pytest.raises(errors.StreamError) as caught:
            job.start(workers=1)
        assert words in caught.value.have


SCRIPT = """
import sys, time
from headgate.sink import FunctionSink
from headgate.source import RateSource
from headgate.stream import stream
def show(batch):
    if {fails}:
        raise ValueError("planned")
    print("row", flush=True)
source = RateSource(200, rows={rows}, batch_size=20)
stream(source).sink(FunctionSink(show)).start()
{end}
"""


def script(rows, *, fails=False, end=""):
    return [sys.executable, "-c", SCRIPT.format(rows=rows, fails=fails, end=end)]


def test_a_script_that_ends_waits_for_its_job():
    done = subprocess.run(script(60), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("row") == 3
    assert "waiting for its end" in done.stderr


def test_a_script_ends_with_an_error_if_its_job_does():
    done = subprocess.run(
        script(60, fails=True), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "[HG-6001]" in done.stderr


def test_a_script_that_failed_does_not_wait():
    endless = script(10**9, end="raise OSError('planned')")
    done = subprocess.run(endless, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "planned" in done.stderr


def test_an_interrupt_ends_a_script_that_waits():
    with subprocess.Popen(script(10**9), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waits:
        assert b"waiting for its end" in waits.stderr.readline()
        waits.send_signal(signal.SIGINT)
        assert waits.wait(60) == 130


def test_a_forked_child_cannot_end_the_job():
    query = stream(RateSource(100)).sink(FunctionSink([].append)).start()
    child = os.fork()
    if not child:
        refused = 0
        for call in (
            query.stop,
            query.cancel,
            query.await_termination,
            partial(query.savepoint, "s"),
        ):
            try:
                call()
            except errors.ForkError:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert not query.state.is_over
    query.cancel()


@pytest.mark.parametrize(
    ("aggregates", "name"),
    [
        ([Aggregate("sum", "n", name="x"), Aggregate("max", "n", name="x")], "x"),
        ([Aggregate("sum", "n", name="id")], "id"),
        ([Aggregate("sum", "n", name="window_start")], "window_start"),
        ([Aggregate("count"), Aggregate("count")], "count"),
    ],
    ids=["each other", "a key", "the window", "no names"],
)
@pytest.mark.parametrize("window", [TumblingWindow("1 hour"), SessionWindow("1 hour")], ids=str)
def test_no_column_of_a_window_replaces_another_one(window, aggregates, name):
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("time", pa.timestamp("ms"))])
    rows = stream(NumberSequenceSource(0, 9)).map(lambda batch: batch, schema=schema)
    with pytest.raises(
        errors.StateError, match=f"two columns of the result have the name '{name}'"
    ):
        rows.key_by("id").window(window, time="time", aggregates=aggregates)


def test_each_row_is_in_a_window():
    with pytest.raises(errors.OptionError, match="some rows would be in no window"):
        SlidingWindow("1 hour", "2 hours")
    assert SlidingWindow("1 hour", "1 hour").slide == timedelta(hours=1)


@pytest.mark.parametrize("second", [pa.int64(), pa.string()], ids=str)
def test_a_state_is_declared_once(second):
    class Twice(ProcessFunction):
        def open(self, context):
            context.get_state(ValueStateDescriptor("v", pa.int64()))
            context.get_state(ValueStateDescriptor("v", second))

        def process(self, batch, context):
            return batch

    rows = stream(NumberSequenceSource(0, 9)).key_by("id").process(Twice, schema=IDS)
    with pytest.raises(errors.HeadgateError, match="declares the state 'v' twice"):
        rows.sink(FunctionSink([].append)).run()


def test_methods_of_other_libraries_are_told_at_the_call():
    class Flinks(ProcessFunction):
        def process_element(self, value, context):
            return value

    for function in (Flinks, Flinks()):
        with pytest.raises(errors.OptionError, match=r"without process\(\)"):
            stream(NumberSequenceSource(0, 9)).process(function, schema=IDS)


@pytest.mark.parametrize(
    ("wrong", "text"), [("1 our", 'written as "1 minute"'), ("", "takes at least 1 ms")]
)
def test_a_length_of_a_window_says_what_it_takes(wrong, text):
    with pytest.raises(errors.OptionError, match=text) as caught:
        TumblingWindow(wrong)
    assert "or a number" not in str(caught.value)
