"""What may come of an action with a fault in it: the right rows, or one clear error. Nothing else."""

import os
import re
import sys
import time

from pyspark import cloudpickle

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Sum and number of what the fixture ``numbers`` holds.
RIGHT = (sum(range(20_000)), 20_000)
#: What Spark says where it noticed first; each names the fault, none is a derived error.
LOST = ("exited unexpectedly", "ExecutorLostFailure", "Executor heartbeat timed out")


def rounds(few, many):
    """Return how often to do something: few times, many with HEADGATE_TEST_FAULTS=full."""
    return many if os.environ.get("HEADGATE_TEST_FAULTS") == "full" else few


def outcome_of(result):
    """Run an action; return ``"rows"``, or the code of its error.

    Args:
        result: what an exchange of ``numbers`` gives, or what follows from it with the same rows.

    Raises:
        AssertionError: rows are missing, or there twice, or the error does not say what happened.
    """
    try:
        rows = result.selectExpr("sum(id)", "count(id)").first()
    except Exception as error:  # noqa: BLE001 - Spark's classes differ by mode
        text = str(error)
        code = re.search(r"\[(HG-\d{4})\]", text)
        assert code or any(words in text for words in LOST), text[:3000]
        return code.group(1) if code else "lost"
    assert tuple(rows) == RIGHT
    return "rows"


def wait_for(condition, seconds):
    """Return whether a condition comes true within so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def once(folder, name):
    """Whether nobody has asked this before, in any process."""
    try:
        (folder / name).open("x").close()
    except FileExistsError:
        return False
    return True


def wait_for_executors(spark):
    """Wait until a cluster has its two executors: after a loss there are too few slots for a while."""
    if spark.sparkContext.master.startswith("local-cluster"):
        books = spark.sparkContext._jsc.sc()
        assert wait_for(lambda: books.getExecutorMemoryStatus().size() >= 3, 90)
