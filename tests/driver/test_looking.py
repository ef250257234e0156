"""Spark is asked about a stage as soon as a consumer waits in it."""

from types import SimpleNamespace

import pytest
from tests.driver.actors import EXCHANGE

pytest.importorskip("pyspark")

from headgate.spark.driver.runs.membership import Membership
from headgate.spark.driver.runs.outcomes import PendingOutcomes
from headgate.spark.driver.scheduler import jobs as module
from headgate.spark.driver.scheduler.jobs import Jobs
from headgate.spark.driver.timing import Timing


class Facts:
    """Records the queries."""

    def __init__(self, context):
        self.asked = []

    def stages(self, stages, running_of):
        self.asked.append(set(stages))
        return {}

    def slots(self):
        return 4

    def blocked(self, stages):
        return 0


@pytest.fixture
def jobs(monkeypatch):
    monkeypatch.setattr(module, "SparkFacts", Facts)
    monkeypatch.setattr(module, "is_gone", lambda context: False)
    server = SimpleNamespace(post=lambda action: None, timing=Timing())
    nothing = module._nothing
    return Jobs(server, SimpleNamespace(), {}, nothing, nothing, nothing)


def coordinator(*stages):
    return SimpleNamespace(
        stages={(EXCHANGE, stage) for stage in stages},
        live_runs=[],
        members=Membership(),
        outcomes=PendingOutcomes(Timing()),
    )


def test_the_first_stage_after_a_quiet_time_is_asked_about_at_once(jobs):
    jobs.tick(coordinator(7))
    jobs._look()
    assert jobs._facts.asked == [{7}]


def test_a_stage_that_comes_while_the_thread_waits_is_asked_about_at_once(jobs):
    class Asked:
        """A queue in which a consumer registers between the check of the work and the wait."""

        def get(self, timeout=None):
            jobs.tick(coordinator(9))
            return module._nothing

        def put(self, action):
            """Do nothing: the test is the only thread."""

        def empty(self):
            return True

    jobs._asked = Asked()
    jobs._look()
    assert jobs._facts.asked == [{9}]


def test_nothing_is_asked_while_nobody_waits(jobs, monkeypatch):
    monkeypatch.setattr(module, "_IDLE", 0.0)
    jobs.tick(coordinator())
    jobs._look()
    assert jobs._facts.asked == []
