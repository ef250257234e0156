"""Progress on the driver: what is shown where, and what is not."""

import logging
import sys

import pytest
from actors import EXCHANGE, OTHER, Theatre

from headgate.spark.jobs import Plan
from headgate.spark.progress import Progress, describe
from headgate.spark.stats import snapshot


@pytest.fixture
def run():
    theatre = Theatre()
    theatre.stage(1, 2)
    consumers = [theatre.consumer(0), theatre.consumer(1)]
    (run,) = theatre.submitted
    producer = theatre.producer(run, 0)
    theatre.say(producer, "PROGRESS", {"rows": 1500, "bytes": 3_000_000}, run.number)
    theatre.say(consumers[0], "PROGRESS", {"rows": 700, "bytes": 1_000_000}, run.number)
    return run


def progress(mode):
    return Progress({EXCHANGE: Plan(lambda _run, _epoch: None, "words", mode)})


def test_a_line_tells_the_state_and_the_numbers(run):
    line = describe(run, run.started + 3.0)
    for words in ("flowing", "1 running", "consumers 2", "1,500 rows", "3 MB", "1 MB/s"):
        assert words in line
    assert len(line) <= 110


def test_the_snapshot_of_a_run(run):
    stats = snapshot(run, run.started + 2.0)
    assert (stats.rows, stats.rows_received, stats.bytes) == (1500, 700, 3_000_000)
    assert (stats.state, stats.seconds, stats.error) == ("running", 2.0, "")


def test_on_a_terminal_one_line_that_goes_away(run, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shown = progress("auto")
    shown.show([run], run.started + 0.5)
    assert capsys.readouterr().err == ""
    shown.show([run], run.started + 2.0)
    shown.show([run], run.started + 2.1)
    text = capsys.readouterr().err
    assert text.startswith("\r")
    assert text.count("1,500 rows") == 1
    assert "\n" not in text
    shown.show([], run.started + 3.0)
    assert capsys.readouterr().err.strip() == ""


def test_elsewhere_a_log_line_each_ten_seconds(run, caplog, capsys):
    caplog.set_level(logging.INFO, "headgate.spark")
    shown = progress("log")
    for second in range(25):
        shown.show([run], run.started + second)
    assert len(caplog.messages) == 2
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("mode", ["off", "of another exchange"])
def test_off_is_off(run, caplog, capsys, mode):
    caplog.set_level(logging.INFO, "headgate.spark")
    shown = progress("off") if mode == "off" else Progress({OTHER: None})
    shown.show([run], run.started + 60)
    assert not caplog.messages
    assert capsys.readouterr().err == ""
