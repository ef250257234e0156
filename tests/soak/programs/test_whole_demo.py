"""The demo as a program, on all of its data."""

import subprocess
import sys

import pytest


@pytest.mark.timeout(400)
def test_the_whole_demo_agrees_with_spark():
    command = [sys.executable, "-m", "headgate", "demo", "--runs", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=290, check=False)
    assert run.returncode == 0, run.stderr
    assert "all 336,776 legs compared row by row: the same by Headgate and by Spark" in run.stdout
