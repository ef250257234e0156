"""What the tests of sinks share is in sink_kit.py."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

# importlib mode puts no folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def tmp_path(tmp_path_factory):
    """A folder in memory where there is one: a sink syncs every file, and these write thousands."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path_factory.mktemp("sink")
        return
    with tempfile.TemporaryDirectory(prefix="headgate-sink-", dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def path(tmp_path):
    """A folder that is not there yet."""
    return tmp_path / "deep" / "out"
