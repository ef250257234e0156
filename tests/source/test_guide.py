"""The tests of the guide pass. Its blocks run with the other pages: tests/spark/test_spark_pages.py."""

import pytest
from tests.kit.pages import ROOT, found_in

BLOCKS = [block for block in found_in(ROOT / "docs" / "write-a-source.md") if block.runs]


def test_the_tests_of_the_guide_pass(tmp_path):
    plain = [block.code for block in BLOCKS if not block.uses_spark]
    assert (len(BLOCKS), len(plain)) == (10, 8)
    path = tmp_path / "test_stations.py"
    path.write_text("\n".join(plain))
    code = pytest.main([str(path), "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"])
    assert code == 0
