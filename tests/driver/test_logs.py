"""Log records about a run carry the exchange, the run and the epoch; a handler that raises ends nothing."""

import logging
import queue
from types import SimpleNamespace

import pytest
from tests.driver.actors import EXCHANGE, Theatre, started

from headgate.control.cause import Cause
from headgate.spark.driver.logs import say
from headgate.spark.driver.scheduler.jobs import Jobs
from headgate.spark.progress.stats import snapshot
from headgate.spark.progress.surfaces import LOG_PERIOD, Log, Shown


@pytest.fixture
def run():
    _, run, _ = started(Theatre())
    return run


def about(record):
    """Return the exchange, the run and the epoch of a record."""
    return record.exchange, record.run, record.epoch


def test_records_about_a_run_say_which(run, caplog):
    caplog.set_level(logging.INFO, "headgate.spark")
    cause = Cause("HG-2004", "executor 2 was lost", "")
    Jobs.epoch_ended(SimpleNamespace(), run, 3, cause)
    Jobs.ended(SimpleNamespace(_asked=queue.SimpleQueue()), run, cause)
    stats = snapshot(run, run.started + LOG_PERIOD)
    Log().draw([Shown(stats, run.started + LOG_PERIOD)], [], run.started + LOG_PERIOD)
    known = EXCHANGE.hex(), run.number
    assert [about(record) for record in caplog.records] == [(*known, 3), (*known, 0), (*known, 0)]
    assert "epoch 3 ended: executor 2 was lost" in caplog.text


def test_a_handler_that_raises_is_told_of_and_ends_nothing(monkeypatch, capsys):
    def fail(*_, **__):
        raise ValueError("disk full")

    monkeypatch.setattr(logging.getLogger("headgate.spark"), "log", fail)
    say(logging.INFO, "line %d", 1, about={"run": 1})
    assert "a log handler raised ValueError('disk full') at: line %d" in capsys.readouterr().err
