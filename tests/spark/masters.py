"""The Spark master of the tests.

``make test`` uses separate executors. ``make soak`` also runs the tests in one process:
``HEADGATE_TEST_MASTER=local[4] pytest tests/spark``.
"""

import os

import pytest

#: Four slots in two executors.
EXECUTORS = "local-cluster[2,2,1024]"
MASTER = os.environ.get("HEADGATE_TEST_MASTER", EXECUTORS)

in_executors = pytest.mark.skipif(
    not MASTER.startswith("local-cluster"), reason="needs executors, which this master lacks"
)
