"""The guide's blocks run in order, and its tests pass."""

import re
import sys
import types
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "write-a-source.md"
BLOCKS = re.findall(r"^```python( spark)?\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def guide():
    """Return a module with all blocks of the guide."""
    module = types.ModuleType("guide")
    sys.modules["guide"] = module
    for place, (on_spark, text) in enumerate(BLOCKS):
        if not on_spark:
            exec(compile(text, f"{GUIDE.name} block {place}", "exec"), module.__dict__)
    yield module
    del sys.modules["guide"]


def test_the_blocks_run(guide):
    assert len(BLOCKS) >= 10
    assert guide.StationSource().schema == guide.SCHEMA


def test_the_tests_of_the_guide_pass(guide, tmp_path):
    text = "\n".join(text for on_spark, text in BLOCKS if not on_spark)
    path = tmp_path / "test_stations.py"
    path.write_text(text)
    code = pytest.main([str(path), "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"])
    assert code == 0
