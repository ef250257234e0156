"""Functions that fork, are interrupted, or log at debug level during an exchange on Spark."""

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from pyspark import cloudpickle
from tests.kit.hosts import served
from tests.kit.masters import in_executors
from tests.kit.outcomes import outcome_of, rounds

from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def pool():
    with multiprocessing.get_context("fork").Pool(2) as workers:
        assert workers.map_async(abs, range(-10, 0)).get(60) == list(range(10, 0, -1))


def leave_at_once():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def raise_in_the_child():
    child = os.fork()
    if child == 0:
        try:
            raise ValueError("only in the child")
        except ValueError:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def leave_a_child_behind():
    if os.fork() == 0:
        time.sleep(3)
        os._exit(0)


def run_a_program():
    assert subprocess.run(["true"], check=False).returncode == 0


FORKS = [pool, leave_at_once, raise_in_the_child, leave_a_child_behind, run_a_program]


@pytest.mark.parametrize("fork", FORKS[:: rounds(3, 1)])
def test_functions_that_fork_in_traffic(spark, numbers, fork):
    def work(batches):
        for batch in batches:
            fork()
            yield batch

    assert (
        outcome_of(exchange(numbers, by="k", map=work, reduce=work, schema=numbers.schema))
        == "rows"
    )


def test_a_child_that_uses_its_parents_batches_gets_an_error_and_hangs_nobody(spark, numbers):
    def work(batches):
        for batch in batches:
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a hang ends the child
                try:
                    next(batches)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is no hang
                    os._exit(5 if type(error).__name__ == "ForkError" else 6)
                os._exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code == 5, code
            yield batch

    assert outcome_of(exchange(numbers, by="k", reduce=work, schema=numbers.schema)) == "rows"


@pytest.mark.parametrize("role", ["map", "reduce"])
def test_a_worker_that_is_interrupted_says_so(spark, numbers, role):
    def work(batches):
        for batch in batches:
            # In each attempt, or Spark would run the task again.
            if batch.num_rows:
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                time.sleep(30)
            yield batch

    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by mode
        exchange(numbers, by="k", schema=numbers.schema, **{role: work}).collect()
    assert "KeyboardInterrupt" in str(caught.value)


@in_executors
def test_debug_logs_everywhere_stop_nothing_and_hold_no_secret(
    spark, numbers, tmp_path, secrets, caplog, monkeypatch
):
    def work(batches):
        root = logging.getLogger()
        handler = logging.FileHandler(tmp_path / f"worker-{os.getpid()}.log")
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        try:
            for batch in batches:
                root.debug("a batch of %d rows", batch.num_rows)
                yield batch
        finally:
            root.setLevel(level)
            root.removeHandler(handler)

    with served(spark, monkeypatch), caplog.at_level(logging.DEBUG, logger="headgate"):
        assert (
            outcome_of(exchange(numbers, by="k", map=work, reduce=work, schema=numbers.schema))
            == "rows"
        )
    logs = [path.read_text(encoding="utf-8") for path in tmp_path.glob("worker-*.log")]
    assert any("a batch of" in text for text in logs)
    assert secrets
    for text in (caplog.text, *caplog.messages, *logs):
        for secret in secrets:
            assert secret.hex() not in text
            assert repr(secret) not in text
