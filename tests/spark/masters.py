"""The Spark master of the tests.

``make test`` uses separate executors. ``make soak`` also runs the tests in one process:
``HEADGATE_TEST_MASTER=local[4] pytest tests/spark``.
"""

import os

import pytest

#: Four slots in two executors.
EXECUTORS = "local-cluster[2,2,1024]"
MASTER = os.environ.get("HEADGATE_TEST_MASTER", EXECUTORS)

#: Modes of the tests that compare an exchange with Spark: the default, and in ``make soak`` both.
COMPARED = ["kept"] if MASTER == EXECUTORS else ["kept", "pipelined"]

in_executors = pytest.mark.skipif(
    not MASTER.startswith("local-cluster"), reason="needs executors, which this master lacks"
)
