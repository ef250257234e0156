"""Notices of tasks that start, and the thread in the driver that hears them."""

import json
import logging
import socket
import sys
import types

import pyspark
import pytest
from tests.kit.leftovers import our_threads
from tests.kit.screens import FakeTerminal
from tests.kit.waiting import wait_until

from headgate.spark.driver import kept_watch
from headgate.spark.driver.kept.runs import KeptRun
from headgate.spark.driver.kept_watch import KeptWatch
from headgate.spark.tasks import notice
from headgate.spark.tasks.notice import Listener, Notice, notice_of, tell_start

TOKEN = b"t" * notice.TOKEN_BYTES


class Context:
    """An application, as far as the watch looks at it."""

    def __init__(self, **conf):
        confs = {"spark.driver.host": "127.0.0.1", **conf}
        text = [f"({name},{value})" for name, value in confs.items()]
        wrapped = types.SimpleNamespace(mkString=lambda separator: separator.join(text))
        predef = types.SimpleNamespace(genericWrapArray=lambda _: wrapped)
        self._jvm = types.SimpleNamespace(scala=types.SimpleNamespace(Predef=predef))
        self._jsc = types.SimpleNamespace(getConf=lambda: types.SimpleNamespace(getAll=list))


class Runs:
    """The kept exchanges of the application: each notice is a live run."""

    application = "app"

    def __init__(self):
        self.started = []
        self.looks = 0
        self.raises = False

    def start(self, notice):
        self.started.append(notice)

    def live(self):
        self.looks += 1
        if self.raises:
            raise RuntimeError("no answer")
        return [KeptRun(n.exchange, 1, 1, 7, -10.0, 0.0) for n in self.started]


@pytest.fixture
def task(monkeypatch):
    """Make this process look like a worker that runs a task of a stage."""
    monkeypatch.setattr(notice, "_newest", None)
    now = types.SimpleNamespace(stageId=lambda: 4, getLocalProperty=lambda _: "7")
    monkeypatch.setattr(pyspark.TaskContext, "get", staticmethod(lambda: now))
    return now


@pytest.fixture
def watched(monkeypatch):
    """Return a function that starts a watch, and a list of what it has had drawn."""
    contexts, shown = [], []
    monkeypatch.setattr(
        kept_watch.PROGRESS, "show", lambda _, runs, __: shown.append([r.progress for r in runs])
    )

    def start(runs, **conf):
        contexts.append(Context(**conf))
        return KeptWatch(contexts[-1], runs)

    yield start, shown
    for context in contexts:
        context._jsc = None
    wait_until(lambda: "headgate-notices" not in our_threads(), "the thread ends", 10)


def test_a_task_tells_of_its_start_once_for_each_stage(task, watched):
    runs = Runs()
    listener = watched[0](runs).listener
    for stage in (4, 4, 5):
        task.stageId = lambda stage=stage: stage
        tell_start(listener, "ab", 3, "map")
    tell_start(listener, "ab", 3, "reduce")
    wait_until(lambda: len(runs.started) == 3, "three notices", 10)
    assert runs.started == [
        Notice("ab", 3, "map", 7, 4),
        Notice("ab", 3, "map", 7, 5),
        Notice("ab", 3, "reduce", 7, 5),
    ]


def test_a_task_of_an_rdd_has_no_execution(task, watched):
    runs = Runs()
    task.getLocalProperty = lambda _: None
    tell_start(watched[0](runs).listener, "ab", 3, "map")
    wait_until(lambda: runs.started, "a notice", 10)
    assert runs.started[0].execution is None


