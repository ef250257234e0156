"""Progress on the driver: the content of each surface, and surfaces that fail or block."""

import io
import logging
import sys
import threading
import types
from dataclasses import replace

import pytest
from tests.kit.leftovers import our_threads
from tests.kit.runs import MadeUp, run_of, skewed
from tests.kit.screens import FakeDisplay, FakeTerminal
from tests.kit.waiting import wait_until

from headgate.spark.progress.display import Progress, Screen
from headgate.spark.progress.surfaces import Log, Notebook, Terminal, surface_of_this_process


@pytest.fixture
def run():
    return MadeUp()


@pytest.fixture
def notebook(monkeypatch):
    """Make this process look like the kernel of a notebook."""
    display = FakeDisplay()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return display


def shown_on(monkeypatch, stderr):
    monkeypatch.setattr(sys, "stderr", stderr)
    return Screen()


def auto(run):
    run.progress = "auto"
    return [run]


def test_a_line_tells_of_both_sides_and_the_slowest_stage():
    stats = skewed(producers_total=4, producers_running=2, file_bytes=9_000, made_again=1)
    line = stats.line(200)
    for words in ("map 1/4, 2 running", "reduce 2/2", "1.5K rows  15.0 kB", "9.0 kB in files"):
        assert words in line
    assert "1.3K rows read  1 producers ran again, as their output was lost" in line
    assert "reduce 0 is busy 97 %" in line
    assert len(stats.line(60)) == 60


def test_a_verdict_loses_its_last_clauses_first():
    stats = skewed()
    found = replace(
        stats.verdict, text="reduce 3 is busy 97 %, the others at most 41 %; it got all"
    )
    stats = replace(stats, verdict=found)
    whole = stats.line(140)
    assert whole.endswith("  1.5K rows  15.0 kB  1.3K rows read  " + found.text)
    assert stats.line(len(whole) - 1).endswith(" the others at most 41 %")
    assert stats.line(len(whole) - 20).endswith(" reduce 3 is busy 97 %")
    assert stats.line(60).endswith("...")
    assert stats.line(2) == whole[:2]


def test_a_line_before_the_first_row():
    stats = run_of(consumers_total=2, producers_total=1, producers_running=1)
    assert stats.line(140) == "headgate 7878/1  map 0/1, 1 running  reduce 0/2"


def test_on_a_terminal_one_line_that_goes_away(run, monkeypatch):
    terminal = FakeTerminal()
    shown = shown_on(monkeypatch, terminal)
    shown.draw(auto(run), run.started + 0.9)
    assert terminal.getvalue() == "", "a short run shows nothing"
    shown.draw(auto(run), run.started + 2.0)
    assert terminal.visible.startswith("headgate 7878/1")
    run.made = replace(run.made, rows=7)
    shown.draw(auto(run), run.started + 20.0)
    assert "  7 rows" in terminal.visible
    assert len(terminal.visible) < 100
    shown.draw([], run.started + 21.0)
    assert terminal.visible == ""
    assert terminal.getvalue().endswith("\r")
    before = terminal.getvalue()
    shown.draw([], run.started + 22.0)
    assert terminal.getvalue() == before


def test_the_line_tells_how_many_other_runs_there_are(run):
    terminal = FakeTerminal()
    second = replace(run.made, number=2)
    Terminal(terminal).draw({2: second, 1: run.made}, {}, 0.0)
    assert terminal.visible.startswith("headgate 7878/2")
    assert terminal.visible.endswith("(+1 more)")


def test_in_a_notebook_one_output_per_run_that_keeps_its_last_state(run, notebook):
    shown = Screen()
    shown.draw(auto(run), run.started + 0.5)
    assert notebook.outputs == []
    shown.draw(auto(run), run.started + 2.0)
    shown.draw(auto(run), run.started + 2.5)
    run.made = replace(run.made, state="cancelled")
    shown.draw([], run.started + 3.0)
    shown.draw([], run.started + 3.5)
    (output,) = notebook.outputs
    assert len(output) == 3
    assert "running" in output[0]
    assert "cancelled" in output[-1]


@pytest.mark.parametrize("mode", ["log", "auto"])
def test_elsewhere_a_log_line_each_ten_seconds(run, monkeypatch, caplog, mode):
    caplog.set_level(logging.INFO, "headgate.spark")
    run.progress = mode
    stderr = io.StringIO()
    shown = shown_on(monkeypatch, stderr)
    for half_second in range(70):
        shown.draw([run], run.started + half_second / 2)
    assert len(caplog.messages) == 3
    assert all("1.5K rows" in message for message in caplog.messages)
    assert stderr.getvalue() == ""


def test_log_means_the_log_on_a_terminal_and_in_a_notebook_too(run, monkeypatch, caplog, notebook):
    caplog.set_level(logging.INFO, "headgate.spark")
    terminal = FakeTerminal()
    shown = shown_on(monkeypatch, terminal)
    run.progress = "log"
    shown.draw([run], run.started + 10.0)
    assert len(caplog.messages) == 1
    assert terminal.getvalue() == ""
    assert notebook.outputs == []


