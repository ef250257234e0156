"""A thousand faults on streaming jobs, each checked row by row, half as many on Nexmark, 200 on calls, some on Spark.

A fourth of the jobs may repeat rows after a restart, since most of their barriers are only counted.

HEADGATE_TEST_STREAM_FAULTS, HEADGATE_TEST_NEXMARK_FAULTS, HEADGATE_TEST_CALL_FAULTS and
HEADGATE_TEST_STREAM_FAULTS_ON_SPARK set other numbers.
"""

import os
import sys
from functools import partial

import pytest
from benches.nexmark.queries import QUERIES
from tests.soak.streams.calls_job import CallsJob
from tests.soak.streams.job import Job
from tests.soak.streams.nexmark_job import NexmarkJob
from tests.soak.streams.run_streams import run, table

FAULTS = int(os.environ.get("HEADGATE_TEST_STREAM_FAULTS", "1000"))
FAULTS_ON_NEXMARK = int(os.environ.get("HEADGATE_TEST_NEXMARK_FAULTS", "500"))
FAULTS_ON_CALLS = int(os.environ.get("HEADGATE_TEST_CALL_FAULTS", "200"))
FAULTS_ON_SPARK = int(os.environ.get("HEADGATE_TEST_STREAM_FAULTS_ON_SPARK", "20"))

pytestmark = [pytest.mark.timeout(0)]


def test_no_fault_costs_a_row_or_repeats_it_against_the_guarantee(tmp_path):
    outcomes = run(1, 0, FAULTS, 2, tmp_path, sys.stderr)
    print(table(outcomes))
    wrong = [f"seed {one.seed}: {one.error}" for one in outcomes if one.error]
    assert not wrong, "\n\n".join(wrong)
    late = sum(one.counts["late rows"] for one in outcomes)
    assert late, "late rows were late"
    for kind in ("jobs at least once", "jobs at least once without a restart"):
        assert FAULTS < 200 or sum(one.counts[kind] for one in outcomes), kind


def test_no_fault_changes_the_answer_to_a_query_of_nexmark(tmp_path):
    outcomes = run(1, 0, FAULTS_ON_NEXMARK, 2, tmp_path, sys.stderr, make=NexmarkJob)
    print(table(outcomes))
    wrong = [f"seed {job.seed} {job.name}: {job.error}" for job in outcomes if job.error]
    assert not wrong, "\n\n".join(wrong)
    assert FAULTS_ON_NEXMARK < 500 or {job.name for job in outcomes} == set(QUERIES)


def test_no_fault_costs_a_row_behind_calls_or_pays_for_more_than_was_in_the_air(tmp_path):
    outcomes = run(1, 0, FAULTS_ON_CALLS, 2, tmp_path, sys.stderr, make=CallsJob)
    print(table(outcomes))
    wrong = [f"seed {job.seed} {job.name}: {job.error}" for job in outcomes if job.error]
    assert not wrong, "\n\n".join(wrong)
    for kind in ("kill a worker", "kill the driver", "kill the service"):
        assert FAULTS_ON_CALLS < 200 or sum(job.faults[kind] for job in outcomes), kind


def test_no_fault_on_spark_costs_a_row_or_repeats_it_against_the_guarantee(tmp_path):
    outcomes = run(1, 0, FAULTS_ON_SPARK, 1, tmp_path, sys.stderr, make=partial(Job, on_spark=True))
    print(table(outcomes))
    wrong = [f"seed {one.seed}: {one.error}" for one in outcomes if one.error]
    assert not wrong, "\n\n".join(wrong)
    assert sum(one.faults["kill an executor"] for one in outcomes)
