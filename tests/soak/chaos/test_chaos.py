"""A dozen runs with one fault each, with every kind of fault; ``make chaos`` runs hundreds."""

import os

import pytest
from tests.soak.chaos.judge import GOOD
from tests.soak.chaos.run_chaos import parser, run

#: The limit is 90 s, not the 30 s of ``make chaos``, as other tests may use the same cores.
LIMIT = ["--limit", "90", "--processes", "1"]

FULL = os.environ.get("HEADGATE_TEST_FAULTS") == "full"


@pytest.mark.timeout(1200)
def test_a_dozen_faults_end_in_the_right_rows_or_one_clear_error():
    results = run(parser().parse_args(["--count", "12", *LIMIT]))
    assert sorted(r["seed"] for r in results if r["seed"] is not None) == list(range(12))
    bad = [r for r in results if r["outcome"] not in GOOD]
    assert not bad, "\n".join(f"seed {r['seed']} {r['outcome']}: {r['detail']}" for r in bad)
    # Most faults must strike: without any fault all runs would pass.
    assert sum(r["outcome"] == "missed" for r in results) <= 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", ["drop", "twice"] if FULL else ["drop"])
def test_spoiled_rows_are_seen(mutation):
    arguments = ["--count", "1", "--kind", "none", "--mutation", mutation, *LIMIT]
    (result,) = run(parser().parse_args(arguments))
    assert result["outcome"] == "wrong"
    assert "rows are missing" in result["detail"]
