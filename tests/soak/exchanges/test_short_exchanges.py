"""Two thousand short exchanges, a quarter over each link, after which no resource is left and memory has not grown."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "exchanges_program.py"
ROOT = PROGRAM.parents[3]
COUNT = 500

pytestmark = [pytest.mark.timeout(600)]


@pytest.mark.parametrize("link", ["local", "same_host", "tcp", "tls"])
def test_nothing_is_left_of_short_exchanges(link, tmp_path):
    command = [sys.executable, str(PROGRAM), link, str(COUNT), str(tmp_path)]
    # Each exchange has new threads, and the arenas that they leave would hide a leak.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("nothing is left\n")
