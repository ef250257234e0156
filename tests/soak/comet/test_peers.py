"""The bench beside Comet and Sail runs, and all give the same rows. No test checks the measured values."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(
        "HEADGATE_TEST_COMET" not in os.environ,
        reason="no jar of Comet: run scripts/comet.sh tests/soak/comet",
    ),
    # Environments are installed once.
    pytest.mark.timeout(1500),
]


@pytest.mark.parametrize(
    ("part", "ratios"),
    [
        ("pipeline_sail", ["pipeline_sail"]),
        ("pipeline_comet", ["pipeline_comet", "pipeline_spark_4_1"]),
        ("under_comet", ["under_comet", "under_comet_one_side"]),
    ],
)
def test_the_bench_runs_and_names_its_ratios(part, ratios):
    command = [sys.executable, "-m", "benches", "peers", "--only", part, "--quick", "--turns", "1"]
    done = subprocess.run(
        command,
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "answers are DuckDB's" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("TRIED")]
    assert [line[1] for line in lines] == ratios
