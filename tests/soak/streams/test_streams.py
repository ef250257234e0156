"""A thousand faults on streaming jobs, each job checked row by row; HEADGATE_TEST_STREAM_FAULTS sets another number."""

import os
import sys

import pytest
from tests.soak.streams.run_streams import run, table

FAULTS = int(os.environ.get("HEADGATE_TEST_STREAM_FAULTS", "1000"))

pytestmark = [pytest.mark.timeout(0)]


def test_no_fault_costs_or_repeats_a_row(tmp_path):
    outcomes = run(1, 0, FAULTS, 2, tmp_path, sys.stderr)
    print(table(outcomes))
    wrong = [f"seed {one.seed}: {one.error}" for one in outcomes if one.error]
    assert not wrong, "\n\n".join(wrong)
    late = sum(one.counts["late rows"] for one in outcomes)
    assert late, "late rows were late"
