"""Where a test runs: with one process, with executors of their own, or with each, which is what the fixture does."""

import pytest
from outcomes import rounds

ONE_PROCESS = "local[4]"
EXECUTORS = "local-cluster[2,2,1024]"
MASTERS = [ONE_PROCESS, EXECUTORS]


def _with(masters):
    return pytest.mark.parametrize("spark", masters, indirect=True, scope="session")


in_one_process = _with([ONE_PROCESS])
in_executors = _with([EXECUTORS])
#: For what other processes hardly change: HEADGATE_TEST_FAULTS=full runs it with executors, too.
mostly_in_one_process = _with(rounds([ONE_PROCESS], MASTERS))
