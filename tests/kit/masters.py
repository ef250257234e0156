"""The Spark master of the tests.

``make test`` uses separate executors. ``make soak`` also runs the tests in one process:
``HEADGATE_TEST_MASTER=local[4] pytest tests/spark``.
"""

import os

import pyspark
import pytest

#: Four slots in two executors.
EXECUTORS = "local-cluster[2,2,1024]"
MASTER = os.environ.get("HEADGATE_TEST_MASTER", EXECUTORS)

#: Version of PySpark, such as (4, 3).
PYSPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))

compares_rows = pytest.mark.skipif(
    MASTER.startswith("local-cluster") and PYSPARK < (4, 1),
    reason="needs Spark 4.1, which compares the rows of a task that ran again with its earlier ones",
)
registers = pytest.mark.skipif(
    PYSPARK < (4, 1), reason="Spark 4.0 keeps the format headgate as it found it in the wheel"
)
#: True if the workers of streaming jobs take shares of a core, so that they hold no slots.
HAS_SHARES = MASTER == EXECUTORS and PYSPARK >= (4, 3)
in_executors = pytest.mark.skipif(
    not MASTER.startswith("local-cluster"), reason="needs executors, which this master lacks"
)

not_in_executors = pytest.mark.skipif(
    MASTER.startswith("local-cluster"), reason="this master retries tasks"
)


def in_modes(*modes):
    """Return the marks of tests that run in each of these modes, by the fixture ``mode``."""
    return [
        pytest.mark.usefixtures("mode"),
        pytest.mark.parametrize("mode", modes, indirect=True),
    ]
