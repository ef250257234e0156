"""The master of the tests on Spark: one session for a whole run of pytest.

``make test`` runs on executors of their own, ``make soak`` once more in one process:
``HEADGATE_TEST_MASTER=local[4] pytest tests/spark``.
"""

import os

import pytest

#: Four slots in two executors.
EXECUTORS = "local-cluster[2,2,1024]"
MASTER = os.environ.get("HEADGATE_TEST_MASTER", EXECUTORS)

in_executors = pytest.mark.skipif(
    not MASTER.startswith("local-cluster"), reason="loses an executor; the master has none"
)
