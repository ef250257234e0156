"""The two outcomes that an action with a fault may have: all rows, or one clear error."""

import os
import re
import sys
from pathlib import Path

from pyspark import cloudpickle
from tests.kit.waiting import wait_until

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Sum of the ids, and number of the rows, of the fixture ``numbers``.
RIGHT = (sum(range(20_000)), 20_000)
#: Texts of Spark's errors for a lost process. Spark raises one if it notices the loss first.
LOST = ("exited unexpectedly", "ExecutorLostFailure", "Executor heartbeat timed out")


def rounds(few, many):
    """Return a number of repetitions: ``many`` with HEADGATE_TEST_FAULTS=full, else ``few``."""
    return many if os.environ.get("HEADGATE_TEST_FAULTS") == "full" else few


def outcome_of(result):
    """Run an action; return ``"rows"``, or the code of its error.

    Args:
        result: an exchange of ``numbers``, or a DataFrame made from it with the same rows.

    Raises:
        AssertionError: Rows are missing or duplicated, or the error does not name the fault.
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


def once(folder, name):
    """Return True for the first call with this folder and name, in any process."""
    try:
        Path(folder, name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def wait_for_executors(spark):
    """Wait until a cluster has its two executors; after a loss, slots are missing for a while."""
    if spark.sparkContext.master.startswith("local-cluster"):
        books = spark.sparkContext._jsc.sc()
        wait_until(lambda: books.getExecutorMemoryStatus().size() >= 3, "two executors", 90)