@pytest.mark.parametrize("host", ["127.0.0.1", "no.such.host.invalid"])
def test_a_driver_that_does_not_hear_costs_a_task_nothing(task, host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    tell_start(Listener(host, port, TOKEN), "ab", 3, "map")


def test_who_does_not_know_the_token_says_nothing():
    words = json.dumps(["ab", 3, "map", 7, 4]).encode()
    assert notice_of(TOKEN, TOKEN + words) == Notice("ab", 3, "map", 7, 4)
    assert notice_of(TOKEN, b"x" * len(TOKEN) + words) is None
    assert notice_of(TOKEN, b"") is None


def test_the_longest_notice_fits_a_datagram():
    words = json.dumps(["f" * 30, 8_000, "reduce", 2**63, 2**31])
    assert len(TOKEN) + len(words) < notice.MAX_BYTES


def test_noise_changes_nothing(task, watched):
    runs = Runs()
    listener = watched[0](runs).listener
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        for data in (b"", b"x" * 400, listener.token + b"[1,", listener.token + b"[]"):
            noise.sendto(data, (listener.host, listener.port))
    tell_start(listener, "ab", 3, "map")
    wait_until(lambda: runs.started, "the notice after the noise", 10)
    assert len(runs.started) == 1


def test_runs_are_drawn_as_their_exchange_says(task, watched):
    start, shown = watched
    runs = Runs()
    watch = start(runs)
    watch.add("ab", "log")
    tell_start(watch.listener, "ab", 3, "map")
    wait_until(lambda: ["log"] in shown, "a run is handed over", 10)
    runs.started.clear()
    wait_until(lambda: shown[-1] == [], "its end", 10)


@pytest.mark.parametrize(
    ("bar", "terminal", "drawn"),
    [("true", True, "off"), ("true", False, "auto"), ("false", True, "auto")],
)
def test_a_terminal_that_has_sparks_own_bar_gets_no_line_of_ours(
    task, watched, monkeypatch, bar, terminal, drawn
):
    if terminal:
        monkeypatch.setattr(sys, "stderr", FakeTerminal())
    start, shown = watched
    watch = start(Runs(), **{"spark.ui.showConsoleProgress": bar})
    watch.add("ab", "auto")
    tell_start(watch.listener, "ab", 3, "map")
    wait_until(lambda: [drawn] in shown, "a run is handed over", 10)


@pytest.mark.parametrize("notebook", [True, False])
def test_only_a_notebook_lists_the_tasks_that_run(task, watched, monkeypatch, notebook):
    drawn, listed = [], set()
    monkeypatch.setattr(kept_watch.PROGRESS, "show", lambda _, runs, __: drawn.extend(runs))
    monkeypatch.setattr(kept_watch, "is_notebook", lambda: notebook)

    def record(_, run, now, *, lists_tasks):
        assert now == 7.0
        listed.add((run.exchange, lists_tasks))

    monkeypatch.setattr(kept_watch, "record_of", record)
    watch = watched[0](Runs())
    watch.add("ab", "auto")
    watch.add("cd", "log")
    for exchange, stage in (("ab", 3), ("cd", 5)):
        task.stageId = lambda stage=stage: stage
        tell_start(watch.listener, exchange, 3, "map")
    wait_until(lambda: len({run.key for run in drawn}) == 2, "both runs are handed over", 10)
    for run in drawn:
        run.look(7.0)
    assert listed == {("ab", notebook), ("cd", False)}


def test_a_spark_that_does_not_answer_is_asked_again(task, watched, caplog):
    caplog.set_level(logging.DEBUG, "headgate.spark")
    start, shown = watched
    runs = Runs()
    runs.raises = True
    watch = start(runs)
    watch.add("ab", "auto")
    tell_start(watch.listener, "ab", 3, "map")
    wait_until(lambda: runs.looks, "a look", 10)
    assert "no answer" in caplog.text
    runs.raises = False
    wait_until(lambda: ["auto"] in shown, "a run is handed over", 10)


def test_a_driver_that_cannot_listen_says_so_and_goes_on(monkeypatch, caplog):
    def refused(*_):
        raise OSError("no socket")

    monkeypatch.setattr(kept_watch, "KeptWatch", refused)
    monkeypatch.setattr(kept_watch, "runs_of", lambda _: Runs())
    session = types.SimpleNamespace(sparkContext=None)
    assert kept_watch.listener_of(session, "ab", "auto", tls="off") is None
    assert "no line of progress" in caplog.text
    assert kept_watch.listener_of(session, "ab", "off", tls="off") is None


def test_no_datagram_is_sent_of_an_exchange_that_is_encrypted(watched, monkeypatch):
    """A datagram is in the clear. The run is still drawn, once its first task has ended."""
    runs = Runs()
    watch = watched[0](runs)
    monkeypatch.setattr(kept_watch, "runs_of", lambda _: runs)
    monkeypatch.setitem(kept_watch._watches, runs.application, watch)
    session = types.SimpleNamespace(sparkContext=None)
    assert kept_watch.listener_of(session, "ab", "auto", tls="off") == watch.listener
    assert kept_watch.listener_of(session, "cd", "auto", tls="require") is None
    assert "cd" in watch._progress
