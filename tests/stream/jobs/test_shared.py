"""Jobs with shared=: what is loaded once per process, counted by a file that has a line for each load and each close."""

import os
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.waiting import wait_until

from headgate.errors import OptionError, UserFunctionError
from headgate.sink import FileSink, FunctionSink
from headgate.stream import CallFunction, ProcessFunction

KEYED = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("at", pa.timestamp("ms"))])
ROWS = 1500


class Model:
    """Knows where it was loaded."""

    def __init__(self, ledger):
        self.ledger, self.pid = ledger, os.getpid()

    def check(self):
        assert self.pid == os.getpid()

    def close(self):
        write(self.ledger, "close")


def write(ledger, event):
    with ledger.open("a") as file:
        file.write(f"{event} {os.getpid()}\n")


def events(ledger, event="load"):
    """Return the processes of the events of a kind, in their order."""
    if not ledger.exists():
        return []
    lines = [line.split() for line in ledger.read_text().splitlines()]
    return [int(pid) for kind, pid in lines if kind == event]


class Load:
    """Loads a model, after a while; two of them are never equal."""

    def __init__(self, folder, seconds=0.0):
        self.ledger, self.seconds = folder / "ledger", seconds

    def __call__(self):
        write(self.ledger, "load")
        time.sleep(self.seconds)
        write(self.ledger, "loaded")
        return Model(self.ledger)


def ask(row, context):
    context.shared.check()
    return row


def ask_and_write(row, context):
    write(context.shared.ledger, "call")
    return row


class Asks(ProcessFunction):
    def open(self, context):
        self.model = context.shared

    def process(self, batch, context):
        assert context.shared is self.model
        self.model.check()
        return batch


class OpenAsks(CallFunction):
    def open(self, context):
        self.model = context.shared

    def call(self, batch, context):
        assert context.shared is self.model
        self.model.check()
        return batch


def sink(folder, rows):
    counted = rows.key_by("key").process(stream_jobs.Count, schema=stream_jobs.COUNTED)
    return counted.sink(FileSink(str(folder / "out"), mode="append"), name="files")


def asked(rows, load, name="calls", **options):
    return rows.map_async(ask, schema=KEYED, in_flight=8, shared=load, name=name, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_operators_with_one_function_load_once_per_process(tmp_path, workers):
    load = Load(tmp_path, seconds=0.1)
    rows = asked(stream_jobs.numbers(200), load).rebalance()
    rows = rows.process(Asks, schema=KEYED, shared=load).rebalance()
    rows = rows.map_async(OpenAsks, schema=KEYED, batch_rows=10, shared=load, memo="id")
    with sink(tmp_path, rows).start(parallelism=4, workers=workers) as query:
        assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), 200)
    loads, closes = events(load.ledger), events(load.ledger, "close")
    assert len(loads) == max(1, workers) == len(set(loads))
    assert sorted(loads) == sorted(closes), "at the end of the job each is closed once"
    metrics = query.status.metrics
    assert sum(metrics[uid].get("shared_loads", {"value": 0})["value"] for uid in metrics) == len(
        loads
    )
    assert all(
        seconds >= 0.1 for seconds in metrics["calls"]["shared_load_seconds"]["values"].values()
    )


@dataclass(frozen=True)
class Named:
    """Loads the model of a name; two of one name are equal."""

    folder: Path
    name: str

    def __call__(self):
        return Load(self.folder)()


def test_functions_that_are_not_equal_load_each(tmp_path):
    rows = asked(stream_jobs.numbers(20), Named(tmp_path, "small"), "first")
    rows = asked(rows, Named(tmp_path, "small"), "second")
    rows = asked(rows, Named(tmp_path, "large"), "third")
    rows = asked(rows, Load(tmp_path), "fourth")
    with sink(tmp_path, rows).start(parallelism=2, workers=1) as query:
        assert query.await_termination(60)
    assert len(events(tmp_path / "ledger")) == 3


class LoadsSlowlyAgain(Load):
    """Takes a second longer after the first two loads."""

    def __call__(self):
        self.seconds = float(len(events(self.ledger)) >= 2)
        return super().__call__()