def test_off_is_off(run, monkeypatch, caplog, notebook):
    caplog.set_level(logging.INFO, "headgate.spark")
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    off = [MadeUp("off")]
    Screen().draw(off, run.started + 60)
    progress = Progress()
    progress.show("feeder", off, run.started + 60)
    assert "headgate-progress" not in our_threads()
    assert not caplog.messages
    assert terminal.getvalue() == ""
    assert notebook.outputs == []


def test_the_runs_of_two_feeders_share_one_line(run, monkeypatch):
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    clock = [run.started + 2.0]
    monkeypatch.setattr("headgate.spark.progress.display.time.monotonic", lambda: clock[0])
    other = MadeUp(name="abcd", number=9)
    progress = Progress()
    progress.show("one", auto(run), clock[0])
    progress.show("other", [other], clock[0])
    wait_until(lambda: terminal.visible.endswith("(+1 more)"), "a line for both")
    progress.show("one", [], clock[0])
    wait_until(lambda: terminal.visible.startswith("headgate abcd/9"), "the line of the other")
    wait_until(lambda: "more" not in terminal.visible, "the line of the other alone")
    progress.show("other", [], clock[0])
    wait_until(lambda: "headgate-progress" not in our_threads(), "the progress thread")
    assert terminal.visible == ""


def test_what_this_process_is(monkeypatch, notebook):
    monkeypatch.setattr(sys, "stderr", FakeTerminal())
    assert isinstance(surface_of_this_process(), Notebook)
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", types.SimpleNamespace)
    assert isinstance(surface_of_this_process(), Terminal), "IPython on a terminal is a terminal"
    monkeypatch.delitem(sys.modules, "IPython")
    assert isinstance(surface_of_this_process(), Terminal)
    closed = io.StringIO()
    closed.close()
    for stderr in (io.StringIO(), closed, None):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert isinstance(surface_of_this_process(), Log)


class BrokenTerminal(FakeTerminal):
    """A terminal whose reader has closed it."""

    def write(self, text):
        raise BrokenPipeError(text)


def test_a_terminal_that_breaks_is_left_alone(run, monkeypatch, caplog):
    shown = shown_on(monkeypatch, BrokenTerminal())
    for second in range(2, 30):
        shown.draw(auto(run), run.started + second)
    shown.draw([], run.started + 30)
    assert len(caplog.messages) == 1
    assert "the progress line is off from now on" in caplog.messages[0]
    assert "BrokenPipeError" in caplog.messages[0]


def test_a_notebook_that_breaks_is_left_alone(run, caplog, notebook, monkeypatch):
    monkeypatch.setattr(notebook, "display", lambda *_, **__: 1 / 0)
    shown = Screen()
    for second in range(2, 30):
        shown.draw(auto(run), run.started + second)
    assert len(caplog.messages) == 1
    assert "progress in the notebook is off" in caplog.messages[0]


class StuckTerminal(FakeTerminal):
    """A terminal that blocks writes until ``go_on`` is set, as after Ctrl-S."""

    def __init__(self):
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def write(self, text):
        self.reached.set()
        assert self.go_on.wait(30)
        return super().write(text)


def test_a_terminal_that_takes_nothing_holds_nobody_up(run, monkeypatch):
    terminal = StuckTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("headgate.spark.progress.display.time.monotonic", lambda: run.started + 2.0)
    progress = Progress()
    progress.show("feeder", auto(run), run.started + 2.0)
    assert terminal.reached.wait(10)
    for _ in range(1000):  # the thread blocks, the caller does not
        progress.show("feeder", auto(run), run.started + 2.0)
    progress.show("feeder", [], run.started + 2.0)
    assert our_threads().count("headgate-progress") == 1
    terminal.go_on.set()
    wait_until(lambda: "headgate-progress" not in our_threads(), "the progress thread")
    assert terminal.visible == ""
    assert "headgate 7878/1" in terminal.getvalue()


def test_its_thread_ends_when_the_coordinator_says_nothing_any_more(run, monkeypatch):
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    clock = [run.started + 2.0]
    monkeypatch.setattr("headgate.spark.progress.display.time.monotonic", lambda: clock[0])
    progress = Progress()
    progress.show("feeder", auto(run), clock[0])
    wait_until(lambda: terminal.visible, "no line")
    clock[0] += 10.0
    wait_until(lambda: "headgate-progress" not in our_threads(), "the progress thread")
    assert terminal.visible == ""


def test_a_process_that_can_start_no_thread_has_no_progress(run, monkeypatch, caplog):
    def refused(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    progress = Progress()
    for second in range(2, 10):
        progress.show("feeder", auto(run), run.started + second)
    assert len(caplog.messages) == 1
    assert "can't start new thread" in caplog.messages[0]
