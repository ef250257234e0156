"""Log lines, statistics and progress may fail or flood: the rows are right nevertheless."""

import logging
import sys
import threading
import time

import pytest
from pyspark import cloudpickle
from tests.kit.outcomes import RIGHT, once, outcome_of, rounds

from headgate.spark import exchange
from headgate.spark.driver import kept_watch
from headgate.spark.progress import display

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Refusing(logging.Handler):
    """A log handler whose disk is full."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.asked = 0

    def emit(self, record):
        self.asked += 1
        # An error of a handler in a call of the user is the user's own.
        if threading.current_thread() is not threading.main_thread():
            raise OSError("no space left for logs")


def slowly(folder):
    """Return a function that lasts long enough for a line of progress."""

    def function(batches):
        for batch in batches:
            if batch.num_rows and once(folder, f"slow-{time.monotonic_ns() % 4}"):
                time.sleep(1.2)
            yield batch

    return function


def refuse(*_, **__):
    raise RuntimeError("no, not now")


@pytest.fixture(autouse=True)
def another_display():
    """Give the session's other tests a new display, as one that raised stays off."""
    yield
    display.PROGRESS._screen, display.PROGRESS._is_off = display.Screen(), False


FAILING = [(kept_watch, "record_of"), (display, "surface_of_this_process")]


@pytest.mark.parametrize(("module", "name"), rounds(FAILING[:1], FAILING))
def test_the_display_raises(spark, numbers, tmp_path, monkeypatch, caplog, module, name):
    monkeypatch.setattr(module, name, refuse)
    assert (
        outcome_of(
            exchange(numbers, by="k", map=slowly(tmp_path), progress="auto", schema=numbers.schema)
        )
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


def test_the_handler_of_the_logs_raises(spark, numbers, tmp_path, full_disk):
    result = exchange(numbers, by="k", map=slowly(tmp_path), progress="log", schema=numbers.schema)
    assert outcome_of(result) == "rows"
    assert full_disk.asked


@pytest.mark.parametrize("name", ["stage_counts", "running_tasks", "failed_tasks"])
def test_sparks_status_store_fails(spark, numbers, tmp_path, monkeypatch, name):
    monkeypatch.setattr(kept_watch, name, refuse)
    result = exchange(numbers, by="k", map=slowly(tmp_path), progress="log", schema=numbers.schema)
    assert outcome_of(result) == "rows"


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
