"""An application of many exchanges keeps disk and memory flat, in a process of its own that is measured.

``HEADGATE_TEST_EXCHANGES=2000 pytest tests/soak/programs/test_many.py`` runs two thousand.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("many_program.py")
COUNT = int(os.environ.get("HEADGATE_TEST_EXCHANGES", "200"))
#: Seconds for one exchange on a busy machine, and for the start and the end.
LIMIT = 3 * COUNT + 200


@pytest.mark.timeout(LIMIT + 20)
def test_many_exchanges_in_one_session(tmp_path):
    command = [sys.executable, str(PROGRAM), str(COUNT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all right"]), (
        done.stdout + done.stderr
    )
