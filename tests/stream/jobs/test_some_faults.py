"""A few of the soak's jobs with random faults; see tests/soak/streams."""

from typing import ClassVar

import pytest
from tests.soak.streams.calls_job import CallsJob
from tests.soak.streams.job import Job


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1001, 1002, 1003])
def test_some_faults_cost_no_row_and_repeat_none_against_the_guarantee(tmp_path, seed):
    outcome = Job(seed, tmp_path / "job", 10, has_disk=False).run()
    assert not outcome.error, outcome.error
    assert outcome.faults


class SomeFaults(CallsJob):
    """A job with one driver: others take seconds to start."""

    kinds: ClassVar = {"kill a worker": 4, "kill the service": 1, "outage of the service": 1}
    workers = (2,)


def test_some_faults_cost_no_row_behind_calls_and_pay_for_few_twice(tmp_path):
    outcome = SomeFaults(1004, tmp_path / "job", 4, has_disk=False).run()
    assert not outcome.error, outcome.error
    assert outcome.faults