def test_a_kill_of_one_of_two_workers_loads_once_more_while_the_other_goes_on(tmp_path):
    load = LoadsSlowlyAgain(tmp_path)
    rows = stream_jobs.numbers(ROWS, rate=500).map_async(
        ask_and_write, schema=KEYED, in_flight=8, shared=load
    )
    with rows.sink(FileSink(str(tmp_path / "out"), mode="append")).start(
        checkpoint=str(tmp_path / "checkpoints"), interval=0.1, parallelism=4, workers=2
    ) as query:
        wait_for_a_checkpoint(query)
        assert len(events(load.ledger)) == 2
        processes = query._master._pool.processes
        surviving = processes[0].pid
        os.kill(processes[1].pid, signal.SIGKILL)
        assert query.await_termination(60)
    ids = stream_jobs.rows_of(tmp_path / "out")["id"].to_pylist()
    assert sorted(ids) == list(range(ROWS))
    assert query.status.restarts == 1
    loads = Counter(events(load.ledger))
    assert len(loads) == 3, "the new worker has loaded it"
    assert loads[surviving] == 1, "and the other one has not"
    (new,) = loads.keys() - {surviving, *events(load.ledger)[:2]}
    lines = load.ledger.read_text().splitlines()
    meanwhile = lines[lines.index(f"load {new}") : lines.index(f"loaded {new}")]
    assert meanwhile.count(f"call {surviving}") > 10, "its tasks go on while the new one loads"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_restart_of_the_tasks_loads_nothing(tmp_path, workers):
    load = Load(tmp_path)
    fails = stream_jobs.FailOnce(tmp_path / "failed", 100)
    rows = asked(stream_jobs.numbers(300).map(fails), load)
    with sink(tmp_path, rows).start(
        parallelism=2, workers=workers, checkpoint=str(tmp_path / "checkpoints"), restart_delay=0.01
    ) as query:
        assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), 300)
    assert query.status.restarts == 1
    assert len(events(load.ledger)) == len(events(load.ledger, "close")) == 1


class FailsOnce(Load):
    def __call__(self):
        model = super().__call__()
        if len(events(self.ledger)) == 1:
            raise OSError("no such model")
        return model


def test_a_restart_tries_a_failed_load_again(tmp_path):
    load = FailsOnce(tmp_path, seconds=0.2)
    with sink(tmp_path, asked(stream_jobs.numbers(20), load)).start(
        parallelism=3, checkpoint=str(tmp_path / "checkpoints"), restart_delay=0.01
    ) as query:
        assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), 20)
    (failure,) = query.status.failures
    assert failure.summary.endswith("shared= of calls failed: OSError: no such model")
    assert len(events(load.ledger)) == 2


def test_status_says_what_loads_and_a_cancel_does_not_wait_for_it(tmp_path):
    release = threading.Event()
    closed = threading.Event()

    @contextmanager
    def load():
        release.wait(60)
        yield "model"
        closed.set()

    query = asked(stream_jobs.numbers(20), load).sink(FunctionSink(len)).start(parallelism=2)
    with query:
        wait_until(lambda: any("loads what shared= gives" in text for text in query.status.notices))
        waiting = query.status.metrics["calls"]["shared_loading"]["values"]
        assert set(waiting.values()) == {1.0}
        started = time.monotonic()
        query.cancel()
        assert time.monotonic() - started < 5
    release.set()
    assert closed.wait(10), "what is loaded too late is closed"


def test_a_context_manager_is_entered_and_left(tmp_path):
    left = []

    @contextmanager
    def load():
        yield "model"
        left.append(threading.get_ident())

    def ask(row, context):
        assert context.shared == "model"
        assert "model" not in repr(context)
        return row

    rows = []
    called = stream_jobs.numbers(20).map_async(ask, schema=KEYED, shared=load)
    called.sink(FunctionSink(rows.append)).run(parallelism=2)
    assert sum(batch.num_rows for batch in rows) == 20
    assert len(left) == 1


class OfALoop:
    async def close(self):
        raise AssertionError("nobody awaits it")


@pytest.mark.parametrize(
    ("load", "text"), [(lambda: None, "returned None"), (OfALoop, "belongs to one event loop")]
)
def test_what_threads_cannot_share_is_refused(load, text):
    job = asked(stream_jobs.numbers(2), load).sink(FunctionSink(len))
    with pytest.raises(UserFunctionError, match=text):
        job.run(parallelism=1, restarts=0)


async def load_later():
    return "model"


@pytest.mark.parametrize(
    ("load", "text"),
    [
        ("model", "cannot be called"),
        (ask, "its parameters are"),
        (load_later, "is a coroutine function"),
    ],
)
@pytest.mark.parametrize("call", ["map_async", "process"])
def test_no_function_without_arguments_is_refused(load, text, call):
    rows = stream_jobs.numbers(2)
    function = Asks if call == "process" else ask
    with pytest.raises(OptionError, match=text):
        getattr(rows, call)(function, schema=KEYED, shared=load)
