"""A client of a real Spark Connect server, in a process of its own, as it may have no classic session."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("connect_program.py")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_exchanges_on_spark_connect(master, tmp_path):
    command = [sys.executable, str(PROGRAM), master, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all right"]), done.stderr
