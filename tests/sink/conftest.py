"""Folders for tests of sinks."""

import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(tmp_path_factory):
    """Return a folder in memory if possible: these tests write and sync thousands of files."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path_factory.mktemp("sink")
        return
    with tempfile.TemporaryDirectory(prefix="headgate-sink-", dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def path(tmp_path):
    """Return the path of a missing folder."""
    return tmp_path / "deep" / "out"
