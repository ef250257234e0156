"""What a job does with calls that users get wrong: jobs run their own sinks, scripts wait, errors name the place."""

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from functools import partial

import kit
import pyarrow as pa
import pytest

from headgate import errors
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource, RateSource
from headgate.stream import TumblingWindow, stream


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
        (lambda s: s.window(TumblingWindow("1s"), time="id"), ".key_by"),
        (lambda s: s.connect(s), ".key_by"),
        (lambda s: s.key_by("id").connect(s), ".key_by"),
        (lambda s: s.start(), ".sink("),
        (lambda s: s.key_by("id").run(), ".sink("),
        (lambda s: s.group_by("id"), ".key_by"),
        (lambda s: s.fliter(None), ".filter("),
        (lambda s: s.key_by(lambda batch: batch["id"]), "map()"),
        (lambda s: s.key_by(["id"]), 'key_by("id")'),
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
    fails = kit.FailOnce(tmp_path / "failed", 5)
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
