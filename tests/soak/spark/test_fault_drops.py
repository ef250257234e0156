"""Log lines, statistics and progress may fail or flood: the rows are right nevertheless."""

import logging
import os
import signal
import sys
import threading
import time

import pytest
from pyspark import cloudpickle
from tests.spark.outcomes import RIGHT, once, outcome_of, rounds, wait_for

from headgate.spark import exchange, last_stats
from headgate.spark.driver.coordinator import Coordinator
from headgate.spark.driver.scheduler import jobs
from headgate.spark.driver.scheduler.facts import SparkFacts
from headgate.spark.progress import display, drawn

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Refusing(logging.Handler):
    """A log handler whose disk is full."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.asked = 0

    def emit(self, record):
        self.asked += 1
        raise OSError("no space left for logs")


def say_nothing(flag):
    """Return a slow function whose worker sends no PROGRESS while the file ``flag`` exists."""

    def drop(batches):
        from headgate.spark.tasks.control import Control

        kept = Control.progress

        def progress(control, counts):
            return None if flag.exists() else kept(control, counts)

        Control.progress = progress
        for batch in batches:
            if batch.num_rows and once(flag.parent, f"slow-{time.monotonic_ns() % 4}"):
                time.sleep(1.2)
            yield batch

    return drop


def refuse(*_, **__):
    raise RuntimeError("no, not now")


class Messages(list):
    """The kinds of the messages that reach the coordinator, which drops those in ``drop``."""

    drop = frozenset()


@pytest.fixture
def messages(monkeypatch):
    """Return the messages that reach the coordinator."""
    seen, message_of = Messages(), Coordinator.message

    def message(self, connection, exchange_id, message, now):
        seen.append(message.kind)
        if message.kind not in seen.drop:
            message_of(self, connection, exchange_id, message, now)

    monkeypatch.setattr(Coordinator, "message", message)
    return seen


def test_no_progress_message_is_sent_at_all(spark, numbers, tmp_path, messages):
    flag = tmp_path / "say nothing"
    flag.touch()
    drop = say_nothing(flag)
    result = exchange(numbers, by="k", map=drop, reduce=drop, schema=numbers.schema)
    assert outcome_of(result) == "rows"
    assert "DONE" in messages
    assert "PROGRESS" not in messages
    flag.unlink()


def test_no_progress_message_is_read(spark, numbers, tmp_path, messages):
    messages.drop = {"PROGRESS"}
    drop = say_nothing(tmp_path / "say everything")
    assert (
        outcome_of(exchange(numbers, by="k", map=drop, reduce=drop, schema=numbers.schema))
        == "rows"
    )
    assert "PROGRESS" in messages
    assert last_stats().state == "done"


@pytest.fixture(autouse=True)
def another_display():
    """Give the session's other tests a new display, as one that raised stays off."""
    yield
    display.PROGRESS._screen, display.PROGRESS._is_off = display.Screen(), False


FAILING = [(drawn, "snapshot"), (display, "of_this_process")]


@pytest.mark.parametrize(("module", "name"), rounds(FAILING[:1], FAILING))
def test_the_display_raises(spark, numbers, tmp_path, monkeypatch, caplog, module, name):
    monkeypatch.setattr(module, name, refuse)
    drop = say_nothing(tmp_path / "say everything")
    assert (
        outcome_of(exchange(numbers, by="k", map=drop, progress="auto", schema=numbers.schema))
        == "rows"
    )
    assert caplog.text.count("is off from now on") <= 1


def test_the_logs_are_turned_off(spark, numbers):
    logging.disable(logging.CRITICAL)
    try:
        assert outcome_of(exchange(numbers, by="k")) == "rows"
    finally:
        logging.disable(logging.NOTSET)


@pytest.fixture
def full_disk():
    """Add a handler that raises at every line of Headgate's loggers, including debug lines."""
    logger, handler = logging.getLogger("headgate"), Refusing()
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_the_handler_of_the_logs_raises(spark, numbers, full_disk):
    assert outcome_of(exchange(numbers, by="k")) == "rows"
    assert full_disk.asked


BOOKS = ("stages", "slots", "blocked", "task", "kill")


@pytest.fixture
def closed_books(monkeypatch):
    """Make every call of Spark's status store fail."""
    for name in BOOKS:
        monkeypatch.setattr(SparkFacts, name, refuse)


def test_sparks_status_store_fails(spark, numbers, closed_books):
    assert outcome_of(exchange(numbers, by="k")) == "rows"


def test_everything_fails_at_once(spark, numbers, tmp_path, monkeypatch, messages, closed_books):
    for module, name in ((drawn, "snapshot"), (jobs, "snapshot")):
        monkeypatch.setattr(module, name, refuse)
    flag = tmp_path / "say nothing"
    flag.touch()
    drop = say_nothing(flag)
    result = exchange(numbers, by="k", map=drop, reduce=drop, progress="log", schema=numbers.schema)
    assert outcome_of(result) == "rows"
    assert "PROGRESS" not in messages
    flag.unlink()


def lose_a_process(spark, numbers, folder):
    """Run an action in which one producer is killed; return its outcome."""

    def kill_once(batches):
        for batch in batches:
            yield batch
            if once(folder, "killed"):
                os.kill(os.getpid(), signal.SIGKILL)

    def whole(batches):
        # In local[4] Spark retries no task, so consumers must not yield before the loss.
        yield from list(batches)

    outcomes = []
    result = exchange(numbers, by="k", map=kill_once, reduce=whole, schema=numbers.schema)
    action = threading.Thread(target=lambda: outcomes.append(outcome_of(result)))
    action.start()
    action.join(45)
    hangs = action.is_alive()
    spark.sparkContext.cancelAllJobs()
    action.join(20)
    assert not hangs
    return outcomes[0]


def test_a_lost_process_costs_no_rows_without_sparks_status_store(
    spark, numbers, tmp_path, closed_books
):
    assert lose_a_process(spark, numbers, tmp_path) == "rows"
    assert wait_for(lambda: last_stats().state != "running", 15)


def test_a_function_that_logs_a_hundred_thousand_lines(spark, numbers):
    def chatty(batches):
        log = logging.getLogger("headgate.of.the.user")
        for batch in batches:
            for line in range(100_000 // 7):
                log.warning("line %d", line)
            yield batch

    assert outcome_of(exchange(numbers, by="k", map=chatty, schema=numbers.schema)) == "rows"


def test_a_column_name_of_a_million_characters(spark, numbers):
    name = "n" * 1_000_000
    renamed = numbers.withColumnRenamed("k", name)
    rows = exchange(renamed, by=name).selectExpr("sum(id)", "count(id)").first()
    assert tuple(rows) == RIGHT
