"""A handler of the log that raises ends nothing; lines about a run carry the exchange and the run."""

import logging

from tests.kit.runs import run_of

from headgate.control.logs import log_safely
from headgate.spark.progress.surfaces import LOG_PERIOD, Log


def test_lines_about_a_run_say_which(caplog):
    caplog.set_level(logging.INFO, "headgate.spark")
    run = run_of(seconds=LOG_PERIOD)
    Log().draw({1: run}, {}, 100.0)
    (record,) = caplog.records
    assert (record.exchange, record.run) == (run.name, run.number)


def test_a_handler_that_raises_is_told_of_and_ends_nothing(monkeypatch, capsys):
    def fail(*_, **__):
        raise ValueError("disk full")

    log = logging.getLogger("headgate.spark")
    monkeypatch.setattr(log, "log", fail)
    log_safely(log, logging.INFO, "line %d", 1)
    assert "a log handler raised ValueError('disk full') at: line %d" in capsys.readouterr().err
